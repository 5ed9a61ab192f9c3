// Episodes: responses of several turns, between which an environment answers.
//
// A response has the tokens of all turns: those of the model as they were sampled, and between them
// the observed ones (Response::observed), which no loss counts. A turn begins as a response that
// the engine resumes after these tokens. So the token at a position depends on the same uniform
// whatever the scheduling, and other sequences decode while the environment thinks. Meanwhile the
// prefix cache of the engine keeps the pages of the tokens so far, until others need the memory:
// then they are computed again.
//
//   reset -> opening -> turn -> step -> observation -> turn -> … -> finished
//
// An environment may replace the row's prompt for an episode. Its tokens depend on that prompt and
// on the row's id, and on no other episode of the group: those with the same prompt share it in the
// engine, as a group of their own.
//
// A failed episode ends with the tokens so far and the fault in its outcome. Episodes that are
// unfinished when a phase stops are dropped: a resumed run begins them again, with the same tokens
// if the environment gives the same answers.
//
// Owns       the programs of the environment, the episodes of the phase.
// Borrows    the engine, the prompts from start() on.
// Not here   the protocol (environment/environment_pool.h); scores (reward/episode_reward.h).
// Threading  engine thread only.
//
//   Episodes episodes(options, data, tokenizer, engine, stop_tokens);
//   episodes.start(prompt, group, {0, 1, 2, 3});
//   while (…) { engine.step(); for (FinishedEpisode& one : episodes.advance()) … }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "environment/environment_pool.h"
#include "environment/turn_renderer.h"
#include "reward/reward.h"
#include "rollout/engine.h"

namespace tlt::rl {

struct FinishedEpisode {
  rollout::Response response;
  reward::EpisodeOutcome outcome;
  std::vector<int32_t> own_prompt;  // as in run::Rollout
};

class Episodes {
 public:
  // `stop_tokens`: those that end a turn. InputError: the chat template cannot be used for turns.
  Episodes(const environment::EnvironmentOptions& options, const data::DataOptions& data,
           const tokenizer::Tokenizer& tokenizer, rollout::Engine& engine,
           std::span<const int32_t> stop_tokens);

  // InputError: the environment does not begin an episode of this row.
  void check(const data::Prompt& prompt);

  // Begins episodes of the group's prompt, which are decoded once the environment has answered for
  // all of them. `group.samples` is ignored.
  void start(const data::Prompt& prompt, rollout::Group group, std::span<const uint32_t> samples);

  // Takes the turns that the engine has finished, and the environment's answers; continues the
  // episodes, and returns those that are finished.
  std::vector<FinishedEpisode> advance();

  // Episodes that the engine does not have, because the environment has not answered for them or
  // for others that begin together with them.
  int64_t waiting() const { return waiting_; }
  // As EnvironmentPool::wait().
  bool wait(double seconds) { return pool_.wait(seconds); }

  // Drops all unfinished episodes. REQUIRES: the engine has none of them.
  void drop_all();

 private:
  using Json = nlohmann::ordered_json;
  using Key = std::pair<uint32_t, uint32_t>;  // prompt id and sample
  struct Episode;
  // The samples of a row that begin together.
  struct Start {
    rollout::Group group;  // with the row's prompt
    size_t expected = 0;
    std::vector<Episode*> ready;
  };
  struct Episode {
    enum class State { kResetting, kDecoding, kStepping };
    State state = State::kResetting;
    std::shared_ptr<Start> start;
    std::vector<int32_t> own_prompt;              // as in run::Rollout
    std::shared_ptr<const rollout::Group> group;  // that the engine has; null: not begun
    chat_template::Chat chat;                     // so far
    rollout::Response response;                   // before the turn that the engine decodes
    int64_t id = 0;                               // in the pool
    int64_t turns = 0;
    reward::EpisodeOutcome outcome;
  };

  static Json row_of(const data::Prompt& prompt);
  void take(Episode& episode, const environment::EnvironmentAnswer& answer);
  void begin(Episode& episode, const environment::EnvironmentAnswer& answer);
  void open(Episode& episode, const environment::EnvironmentAnswer& answer) const;
  std::vector<int32_t> prompt_of(const environment::EnvironmentAnswer& answer,
                                 const chat_template::Chat& chat) const;
  void decode(Start& start);
  bool try_decode_own(const Start& start, std::span<Episode* const> episodes);
  void resume(const std::shared_ptr<const rollout::Group>& group,
              std::span<Episode* const> episodes);
  uint32_t engine_id(std::span<const int32_t> prompt, uint32_t row);
  void end_turn(Episode& episode, rollout::Response response);
  void observe(Episode& episode, const environment::EnvironmentAnswer& answer);
  static void append(Episode& episode, std::span<const int32_t> tokens);
  void finish(Episode& episode, rollout::FinishReason reason);
  static Key key_of(const rollout::Response& response) {
    return {response.prompt_id, response.sample};
  }

  const environment::EnvironmentOptions options_;
  const int64_t max_prompt_length_;
  rollout::Engine& engine_;
  const environment::TurnRenderer renderer_;
  environment::EnvironmentPool pool_;
  std::map<Key, Episode> episodes_;
  std::map<int64_t, Key> key_of_id_;
  std::map<uint32_t, uint32_t> row_of_;  // prompt ids of rows, by those of their own prompts
  std::vector<FinishedEpisode> finished_;
  int64_t waiting_ = 0;
};

}  // namespace tlt::rl
