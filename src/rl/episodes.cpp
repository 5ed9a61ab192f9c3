// SPDX-License-Identifier: Apache-2.0
#include "rl/episodes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rl {
namespace {

using environment::EnvironmentAnswer;
using rollout::FinishReason;
using rollout::Response;

// The counter's position of an episode's seed, which no token has.
constexpr uint32_t kSeedPosition = 0xFFFFFFFF;

uint32_t seed_of(const rollout::Group& group, uint32_t sample) {
  return static_cast<uint32_t>(uniform(group.seed, {.step = group.rl_step,
                                                    .prompt = group.prompt_id,
                                                    .sample = sample,
                                                    .position = kSeedPosition}) *
                               0x1p31);
}

}  // namespace

Episodes::Episodes(const environment::EnvironmentOptions& options, const data::DataOptions& data,
                   const tokenizer::Tokenizer& tokenizer, rollout::Engine& engine,
                   std::span<const int32_t> stop_tokens)
    : options_(options),
      engine_(engine),
      renderer_(data, options, tokenizer, stop_tokens),
      pool_(options) {}

void Episodes::check(const data::Prompt& prompt) { pool_.check(row_of(prompt)); }

nlohmann::ordered_json Episodes::row_of(const data::Prompt& prompt) {
  return {{"prompt", prompt.text},
          {"messages", prompt.messages},
          {"tools", prompt.tools},
          {"ground_truth", prompt.ground_truth},
          {"data_source", prompt.data_source},
          {"extra_info", prompt.extra_info}};
}

void Episodes::start(const data::Prompt& prompt, rollout::Group group,
                     std::span<const uint32_t> samples) {
  const auto start = std::make_shared<Start>();
  start->group = std::move(group);
  start->expected = samples.size();
  for (const uint32_t sample : samples) {
    const Key key = {start->group.prompt_id, sample};
    Episode& episode = episodes_[key];
    episode.start = start;
    episode.chat = {.messages = prompt.messages, .tools = prompt.tools};
    episode.response.prompt_id = start->group.prompt_id;
    episode.response.rl_step = start->group.rl_step;
    episode.response.sample = sample;
    episode.id = pool_.open(row_of(prompt), seed_of(start->group, sample));
    key_of_id_[episode.id] = key;
    ++waiting_;
  }
}

std::vector<FinishedEpisode> Episodes::advance() {
  for (Response& response : engine_.take_finished()) {
    const auto found = episodes_.find(key_of(response));
    TLT_CHECK(found != episodes_.end(), "a turn of no episode");
    end_turn(found->second, std::move(response));
  }
  for (const EnvironmentAnswer& answer : pool_.poll()) {
    const auto known = key_of_id_.find(answer.episode);
    if (known == key_of_id_.end()) continue;
    take(episodes_.at(known->second), answer);
  }
  return std::exchange(finished_, {});
}

void Episodes::take(Episode& episode, const EnvironmentAnswer& answer) {
  if (!answer.fault.empty()) episode.outcome.fault = answer.fault;
  // A program that ends while the engine decodes: the episode ends with the turn.
  if (episode.state == Episode::State::kDecoding) return;
  if (episode.state == Episode::State::kResetting) return begin(episode, answer);
  --waiting_;
  observe(episode, answer);
}

// An episode that the environment has not begun has one turn, so that every response has a token.
void Episodes::begin(Episode& episode, const EnvironmentAnswer& answer) {
  episode.state = Episode::State::kDecoding;
  try {
    TLT_CHECK_INPUT(!answer.is_done, "the environment ended an episode before its first turn");
    const std::vector<int32_t> tokens =
        renderer_.open(episode.chat, answer.messages, "first messages");
    TLT_CHECK_INPUT(try_append(episode, tokens), "the environment's first messages have ",
                    tokens.size(), " tokens and data.max_response_length is ",
                    engine_.response_limit(episode.start->group));
    for (const Json& message : answer.messages) episode.chat.messages.push_back(message);
  } catch (const InputError& error) {
    episode.outcome.fault = error.what();
  }
  Start& start = *episode.start;
  start.ready.push_back(std::move(episode.response));
  if (start.ready.size() < start.expected) return;
  waiting_ -= std::ssize(start.ready);
  std::ranges::sort(start.ready, {}, &Response::sample);
  engine_.resume(start.group, std::exchange(start.ready, {}));
}

void Episodes::end_turn(Episode& episode, Response response) {
  episode.response = std::move(response);
  ++episode.turns;
  const FinishReason reason = episode.response.finish;
  if (!episode.outcome.fault.empty() || reason != FinishReason::kStop)
    return finish(episode, reason);
  const std::vector<rollout::TokenSpan>& observed = episode.response.observed;
  const auto begin = observed.empty() ? 0U : static_cast<size_t>(observed.back().end);
  Json message = renderer_.message(std::span(episode.response.tokens).subspan(begin));
  Json calls = Json::array();
  for (const Json& call : message.value("tool_calls", Json::array()))
    calls.push_back({{"id", call["id"]},
                     {"name", call["function"]["name"]},
                     {"arguments", call["function"]["arguments"]}});
  episode.chat.messages.push_back(message);
  ++waiting_;
  episode.state = Episode::State::kStepping;
  pool_.step(
      episode.id,
      {.message = std::move(message), .tool_calls = std::move(calls), .turn = episode.turns});
}

void Episodes::observe(Episode& episode, const EnvironmentAnswer& answer) {
  if (!answer.fault.empty()) return finish(episode, FinishReason::kStop);
  episode.outcome.reward += answer.reward;
  for (const auto& [name, value] : answer.extras) episode.outcome.extras[name] = value;
  if (answer.is_done) return finish(episode, FinishReason::kStop);
  if (episode.turns >= options_.max_turns) return finish(episode, FinishReason::kLength);
  try {
    TLT_CHECK_INPUT(!answer.messages.empty(),
                    "the environment gave neither messages nor done=true");
    const std::vector<int32_t> tokens =
        renderer_.observe(episode.chat, answer.messages, episode.response.tokens.back(),
                          "turn " + std::to_string(episode.turns));
    TLT_CHECK_INPUT(!tokens.empty(),
                    "data.chat_template renders nothing for the environment's messages");
    if (!try_append(episode, tokens)) return finish(episode, FinishReason::kLength);
  } catch (const InputError& error) {
    episode.outcome.fault = error.what();
    return finish(episode, FinishReason::kStop);
  }
  for (const Json& message : answer.messages) episode.chat.messages.push_back(message);
  episode.state = Episode::State::kDecoding;
  engine_.resume(episode.start->group, {std::exchange(episode.response, {})});
}

bool Episodes::try_append(Episode& episode, std::span<const int32_t> tokens) const {
  Response& response = episode.response;
  const size_t begin = response.tokens.size(), end = begin + tokens.size();
  if (static_cast<int64_t>(end) >= engine_.response_limit(episode.start->group)) return false;
  if (tokens.empty()) return true;
  response.tokens.insert(response.tokens.end(), tokens.begin(), tokens.end());
  response.logprobs.resize(end);
  response.observed.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  return true;
}

void Episodes::finish(Episode& episode, FinishReason reason) {
  pool_.close(episode.id);
  key_of_id_.erase(episode.id);
  episode.response.finish = reason;
  episode.outcome.extras["turns"] = static_cast<double>(episode.turns);
  const Key key = key_of(episode.response);
  finished_.push_back({std::move(episode.response), std::move(episode.outcome)});
  episodes_.erase(key);
}

void Episodes::drop_all() {
  pool_.close_all();
  episodes_.clear();
  key_of_id_.clear();
  finished_.clear();
  waiting_ = 0;
}

}  // namespace tlt::rl
