// GenerationRequest: what a body of /v1/completions or /v1/chat/completions requests; RequestParser
// reads it.
//
// Owns       nothing: the parser borrows tokenizer and chat template.
// Not here   whether the engine has room (engine_loop.h); the answer (answer_writer.h).
// Threading  constant after construction; any function from any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/chat_template.h"
#include "rollout/sampling_options.h"
#include "serve/request_fields.h"
#include "tokenizer/tokenizer.h"

namespace tlt::serve {

struct GenerationRequest {
  bool is_chat = false;
  std::vector<std::vector<int32_t>> prompts;
  int64_t n = 1;  // responses per prompt
  std::shared_ptr<const rollout::SamplingOptions> sampling;
  uint64_t seed = 0;
  bool wants_logprobs = false;
  int64_t top_logprobs = 0;
  bool wants_prompt_logprobs = false;
  bool streams = false;
  bool includes_usage = false;  // of a stream: the last event has the number of tokens
  bool returns_token_ids = false;
  bool skips_special_tokens = true;
  bool has_tools = false;

  int64_t choices() const { return std::ssize(prompts) * n; }
};

// What requests are checked against.
struct ServedModel {
  std::string name;
  const tokenizer::Tokenizer& tokenizer;
  std::optional<chat_template::ChatTemplate> chat_template;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;     // of prompt and response together
  int64_t max_cache_tokens = 0;  // that the KV cache holds of one sequence
  int64_t max_choices = 0;       // of one request
};

class RequestParser {
 public:
  // Borrows the model's description.
  explicit RequestParser(const ServedModel& model) : model_(model) {}

  // ApiError names the field and what is accepted.
  GenerationRequest completion(std::string_view body) const;
  GenerationRequest chat(std::string_view body) const;

  // {"prompt": string} or {"messages": […], "tools"?}: the tokens of a prompt, for /tokenize.
  std::vector<int32_t> tokenize(std::string_view body) const;
  // {"tokens": […]}, for /detokenize.
  std::string detokenize(std::string_view body) const;

 private:
  void read_common(RequestFields& fields, GenerationRequest& request) const;
  void set_sampling(RequestFields& fields, GenerationRequest& request) const;
  void check_model(RequestFields& fields) const;
  void check_prompts(const GenerationRequest& request) const;
  std::vector<int32_t> encode(const std::string& text, const char* field) const;
  std::vector<int32_t> token_ids(const nlohmann::ordered_json& list, const char* field) const;
  std::vector<std::vector<int32_t>> prompts_of(RequestFields& fields) const;
  // Renders and encodes "messages", with "tools" unless tool_choice is none.
  std::vector<int32_t> messages_of(RequestFields& fields, bool& has_tools) const;

  const ServedModel& model_;
};

}  // namespace tlt::serve
