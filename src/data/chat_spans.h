// ChatSpans: which tokens of a conversation the assistant writes, for the losses of `tlt sft` and
// `tlt draft`. They are found from token ids; no text is searched for:
//
//   a template with {% generation %} blocks says it itself, and the conversation is one row;
//   else the prompt of an assistant's message is the messages before it with the generation prompt,
//   as the model gets them when it answers, and what it has to say is what the conversation up to
//   this message adds to that. Where the template writes the message otherwise than its prompt
//   begins it (DeepSeek's prompt ends in <think>, and messages lack it), the message's content
//   behind that beginning is what is learned; it must be what the template writes, byte for byte.
//
// Messages share a row while that leaves each behind the prompt it answers. Where a template writes
// earlier messages in another way once more follows (Qwen 3 drops their reasoning), a conversation
// is several rows, and each message is in one of them.
//
// A message ends with its end-of-sequence token; what the template writes behind it does not count.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/chat_template.h"
#include "data/tokenizer.h"

namespace tlt::data {

// A row to learn from: it ends with its last span.
struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end), in order, not empty
};

// The rows of a conversation, in its order; at least one. InputError, beginning with the place: the
// template refuses the conversation, or does not say which tokens are the assistant's; there are
// none. REQUIRES: !chat.add_generation_prompt.
std::vector<ChatTokens> chat_tokens(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                    const Chat& chat, const std::string& place);

}  // namespace tlt::data
