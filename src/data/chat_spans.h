// ChatSpans: the tokens of a conversation that the assistant writes, for the losses of `tlt sft`
// and `tlt draft`. They are found from token ids, not by searching text:
//
//   A template with {% generation %} blocks marks them itself, and the conversation is one row.
//   Otherwise the prompt of an assistant message is the messages before it with the generation
//   prompt, as the model gets them for its answer; the message's tokens are those that the
//   conversation up to this message adds. If the template does not write the message as its prompt
//   begins it (DeepSeek's prompt ends in <think>, which messages lack), the answer is the message's
//   content after that beginning, which must match the template's output byte for byte.
//
// Messages share a row as long as each follows the prompt that it answers. If a template writes
// earlier messages differently once more follow (Qwen 3 drops their reasoning), a conversation
// becomes several rows, and each message is in one of them.
//
// A message ends with its end-of-sequence token; what the template writes after it is not included.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chat_template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

// A row of training data: it ends with its last span.
struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end), in order, not empty
};

// The rows of a conversation, in its order; at least one. InputError, beginning with the place: the
// template rejects the conversation, the assistant's tokens cannot be determined, or there are
// none. REQUIRES: !chat.add_generation_prompt.
std::vector<ChatTokens> chat_tokens(const chat_template::ChatTemplate& chat_template,
                                    const tokenizer::Tokenizer& tokenizer,
                                    const chat_template::Chat& chat, const std::string& place);

}  // namespace tlt::data
