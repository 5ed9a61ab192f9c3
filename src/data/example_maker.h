// ExampleMaker: makes training examples of prompts, responses and conversations, within the limits
// of lengths: for SftDataset and PreferenceDataset.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/chat_spans.h"
#include "data/data_options.h"
#include "data/prompt_renderer.h"
#include "tokenizer/tokenizer.h"

namespace tlt::data {

struct SftExample {
  std::vector<int32_t> tokens;                     // prompt, then response
  int64_t response_begin = 0;                      // of the first response in a conversation
  std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end) of each response, in order
  std::vector<float> weights;  // loss weight of each token; 0 outside of responses
  int64_t row = 0;             // its index over all files, counted before any is left out
};

class ExampleMaker {
 public:
  // InputError: data.loss_weights or the chat template cannot be used, or the model names no
  // end-of-sequence token.
  ExampleMaker(const DataOptions& options, const tokenizer::Tokenizer& tokenizer);

  const PromptRenderer& renderer() const { return renderer_; }
  int64_t max_response_length() const { return options_.max_response_length; }

  // The tokens of a response, with an end-of-sequence token at the end.
  std::vector<int32_t> response_tokens(const std::string& response) const;

  // The same for a field of a row, "response" or "chosen" in messages. nullopt: longer than
  // data.max_response_length, with data.filter_overlong_prompts. InputError: longer without it, or
  // no text.
  std::optional<std::vector<int32_t>> try_response(const nlohmann::ordered_json& field,
                                                   const std::string& name,
                                                   const std::string& place) const;

  SftExample join(std::vector<int32_t> prompt, const std::vector<int32_t>& response,
                  int64_t row) const;

  // An example of a conversation. nullopt, InputError: as try_response(), for
  // data.max_prompt_length + data.max_response_length.
  std::optional<SftExample> try_conversation(ChatTokens chat, int64_t row,
                                             const std::string& place) const;

 private:
  SftExample weigh(ChatTokens chat, int64_t row) const;

  const DataOptions options_;
  const tokenizer::Tokenizer tokenizer_;
  const PromptRenderer renderer_;
  const std::unordered_map<int32_t, float> weights_;
};

}  // namespace tlt::data
