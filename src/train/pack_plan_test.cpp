// SPDX-License-Identifier: Apache-2.0
#include "train/pack_plan.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

// Samples of random lengths, three to a group; some have no gradient.
struct Batch {
  explicit Batch(uint64_t seed) {
    RandomStream random(seed, {});
    for (int64_t i = 0; i < 30; ++i) {
      TrainSample& sample = samples.emplace_back();
      sample.group = 100 + i / 3;
      sample.response_begin = static_cast<int32_t>(1 + sample.group % 70);
      sample.tokens.assign(static_cast<size_t>(sample.response_begin) + 1 + random.below(900),
                           static_cast<int32_t>(sample.group));
      learns.push_back(random.below(4) != 0);
    }
  }
  std::vector<TrainSample> samples;
  std::vector<bool> learns;
};

std::vector<std::vector<int64_t>> samples_of(const PlannedPack& pack, int64_t offset) {
  std::vector<std::vector<int64_t>> all;
  for (const PrefixGroup& group : pack.members) {
    all.push_back(group.samples);
    for (int64_t& sample : all.back()) sample += offset;
  }
  return all;
}

TEST(PackPlanTest, PacksOfAGroupDoNotDependOnTheOthers) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Batch batch(seed);
    const PackPlan whole(batch.samples, batch.learns, 2000);
    size_t next = 0;
    for (size_t first = 0; first < batch.samples.size(); first += 3) {
      const std::vector<bool> learns(batch.learns.begin() + static_cast<std::ptrdiff_t>(first),
                                     batch.learns.begin() + static_cast<std::ptrdiff_t>(first) + 3);
      const PackPlan alone(std::span(batch.samples).subspan(first, 3), learns, 2000);
      for (const PlannedPack& pack : alone.packs()) {
        ASSERT_LT(next, whole.packs().size());
        const PlannedPack& same = whole.packs()[next++];
        EXPECT_EQ(same.key(), pack.key());
        EXPECT_EQ(same.learns, pack.learns);
        EXPECT_EQ(samples_of(same, 0), samples_of(pack, static_cast<int64_t>(first)));
      }
    }
    EXPECT_EQ(next, whole.packs().size());
  }
}

TEST(PackPlanTest, EachSampleIsInOnePack) {
  const Batch batch(7);
  const PackPlan plan(batch.samples, batch.learns, 1000);
  std::vector<int> seen(batch.samples.size());
  for (const PlannedPack& pack : plan.packs())
    for (const PrefixGroup& group : pack.members)
      for (const int64_t i : group.samples) {
        ++seen[static_cast<size_t>(i)];
        EXPECT_EQ(batch.samples[static_cast<size_t>(i)].group, pack.group);
        EXPECT_EQ(batch.learns[static_cast<size_t>(i)], pack.learns);
      }
  EXPECT_EQ(seen, std::vector<int>(batch.samples.size(), 1));
}

// Of the packs without a gradient those of which the rollouts have measured every sample.
TEST(PackPlanTest, WhatTheRolloutsMeasuredCostsNothing) {
  Batch batch(3);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    if (batch.samples[i].group != 104) batch.samples[i].rollout_entropies = {1};
  int64_t known = 0;
  for (const bool is_on_policy : {false, true}) {
    const PackPlan plan(batch.samples, batch.learns, 2000, is_on_policy);
    for (const PlannedPack& pack : plan.packs()) {
      EXPECT_EQ(pack.is_known, is_on_policy && !pack.learns && pack.group != 104);
      EXPECT_EQ(pack.cost == 0, pack.is_known);
      known += pack.is_known;
    }
  }
  EXPECT_GT(known, 3);
}

TEST(PackPlanTest, AGroupInTwoPlacesIsAnError) {
  Batch batch(1);
  std::swap(batch.samples.front(), batch.samples.back());
  EXPECT_THROW(PackPlan(batch.samples, batch.learns, 1000), Error);
}

TEST(PackPlanTest, NoSampleHasNoPack) { EXPECT_TRUE(PackPlan({}, {}, 1000).packs().empty()); }

}  // namespace
}  // namespace tlt::train
