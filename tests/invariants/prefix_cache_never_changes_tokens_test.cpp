// Invariant: tokens, logprobs and top logprobs are bit-identical with and without the prefix cache,
// whatever it has from earlier requests and turns, with and without speculation.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/eagle_drafter.h"
#include "drafter_training/hidden_collector.h"
#include "tests/support/every_model.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

using model::Family;
using rollout::Engine;
using rollout::EngineOptions;
using rollout::Group;
using rollout::SamplingOptions;
using rollout::Speculation;

class PrefixCacheNeverChangesTokens
    : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType>> {
 protected:
  int64_t vocabulary() const { return model_->config().vocabulary; }

  Group group(uint32_t id, std::vector<int32_t> tokens, int64_t samples = 2) const {
    SamplingOptions sampling;
    sampling.temperature = id % 4 == 3 ? 0.0 : 1.0;
    sampling.top_p = id % 4 == 2 ? 0.9 : 1.0;
    sampling.max_new_tokens = 20 + 3 * (id % 12);
    sampling.ignore_eos = true;
    return {.prompt_id = id,
            .tokens = std::move(tokens),
            .samples = samples,
            .sampling = std::make_shared<const SamplingOptions>(sampling),
            .seed = 5,
            .top_logprobs = id % 3 == 0 ? 2 : 0};
  }

  // Prompts with a common beginning of any length, around page boundaries.
  std::vector<Group> groups() const {
    const std::vector<int32_t> common = random_tokens(2, 99, 64, vocabulary());
    std::vector<Group> groups;
    for (const int64_t shared : {0, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64}) {
      const auto id = static_cast<uint32_t>(groups.size());
      std::vector<int32_t> tokens(common.begin(), common.begin() + shared);
      for (const int32_t token : random_tokens(3, id, 1 + 5 * (id % 4), vocabulary()))
        tokens.push_back(token);
      groups.push_back(group(id, std::move(tokens)));
    }
    return groups;
  }

  EngineOptions options(bool prefix_cache, int64_t pages = 300) const {
    EngineOptions options;
    options.max_running = 24;
    options.max_batch_tokens = 256;
    options.prefill_chunk = 24;
    options.kv_memory_bytes = pages * model_->kv_shape().page_bytes();
    options.prefix_cache = prefix_cache;
    return options;
  }

  // Two samples, whose turns end with one of many stop tokens.
  Group episode_group(uint32_t id) const {
    SamplingOptions sampling;
    sampling.max_new_tokens = 120;
    sampling.ignore_eos = true;
    for (int32_t token = 0; token < 8; ++token) sampling.stop_tokens.push_back(token);
    Group group = this->group(id, random_tokens(2, id, 3 + 13 * id, vocabulary()));
    group.sampling = std::make_shared<const SamplingOptions>(sampling);
    group.top_logprobs = 0;
    return group;
  }

  // Episodes of up to four turns, between which tokens are observed.
  Rollouts run_episodes(Engine& engine) const {
    constexpr int64_t kTurns = 4;
    Rollouts ended;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> turns;
    for (uint32_t id = 0; id < 5; ++id) engine.submit(episode_group(id));
    while (engine.step()) {
      engine.check_invariants();
      for (rollout::Response& response : engine.take_finished()) {
        const auto place = std::pair(response.prompt_id, response.sample);
        const uint32_t turn = ++turns[place];
        const std::vector<int32_t> observed =
            random_tokens(4 + turn, response.prompt_id, 1 + 7 * turn, vocabulary());
        const auto begin = static_cast<int32_t>(response.tokens.size());
        const int32_t end = begin + static_cast<int32_t>(observed.size());
        if (turn == kTurns || response.finish != rollout::FinishReason::kStop || end >= 120) {
          ended[place] = std::move(response);
          continue;
        }
        response.tokens.insert(response.tokens.end(), observed.begin(), observed.end());
        response.logprobs.resize(response.tokens.size());
        response.entropies.resize(response.tokens.size());
        response.observed.push_back({begin, end});
        const uint32_t id = response.prompt_id;
        std::vector<rollout::Response> responses;
        responses.push_back(std::move(response));
        engine.resume(episode_group(id), std::move(responses));
      }
    }
    engine.check_idle_invariants();
    return ended;
  }

  // All at once; `turns` times, so that the later ones find the earlier ones' pages.
  Rollouts run_turns(Engine& engine, int turns = 1) const {
    Rollouts rollouts;
    for (int turn = 0; turn < turns; ++turn) rollouts = run(engine, groups());
    return rollouts;
  }

  // `target_forwards` is what speculation reduces, and not part of the invariant.
  static std::string difference_with_tops(Rollouts a, const Rollouts& b) {
    for (auto& [place, response] : a) {
      const auto other = b.find(place);
      if (other == b.end()) continue;
      response.target_forwards = other->second.target_forwards;
      const auto& tops = response.top_logprobs;
      if (tops.size() != other->second.top_logprobs.size()) return "number of top logprobs";
      for (size_t i = 0; i < tops.size(); ++i)
        for (size_t j = 0; j < tops[i].size(); ++j)
          if (tops[i][j].token != other->second.top_logprobs[i][j].token ||
              std::memcmp(&tops[i][j].logprob, &other->second.top_logprobs[i][j].logprob,
                          sizeof(float)) != 0)
            return "top logprobs of prompt " + std::to_string(place.first);
    }
    return difference(a, b);
  }

  const std::unique_ptr<model::PolicyModel> model_ =
      make_tiny_model(tiny_config(std::get<0>(GetParam())), std::get<1>(GetParam()));
  const Rollouts plain_ = [this] {
    Engine engine(*model_, options(/*prefix_cache=*/false));
    return run_turns(engine);
  }();
};

TEST_P(PrefixCacheNeverChangesTokens, OfRequestsOneAfterTheOther) {
  Engine engine(*model_, options(/*prefix_cache=*/true));
  Rollouts got;
  for (const Group& group : groups()) got.merge(run(engine, {group}));
  EXPECT_EQ(difference_with_tops(plain_, got), "");
  EXPECT_EQ(engine.stats().prefix_cache.hits, 16 * (0 + 0 + 0 + 1 + 1 + 1 + 2 + 2 + 2 + 3 + 4 - 1))
      << "the first prompt that is long enough computes the page";
}

TEST_P(PrefixCacheNeverChangesTokens, OfRequestsTogetherAndAgain) {
  Engine engine(*model_, options(/*prefix_cache=*/true));
  for (int turn = 0; turn < 3; ++turn)
    EXPECT_EQ(difference_with_tops(plain_, run_turns(engine)), "") << turn;
  EXPECT_GT(engine.stats().prefix_cache.hits, 500);
}

// The pages of responses, which were computed row by row or by trees, in place of prompt chunks.
TEST_P(PrefixCacheNeverChangesTokens, OfConversations) {
  for (const bool speculates : {false, true}) {
    Speculation speculation(std::make_unique<OracleDrafter>(plain_, vocabulary(), 0.8, 1),
                            {6, 2, 12}, vocabulary());
    Engine cached(*model_, options(true), nullptr, nullptr, speculates ? &speculation : nullptr);
    Engine plain(*model_, options(false));
    for (uint32_t id = 0; id < 8; ++id) {
      std::vector<int32_t> tokens = groups()[id].tokens;
      for (int turn = 0; turn < 4; ++turn) {
        const Group turn_group = group(id, tokens, 1);
        const Rollouts want = run(plain, {turn_group}), got = run(cached, {turn_group});
        ASSERT_EQ(difference_with_tops(want, got), "") << id << ", turn " << turn;
        const rollout::Response& response = got.begin()->second;
        if (turn > 0) {
          EXPECT_GE(response.cached_tokens, std::ssize(tokens) - 3 - 2 * ops::kPageSlots);
        }
        tokens.insert(tokens.end(), response.tokens.begin(), response.tokens.end());
        for (const int32_t token : {7, 8, 9}) tokens.push_back(token);
      }
    }
    EXPECT_GT(cached.stats().prefix_cache.hits, 500);
    if (speculates) {
      EXPECT_GT(speculation.stats().accepted_tokens, 50);
    }
    EXPECT_FALSE(speculation.stats().failed);
  }
}

TEST_P(PrefixCacheNeverChangesTokens, WhenTheMemoryIsSmall) {
  int64_t preemptions = 0, hits = 0;
  for (const int64_t pages : {9, 10, 12, 15, 30}) {
    Engine engine(*model_, options(/*prefix_cache=*/true, pages));
    for (int turn = 0; turn < 2; ++turn)
      EXPECT_EQ(difference_with_tops(plain_, run_turns(engine)), "") << pages << " pages";
    EXPECT_LE(engine.stats().cached_pages, pages);
    preemptions += engine.stats().preemptions;
    hits += engine.stats().prefix_cache.hits;
  }
  EXPECT_GT(preemptions, 3);
  EXPECT_GT(hits, 100);
}

// Draft trees get pages that only the cache has: in the long run it has all. The trees are deep
// enough to need a page of their own most times.
TEST_P(PrefixCacheNeverChangesTokens, WithSpeculationInAFullCache) {
  const auto accepted_with = [&](bool prefix_cache) {
    Speculation speculation(std::make_unique<OracleDrafter>(plain_, vocabulary(), 0.9, 1),
                            {12, 1, 13}, vocabulary());
    EngineOptions small = options(prefix_cache, /*pages=*/40);
    small.max_running = 4;
    Engine engine(*model_, small, nullptr, nullptr, &speculation);
    for (int turn = 0; turn < 3; ++turn)
      EXPECT_EQ(difference_with_tops(plain_, run_turns(engine)), "");
    EXPECT_FALSE(speculation.stats().failed);
    if (prefix_cache) {
      EXPECT_GT(engine.stats().cached_pages, 30);
    }
    return speculation.stats().accepted_tokens;
  };
  EXPECT_GT(accepted_with(true), 0.9 * static_cast<double>(accepted_with(false)));
}

// A drafter that reads the states of the prompt gets those that are computed.
TEST_P(PrefixCacheNeverChangesTokens, WithADraftModel) {
  drafter::EagleNetwork network(*model_, drafter::EagleNetwork::config_for(model_->config()));
  network.initialize(3);
  Speculation speculation(
      std::make_unique<drafter::EagleDrafter>(network, drafter::EagleDrafterOptions{}), {3, 2, 6},
      vocabulary());
  Engine engine(*model_, options(/*prefix_cache=*/true), nullptr, nullptr, &speculation);
  for (int turn = 0; turn < 3; ++turn)
    EXPECT_EQ(difference_with_tops(plain_, run_turns(engine)), "") << turn;
  EXPECT_FALSE(speculation.stats().failed);
  EXPECT_GT(speculation.stats().trees, 50);
  EXPECT_GT(engine.stats().prefix_cache.hits, 500);
}

TEST_P(PrefixCacheNeverChangesTokens, OfTheTurnsOfEpisodes) {
  Engine uncached(*model_, options(/*prefix_cache=*/false));
  const Rollouts want = run_episodes(uncached);
  size_t observed = 0;
  for (const auto& [place, response] : want) observed += response.observed.size();
  EXPECT_GT(observed, 15u);
  std::map<int64_t, int64_t> hits;  // by pages, without speculation
  for (const int64_t pages : {300, 24, 14})
    for (const bool speculates : {false, true}) {
      Speculation speculation(std::make_unique<OracleDrafter>(want, vocabulary(), 0.8, 1),
                              {6, 2, 12}, vocabulary());
      EngineOptions small = options(/*prefix_cache=*/true, pages);
      small.caches_prompts = pages != 24;
      Engine engine(*model_, small, nullptr, nullptr, speculates ? &speculation : nullptr);
      for (int again = 0; again < 2; ++again)
        EXPECT_EQ(difference_with_tops(want, run_episodes(engine)), "")
            << pages << " pages, speculation " << speculates;
      EXPECT_FALSE(speculation.stats().failed);
      EXPECT_GT(engine.stats().prefix_cache.hits, 0);
      if (!speculates) hits[pages] = engine.stats().prefix_cache.hits;
      if (pages == 300 && !speculates) {
        EXPECT_LT(2 * engine.stats().rows, 3 * uncached.stats().rows)
            << "twice as many episodes as without a cache";
      }
    }
  EXPECT_GT(hits[300], 1000);
  EXPECT_LT(hits[14], hits[300]);
}

// What a draft model is trained on: each state once, though a turn does not compute all of them.
TEST_P(PrefixCacheNeverChangesTokens, StatesOfTurnsAreCollected) {
  drafter_training::HiddenCollector all;
  Engine uncached(*model_, options(/*prefix_cache=*/false), nullptr, &all);
  const Rollouts want = run_episodes(uncached);
  int compared = 0;
  for (const int64_t pages : {300, 14}) {
    drafter_training::HiddenCollector collector;
    EngineOptions small = options(/*prefix_cache=*/true, pages);
    small.caches_prompts = false;
    Engine engine(*model_, small, nullptr, &collector);
    EXPECT_EQ(difference_with_tops(want, run_episodes(engine)), "");
    EXPECT_GT(engine.stats().prefix_cache.hits, 0);
    for (const auto& [place, response] : want) {
      const std::vector<int32_t> prompt = episode_group(place.first).tokens;
      const auto got = collector.take(prompt, response, 0);
      ASSERT_TRUE(got.has_value()) << place.first << " " << place.second;
      EXPECT_EQ(std::ssize(got->tokens), std::ssize(prompt) + std::ssize(response.tokens) - 1);
      // Without the cache a turn is offered from its prompt on, and not collected if that of the
      // other sample is offered at the same time.
      const auto whole = all.take(prompt, response, 0);
      if (!whole || whole->tokens.size() < got->tokens.size()) continue;
      ++compared;
      EXPECT_TRUE(at::equal(got->states(), whole->states()));
    }
  }
  EXPECT_GT(compared, 3);
  EngineOptions wrong = options(/*prefix_cache=*/true);
  drafter_training::HiddenCollector collector;
  EXPECT_THROW(Engine(*model_, wrong, nullptr, &collector), Error);
}

TEST_P(PrefixCacheNeverChangesTokens, AfterNewWeights) {
  const auto changed = make_tiny_model(tiny_config(std::get<0>(GetParam())),
                                       std::get<1>(GetParam()), test_device(), /*seed=*/12);
  const auto with_update = [&](bool tells_engine) {
    const auto model =
        make_tiny_model(tiny_config(std::get<0>(GetParam())), std::get<1>(GetParam()));
    Engine engine(*model, options(/*prefix_cache=*/true));
    run_turns(engine);
    for (size_t i = 0; i < model->parameters().size(); ++i)
      model->parameters()[i].write(model->device(),
                                   changed->parameters()[i].read(changed->device()));
    if (tells_engine) engine.new_weights();
    return run_turns(engine);
  };
  Engine fresh(*changed, options(/*prefix_cache=*/false));
  const Rollouts want = run_turns(fresh);
  EXPECT_EQ(difference_with_tops(want, with_update(true)), "");
  EXPECT_NE(difference_with_tops(want, with_update(false)), "") << "a planted fault";
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixCacheNeverChangesTokens, every_model(), model_name);

}  // namespace
}  // namespace tlt::tests
