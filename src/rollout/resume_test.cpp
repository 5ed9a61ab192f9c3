// Engine::resume: responses that migrate between engines end as if they had stayed, and the
// drafters of every engine get all their tokens and states.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/eagle_drafter.h"
#include "drafter/suffix/suffix_drafter.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

using tests::random_tokens;
using tests::Rollouts;

constexpr int64_t kVocabulary = 6;  // small, so that sequences repeat and drafts are accepted

// The tokens and states that a drafter got of responses that ended with it.
struct Received {
  std::vector<int32_t> tokens;
  std::vector<at::Tensor> states;  // each token was sampled from; without the last step's
};

// Proposes repetitions of the last token. Its inputs must come in order and without gaps.
class RecordingDrafter final : public tests::PlainDrafter {
 public:
  explicit RecordingDrafter(std::map<drafter::SequenceId, Received>& received)
      : received_(received) {}

  std::string_view kind() const override { return "suffix"; }
  bool reads_states() const override { return true; }
  void read_states(drafter::SequenceId id, int64_t first, const at::Tensor& hidden,
                   std::span<const int32_t> rows) override {
    EXPECT_EQ(first, std::ssize(running_[id].states));
    for (const int32_t row : rows) running_[id].states.push_back(hidden[row].clone());
  }
  void end(drafter::SequenceId id, std::span<const int32_t> response) override {
    received_[id] = std::move(running_[id]);
    received_[id].tokens.assign(response.begin(), response.end());
    running_.erase(id);
  }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      EXPECT_EQ(running_[request.id].states.size(), request.response.size());
      int32_t node = drafter::DraftTree::kRoot;
      for (int64_t i = 0; i < std::min<int64_t>(request.strategy.depth, 2); ++i)
        node = request.tree->add(node, request.response.back(), 0.5f);
    }
  }

 private:
  std::map<drafter::SequenceId, Received>& received_;
  std::map<drafter::SequenceId, Received> running_;
};

// Keeps the model's state at each position of the prompts and samples.
class KeepingObserver final : public HiddenStateObserver {
 public:
  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i)
      states_[{prompt_id, sample}][position + static_cast<int32_t>(i)] =
          hidden.states[hidden.first + static_cast<int64_t>(i)].clone();
  }
  // The state that token i of a response was sampled from.
  const at::Tensor& state(drafter::SequenceId id, int32_t prompt_tokens, int32_t i) const {
    const uint32_t sample = i == 0 ? kPrompt : id.sample;
    return states_.at({id.prompt_id, sample}).at(prompt_tokens - 1 + i);
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, std::map<int32_t, at::Tensor>> states_;
};

// Token i is the i-th letter.
class Letters final : public StopString {
 public:
  std::unique_ptr<TextStream> open() const override {
    struct Stream final : TextStream {
      std::string_view push(int32_t token) override {
        letter = static_cast<char>('a' + token);
        return {&letter, 1};
      }
      char letter = 0;
    };
    return std::make_unique<Stream>();
  }
};

class ResumeTest : public ::testing::Test {
 protected:
  static model::ModelConfig config() {
    model::ModelConfig config = tests::tiny_config(model::Family::kQwen3);
    config.vocabulary = kVocabulary;
    config.eos_tokens = {1};
    return config;
  }

  std::vector<Group> groups() const {
    std::vector<Group> groups;
    for (const int64_t length : {1, 7, 15, 16, 17, 33, 48, 61}) {
      const auto id = static_cast<uint32_t>(groups.size());
      SamplingOptions sampling;
      sampling.temperature = id % 4 == 3 ? 0.0 : 1.0;
      sampling.top_p = id % 4 == 2 ? 0.9 : 1.0;
      sampling.max_new_tokens = 40 + 4 * id;
      sampling.ignore_eos = id % 2 == 0;
      if (id % 3 == 0) sampling.stop = {"cdc", "aeea"};
      groups.push_back({.prompt_id = id,
                        .tokens = random_tokens(2, id, length, kVocabulary),
                        .samples = 3,
                        .sampling = std::make_shared<const SamplingOptions>(sampling),
                        .seed = 5});
    }
    return groups;
  }

  EngineOptions options(int64_t pages) const {
    EngineOptions options;
    options.max_running = 9;
    options.max_batch_tokens = 200;
    options.prefill_chunk = 11;
    options.kv_memory_bytes = pages * model_->kv_shape().page_bytes();
    return options;
  }

  // Runs the groups on all engines; occasionally one engine migrates all its responses to another.
  // Adds the migrated responses that had tokens to `migrations`.
  Rollouts run_migrating(std::span<const std::unique_ptr<Engine>> engines, uint64_t seed,
                         int64_t& migrations) const {
    RandomStream random(seed, {});
    const std::vector<Group> all = groups();
    for (const Group& group : all) engines[random.below(engines.size())]->submit(group);
    Rollouts rollouts;
    for (bool is_busy = true; is_busy;) {
      is_busy = false;
      for (const auto& engine : engines) {
        is_busy = engine->step() || is_busy;
        engine->check_invariants();
        tests::keep(engine->take_finished(), rollouts);
      }
      if (random.below(12) != 0) continue;
      const size_t from = random.below(engines.size());
      migrate(*engines[from], *engines[(from + 1) % engines.size()], all, migrations);
      is_busy = true;
    }
    for (const auto& engine : engines) engine->check_idle_invariants();
    return rollouts;
  }

  static void migrate(Engine& from, Engine& to, const std::vector<Group>& all,
                      int64_t& migrations) {
    from.cancel_all();
    std::map<uint32_t, std::vector<Response>> migrated;
    for (Response& response : from.take_finished()) {
      EXPECT_EQ(response.finish, FinishReason::kCancelled);
      migrations += response.tokens.empty() ? 0 : 1;
      migrated[response.prompt_id].push_back(std::move(response));
    }
    for (auto& [prompt, responses] : migrated) to.resume(all[prompt], std::move(responses));
  }

  // Speculation changes target_forwards only.
  static std::string difference_ignoring_forwards(Rollouts a, const Rollouts& b) {
    for (auto& [key, response] : a)
      if (const auto other = b.find(key); other != b.end())
        response.target_forwards = other->second.target_forwards;
    return tests::difference(a, b);
  }

  const Letters letters_;
  const std::unique_ptr<model::PolicyModel> model_ = tests::make_tiny_model(config(), at::kFloat);
  const Rollouts plain_ = [this] {
    Engine engine(*model_, options(300), &letters_);
    return tests::run(engine, groups());
  }();
};

TEST_F(ResumeTest, MigratedResponsesEndAsUnmigratedOnes) {
  for (const int64_t pages : {300, 12})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::vector<std::unique_ptr<Engine>> engines;
      for (int i = 0; i < 3; ++i)
        engines.push_back(std::make_unique<Engine>(*model_, options(pages), &letters_));
      int64_t migrations = 0, preemptions = 0;
      const Rollouts migrated = run_migrating(engines, seed, migrations);
      EXPECT_EQ(tests::difference(plain_, migrated), "") << pages << " pages, seed " << seed;
      EXPECT_GT(migrations, 10);
      for (const auto& engine : engines) preemptions += engine->stats().preemptions;
      EXPECT_EQ(preemptions > 0, pages == 12);
    }
}

TEST_F(ResumeTest, DraftersGetTheWholeResponseAndItsStates) {
  std::map<drafter::SequenceId, Received> want;
  {
    KeepingObserver observer;
    Speculation speculation(std::make_unique<RecordingDrafter>(want), {4, 2, 6}, kVocabulary);
    Engine engine(*model_, options(300), &letters_, &observer, &speculation);
    EXPECT_EQ(difference_ignoring_forwards(plain_, tests::run(engine, groups())), "");
    EXPECT_FALSE(speculation.stats().failed);
    EXPECT_GT(speculation.stats().accepted_tokens, 50);
    for (const Group& group : groups())
      for (uint32_t sample = 0; sample < 3; ++sample) {
        const drafter::SequenceId id{group.prompt_id, sample};
        const std::vector<at::Tensor>& states = want[id].states;
        for (int32_t i = 0; i < std::ssize(states); ++i)
          EXPECT_TRUE(at::equal(states[static_cast<size_t>(i)],
                                observer.state(id, static_cast<int32_t>(group.tokens.size()), i)))
              << group.prompt_id << " " << sample << ", token " << i;
      }
  }
  for (const int64_t pages : {300, 12}) {
    std::map<drafter::SequenceId, Received> got;  // of the engine that a response ended in
    std::vector<std::unique_ptr<Speculation>> speculations;
    std::vector<std::unique_ptr<Engine>> engines;
    for (int i = 0; i < 3; ++i) {
      speculations.push_back(std::make_unique<Speculation>(
          std::make_unique<RecordingDrafter>(got), drafter::Strategy{4, 2, 6}, kVocabulary));
      engines.push_back(std::make_unique<Engine>(*model_, options(pages), &letters_, nullptr,
                                                 speculations.back().get()));
    }
    int64_t migrations = 0;
    EXPECT_EQ(difference_ignoring_forwards(plain_, run_migrating(engines, 1, migrations)), "");
    EXPECT_GT(migrations, 10);
    for (const auto& speculation : speculations) EXPECT_FALSE(speculation->stats().failed);
    for (const auto& [key, response] : plain_) {
      const Received &mine = got[{key.first, key.second}], &its = want[{key.first, key.second}];
      ASSERT_EQ(its.tokens, response.tokens);
      EXPECT_EQ(mine.tokens, its.tokens);
      const size_t states = std::min(mine.states.size(), its.states.size());
      EXPECT_GE(states + 4, its.tokens.size()) << key.first << " " << key.second;
      for (size_t i = 0; i < states; ++i)
        EXPECT_TRUE(at::equal(mine.states[i], its.states[i]))
            << key.first << " " << key.second << ", token " << i;
    }
  }
}

TEST_F(ResumeTest, DraftTokensAreAcceptedAfterMigration) {
  drafter::EagleNetwork network(*model_, drafter::EagleNetwork::config_for(model_->config()));
  network.initialize(3);
  for (const bool with_eagle : {true, false}) {
    std::vector<std::unique_ptr<Speculation>> speculations;
    std::vector<std::unique_ptr<Engine>> engines;
    for (int i = 0; i < 3; ++i) {
      std::unique_ptr<drafter::Drafter> drafter;
      if (with_eagle)
        drafter = std::make_unique<drafter::EagleDrafter>(
            network, drafter::EagleDrafterOptions{
                         .window = 30, .kv_memory_bytes = 200 * network.kv_shape().page_bytes()});
      else
        drafter = std::make_unique<drafter::SuffixDrafter>(drafter::SuffixOptions{});
      speculations.push_back(std::make_unique<Speculation>(
          std::move(drafter), drafter::Strategy{4, 2, 6}, kVocabulary));
      engines.push_back(std::make_unique<Engine>(*model_, options(40), &letters_, nullptr,
                                                 speculations.back().get()));
    }
    int64_t migrations = 0;
    for (uint64_t seed = 0; seed < 3; ++seed)  // later ones reuse the drafters' state of the first
      EXPECT_EQ(difference_ignoring_forwards(plain_, run_migrating(engines, seed, migrations)), "");
    EXPECT_GT(migrations, 10);
    for (const auto& speculation : speculations) {
      EXPECT_FALSE(speculation->stats().failed) << with_eagle;
      EXPECT_GT(speculation->stats().accepted_tokens, 5) << with_eagle;
    }
  }
}

}  // namespace
}  // namespace tlt::rollout
