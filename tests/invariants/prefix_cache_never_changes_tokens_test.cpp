// Invariant: tokens, logprobs and top logprobs are bit-identical with and without the prefix cache,
// whatever it has from earlier requests, with and without speculation.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/eagle_drafter.h"
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
