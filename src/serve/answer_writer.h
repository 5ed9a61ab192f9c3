// AnswerWriter: the JSON of the answer to a GenerationRequest, as a whole or as the events of a
// stream, from the tokens of its responses.
//
// Owns       text and tokens of the responses so far.
// Borrows    request, tokenizer.
// Not here   HTTP (http_server.h), where the tokens come from (engine_loop.h).
// Threading  one thread.
//
//   AnswerWriter writer(request, context, /*weight_version=*/0);
//   std::string event = writer.add(delta);     // for a stream: its events for these tokens
//   if (writer.is_finished()) body = writer.answer();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat_template/tool_calls.h"
#include "serve/choice_text.h"
#include "serve/generation_request.h"
#include "serve/logprobs.h"
#include "serve/response_channel.h"

namespace tlt::serve {

// The beginning of every answer to a request, and what its text depends on.
struct AnswerContext {
  std::string id;       // "cmpl-…"
  int64_t created = 0;  // seconds since 1970
  std::string model;
  const tokenizer::Tokenizer& tokenizer;
  std::vector<int32_t> eos_tokens;
  chat_template::ToolCallFormat tool_call_format = chat_template::ToolCallFormat::kHermes;
  std::vector<std::vector<float>> prompt_logprobs = {};  // by prompt; empty: not requested
};

class AnswerWriter {
 public:
  using Json = nlohmann::ordered_json;

  AnswerWriter(const GenerationRequest& request, AnswerContext context, int64_t weight_version);
  AnswerWriter(const AnswerWriter&) = delete;  // the choices point into it
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  // Takes further tokens of a response. Returns the events that they give, "" for none; always ""
  // if the request does not stream.
  std::string add(const TokenDelta& delta);
  bool is_finished() const { return unfinished_ == 0; }

  // REQUIRES: is_finished(). The answer as a whole.
  std::string answer() const;
  // The events before those of the first tokens, and after those of the last.
  std::string first_events() const;
  std::string last_events() const;

  int64_t completion_tokens() const;

 private:
  struct Choice {
    explicit Choice(const TextRule& rule) : decoder(rule) {}
    ChoiceText decoder;
    std::string text;
    size_t streamed_bytes = 0;  // of the text
    int64_t offset = 0;         // characters of the tokens streamed so far
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::vector<std::vector<ops::Sampled>> top_logprobs;
    std::optional<rollout::FinishReason> finish;
    int64_t cached_tokens = 0;  // of its prompt
  };

  TextRule text_rule() const;
  Json head(const char* object) const;
  Json usage() const;
  Json logprobs_of(const ScoredTokens& scored, int64_t& offset) const;
  Json tool_calls_of(int64_t index, const chat_template::ParsedResponse& parsed,
                     bool is_stream) const;
  chat_template::ParsedResponse parsed(const Choice& choice) const;
  std::string finish_reason(const Choice& choice, bool has_calls) const;
  Json whole_choice(int64_t index) const;
  std::string event_of(const TokenDelta& delta, Choice& choice);
  Json delta_of(int64_t index, Choice& choice, std::string& finish);

  const GenerationRequest& request_;
  const AnswerContext context_;
  const TextRule text_rule_;
  const int64_t weight_version_;
  std::vector<Choice> choices_;
  int64_t unfinished_ = 0;
};

// One server-sent event with this data.
std::string sse_event(const std::string& data);

}  // namespace tlt::serve
