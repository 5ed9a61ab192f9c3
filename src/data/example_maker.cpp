// SPDX-License-Identifier: Apache-2.0
#include "data/example_maker.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::data {
namespace {

// data.loss_weights: "</think>=3" for the token </think>.
std::unordered_map<int32_t, float> read_weights(const std::vector<std::string>& entries,
                                                const tokenizer::Tokenizer& tokenizer) {
  std::unordered_map<int32_t, float> weights;
  for (const std::string& entry : entries) {
    const size_t equals = entry.rfind('=');
    float weight = 0;
    const char* end = entry.data() + entry.size();
    const bool is_read = equals != std::string::npos &&
                         std::from_chars(entry.data() + equals + 1, end, weight).ptr == end &&
                         equals + 1 < entry.size();
    TLT_CHECK_INPUT(is_read && weight >= 0 && weight <= 1e6F, "data.loss_weights: \"", entry,
                    "\" is not a token and its weight, like </think>=3");
    const std::vector<int32_t> tokens = tokenizer.encode(entry.substr(0, equals));
    TLT_CHECK_INPUT(tokens.size() == 1, "data.loss_weights: \"", entry.substr(0, equals), "\" is ",
                    tokens.size(), " tokens; give a single one");
    weights[tokens[0]] = weight;
  }
  return weights;
}

}  // namespace

ExampleMaker::ExampleMaker(const DataOptions& options, const tokenizer::Tokenizer& tokenizer)
    : options_(options),
      tokenizer_(tokenizer),
      renderer_(options, tokenizer),
      weights_(read_weights(options.loss_weights, tokenizer)) {
  TLT_CHECK_INPUT(!tokenizer.roles().eos.empty(),
                  "the model folder names no end-of-sequence token; set eos_token in its "
                  "tokenizer_config.json");
}

std::vector<int32_t> ExampleMaker::response_tokens(const std::string& response) const {
  std::vector<int32_t> tokens = tokenizer_.encode(response);
  const auto& eos = tokenizer_.roles().eos;
  if (tokens.empty() || std::ranges::find(eos, tokens.back()) == eos.end())
    tokens.push_back(eos[0]);
  return tokens;
}

std::optional<std::vector<int32_t>> ExampleMaker::try_response(const nlohmann::ordered_json& field,
                                                               const std::string& name,
                                                               const std::string& place) const {
  TLT_CHECK_INPUT(field.is_string(), place, ": the ", name, " must be a text");
  std::vector<int32_t> tokens = response_tokens(field.get<std::string>());
  if (std::ssize(tokens) <= options_.max_response_length) return tokens;
  TLT_CHECK_INPUT(options_.filter_overlong_prompts, place, ": the ", name, " has ", tokens.size(),
                  " tokens and data.max_response_length is ", options_.max_response_length,
                  "; raise it, or set data.filter_overlong_prompts=true");
  return std::nullopt;
}

SftExample ExampleMaker::join(std::vector<int32_t> prompt, const std::vector<int32_t>& response,
                              int64_t row) const {
  const int64_t begin = std::ssize(prompt);
  prompt.insert(prompt.end(), response.begin(), response.end());
  const int64_t end = std::ssize(prompt);
  return weigh({.tokens = std::move(prompt), .spans = {{begin, end}}}, row);
}

std::optional<SftExample> ExampleMaker::try_conversation(ChatTokens chat, int64_t row,
                                                         const std::string& place) const {
  const int64_t limit = options_.max_prompt_length + options_.max_response_length;
  if (std::ssize(chat.tokens) <= limit) return weigh(std::move(chat), row);
  TLT_CHECK_INPUT(options_.filter_overlong_prompts, place, ": the conversation has ",
                  chat.tokens.size(),
                  " tokens, and data.max_prompt_length + data.max_response_length is ", limit,
                  "; raise them, or set data.filter_overlong_prompts=true");
  return std::nullopt;
}

SftExample ExampleMaker::weigh(ChatTokens chat, int64_t row) const {
  SftExample example{.tokens = std::move(chat.tokens),
                     .response_begin = chat.spans[0].first,
                     .spans = std::move(chat.spans),
                     .weights = {},
                     .row = row};
  example.weights.assign(example.tokens.size(), 0.0F);
  for (const auto& [begin, end] : example.spans) {
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
      const auto weight = weights_.find(example.tokens[at]);
      example.weights[at] = weight == weights_.end() ? 1.0F : weight->second;
    }
  }
  return example;
}

}  // namespace tlt::data
