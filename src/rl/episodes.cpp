// SPDX-License-Identifier: Apache-2.0
#include "rl/episodes.h"

#include <algorithm>
#include <functional>
#include <string_view>
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
// The engine's ids of the environment's prompts have it; no data has 2^31 rows.
constexpr uint32_t kOwnPromptBit = uint32_t{1} << 31;
constexpr const char* kOwnPrompt = "the environment's prompt";

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
      max_prompt_length_(data.max_prompt_length),
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
  pool_.flush();
}

std::vector<FinishedEpisode> Episodes::advance() {
  for (Response& response : engine_.take_finished()) {
    if (const auto own = row_of_.find(response.prompt_id); own != row_of_.end())
      response.prompt_id = own->second;
    const auto found = episodes_.find(key_of(response));
    TLT_CHECK(found != episodes_.end(), "a turn of no episode");
    end_turn(found->second, std::move(response));
  }
  for (const EnvironmentAnswer& answer : pool_.poll()) {
    const auto known = key_of_id_.find(answer.episode);
    if (known == key_of_id_.end()) continue;
    take(episodes_.at(known->second), answer);
  }
  pool_.flush();
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
    open(episode, answer);
  } catch (const InputError& error) {
    episode.outcome.fault = error.what();
  }
  Start& start = *episode.start;
  start.ready.push_back(&episode);
  if (start.ready.size() < start.expected) return;
  waiting_ -= std::ssize(start.ready);
  decode(start);
}

// Sets the episode's prompt and the tokens before the first turn, or changes nothing.
void Episodes::open(Episode& episode, const EnvironmentAnswer& answer) const {
  TLT_CHECK_INPUT(!answer.is_done, "the environment ended an episode before its first turn");
  chat_template::Chat chat = episode.chat;
  if (!answer.prompt.is_null()) chat.messages = answer.prompt;
  rollout::Group group = episode.start->group;
  std::vector<int32_t> own_prompt = prompt_of(answer, chat), opening;
  if (!own_prompt.empty()) group.tokens = own_prompt;
  if (answer.prompt_token_ids.empty())
    opening = renderer_.open(chat, answer.messages, "first messages");
  const int64_t limit = engine_.response_limit(group);
  TLT_CHECK_INPUT(std::ssize(opening) < limit, "the environment's first messages have ",
                  opening.size(), " tokens and data.max_response_length is ", limit);
  for (const Json& message : answer.messages) chat.messages.push_back(message);
  episode.chat = std::move(chat);
  episode.own_prompt = std::move(own_prompt);
  append(episode, opening);
}

// In place of the row's prompt; empty: none. `chat` has the messages of the answer.
std::vector<int32_t> Episodes::prompt_of(const EnvironmentAnswer& answer,
                                         const chat_template::Chat& chat) const {
  const std::vector<int32_t>& tokens = answer.prompt_token_ids;
  TLT_CHECK_INPUT(std::ssize(tokens) <= max_prompt_length_, kOwnPrompt, " has ", tokens.size(),
                  " tokens and data.max_prompt_length is ", max_prompt_length_);
  if (!tokens.empty() || answer.prompt.is_null()) return tokens;
  return renderer_.prompt(chat, kOwnPrompt);
}

// Episodes with the same prompt are a group of the engine.
void Episodes::decode(Start& start) {
  std::ranges::sort(start.ready, {}, [](const Episode* one) { return one->response.sample; });
  std::map<std::vector<int32_t>, std::vector<Episode*>> by_own_prompt;
  for (Episode* episode : start.ready) by_own_prompt[episode->own_prompt].push_back(episode);
  std::vector<Episode*> rows = by_own_prompt[{}];
  for (const auto& [prompt, episodes] : by_own_prompt)
    if (!prompt.empty() && !try_decode_own(start, episodes))
      rows.insert(rows.end(), episodes.begin(), episodes.end());
  std::ranges::sort(rows, {}, [](const Episode* one) { return one->response.sample; });
  if (!rows.empty()) resume(std::make_shared<const rollout::Group>(start.group), rows);
  start.ready.clear();
}

// False: the engine refuses the prompt, and the episodes have failed.
bool Episodes::try_decode_own(const Start& start, std::span<Episode* const> episodes) {
  auto group = std::make_shared<rollout::Group>(start.group);
  group->tokens = episodes.front()->own_prompt;
  group->random_key = uint64_t{start.group.rl_step} << 32 | start.group.prompt_id;
  group->prompt_id = engine_id(group->tokens, start.group.prompt_id);
  try {
    resume(group, episodes);
    return true;
  } catch (const InputError& error) {
    for (Episode* episode : episodes) {
      episode->outcome.fault = std::string(kOwnPrompt) + ": " + error.what();
      episode->own_prompt.clear();
      episode->response.tokens.clear();
      episode->response.logprobs.clear();
      episode->response.entropies.clear();
      episode->response.observed.clear();
    }
    return false;
  }
}

void Episodes::resume(const std::shared_ptr<const rollout::Group>& group,
                      std::span<Episode* const> episodes) {
  std::vector<Response> responses;
  for (const Episode* episode : episodes) {
    responses.push_back(episode->response);
    responses.back().prompt_id = group->prompt_id;
  }
  engine_.resume(*group, std::move(responses));
  for (Episode* episode : episodes) episode->group = group;
}

// The same for the same prompt unless another row has it, so that a drafter finds earlier responses
// to it. It affects no token: the group has a random key.
uint32_t Episodes::engine_id(std::span<const int32_t> prompt, uint32_t row) {
  const std::string_view bytes(reinterpret_cast<const char*>(prompt.data()), prompt.size_bytes());
  auto id = static_cast<uint32_t>(std::hash<std::string_view>{}(bytes)) | kOwnPromptBit;
  while (row_of_.contains(id) && row_of_.at(id) != row) id = (id + 1) | kOwnPromptBit;
  row_of_[id] = row;
  return id;
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
    TLT_CHECK_INPUT(answer.prompt.is_null() && answer.prompt_token_ids.empty(),
                    "the environment gave a prompt in the answer to step, which only that to reset "
                    "may have");
    TLT_CHECK_INPUT(!answer.messages.empty(),
                    "the environment gave neither messages nor done=true");
    const std::vector<int32_t> tokens =
        renderer_.observe(episode.chat, answer.messages, episode.response.tokens.back(),
                          "turn " + std::to_string(episode.turns));
    TLT_CHECK_INPUT(!tokens.empty(),
                    "data.chat_template renders nothing for the environment's messages");
    if (std::ssize(episode.response.tokens) + std::ssize(tokens) >=
        engine_.response_limit(*episode.group))
      return finish(episode, FinishReason::kLength);
    append(episode, tokens);
  } catch (const InputError& error) {
    episode.outcome.fault = error.what();
    return finish(episode, FinishReason::kStop);
  }
  for (const Json& message : answer.messages) episode.chat.messages.push_back(message);
  episode.state = Episode::State::kDecoding;
  Episode* const self = &episode;
  resume(episode.group, {&self, 1});
}

// Tokens that were not sampled.
void Episodes::append(Episode& episode, std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  Response& response = episode.response;
  const size_t begin = response.tokens.size(), end = begin + tokens.size();
  response.tokens.insert(response.tokens.end(), tokens.begin(), tokens.end());
  response.logprobs.resize(end);
  response.entropies.resize(end);
  response.observed.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
}

void Episodes::finish(Episode& episode, FinishReason reason) {
  pool_.close(episode.id);
  key_of_id_.erase(episode.id);
  episode.response.finish = reason;
  episode.outcome.extras["turns"] = static_cast<double>(episode.turns);
  const Key key = key_of(episode.response);
  finished_.push_back(
      {std::move(episode.response), std::move(episode.outcome), std::move(episode.own_prompt)});
  episodes_.erase(key);
  if (episodes_.empty()) row_of_.clear();
}

void Episodes::drop_all() {
  pool_.close_all();
  episodes_.clear();
  key_of_id_.clear();
  row_of_.clear();
  finished_.clear();
  waiting_ = 0;
}

}  // namespace tlt::rl
