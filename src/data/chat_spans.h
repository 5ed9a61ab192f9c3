// ChatSpans: which tokens of a conversation the assistant writes, for the losses of `tlt sft` and
// `tlt draft`. They are found from token ids, never by searching the text:
//
//   a template with {% generation %} blocks says it itself;
//   else an assistant's message is what comes after the tokens of the messages before it (with the
//   generation prompt), up to the tokens that end with it. A template that writes earlier messages
//   in another way once a later one is there is refused.
//
// What follows a message's last end-of-sequence token is the template's and does not count.
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

struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end), in order, not empty
};

// InputError, beginning with the place: the template refuses the conversation, or does not say
// which tokens are the assistant's; there are none. REQUIRES: !chat.add_generation_prompt.
ChatTokens chat_tokens(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                       const Chat& chat, const std::string& place);

}  // namespace tlt::data
