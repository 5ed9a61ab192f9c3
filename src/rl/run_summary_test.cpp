// SPDX-License-Identifier: Apache-2.0
#include "rl/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/test_folder.h"
#include "spec/suffix_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::rl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RunSummaryTest, SaysHowTheRunMoved) {
  const TestFolder folder;
  const std::string file = folder / "metrics.jsonl";
  std::ofstream(file)
      << R"({"step":0,"val-core/a/reward/mean@1":0.4375})"
         "\n"
      << R"({"step":1,"critic/score/mean":0.5,"response_length/p50":74,)"
         R"("drafter/acceptance_length/before":1.02,"drafter/acceptance_length/after":1.5,)"
         R"("drafter/acceptance_length/frozen":1.02,)"
         R"("drafter/idle_seconds":2,"drafter/used_seconds":1})"
         "\n"
      << R"({"step":2,"critic/score/mean":0.75,"response_length/p50":170,)"
         R"("drafter/acceptance_length/before":1.5,"drafter/acceptance_length/after":4.8,)"
         R"("drafter/acceptance_length/frozen":1.01,)"
         R"("drafter/idle_seconds":6,"drafter/used_seconds":5,)"
         R"("val-core/a/reward/mean@1":0.6641})"
         "\n";
  EXPECT_THAT(
      summarize(
          file,
          Replay{.responses = 8, .equal = 8, .speculative_seconds = 0.5, .plain_seconds = 0.75}),
      ElementsAre(
          "  held-out score        0.438 -> 0.664", "  training score        0.500 -> 0.750",
          "  median length         74 -> 170 tokens",
          "  the same tokens       all 8 responses decoded again without guesses are equal, "
          "bit for bit",
          "  their time            0.50 s with guesses, 0.75 s without: 1.50 times as fast",
          "  drafter               1.02 -> 4.80 tokens a forward pass, on held-out responses",
          "  frozen drafter        1.02 -> 1.01 tokens a forward pass, had it stayed as it was",
          "  idle time             8.0 s of waiting workers, 6.0 s of them used to train the "
          "drafter (75 %)"));
}

TEST(RunSummaryTest, WhatIsNotKnownIsLeftOut) {
  const TestFolder folder;
  std::ofstream(folder / "metrics.jsonl") << R"({"step":1})"
                                             "\n";
  EXPECT_THAT(summarize(folder / "metrics.jsonl", std::nullopt), IsEmpty());
}

TEST(RunSummaryTest, ADifferenceIsSaidLoudly) {
  const TestFolder folder;
  std::ofstream(folder / "metrics.jsonl") << R"({"step":1})"
                                             "\n";
  EXPECT_THAT(summarize(folder / "metrics.jsonl", Replay{8, 7, 1, 1})[0],
              HasSubstr("1 of 8 responses decoded again without guesses DIFFER"));
}

TEST(RunSummaryTest, AReplayComparesEveryResponse) {
  const auto config = tests::tiny_config(model::Family::kQwen2);
  const auto model = tests::make_tiny_model(config, at::kFloat),
             other = tests::make_tiny_model(config, at::kFloat, Device::cpu(1), /*seed=*/12);
  auto sampling = std::make_shared<rollout::SamplingOptions>();
  sampling->max_new_tokens = 40;
  std::vector<rollout::Group> groups;
  for (uint32_t i = 0; i < 3; ++i)
    groups.push_back({.prompt_id = i,
                      .tokens = tests::random_tokens(1, i, 9, config.vocabulary),
                      .samples = 2,
                      .sampling = sampling});
  rollout::Speculation speculation(std::make_unique<spec::SuffixDrafter>(spec::SuffixOptions{}),
                                   spec::parse_strategy("4_2_8"), config.vocabulary);
  rollout::EngineOptions options;
  rollout::Engine engine(*model, options, nullptr, nullptr, &speculation);
  const Replay same = replay(engine, *model, options, nullptr, groups);
  EXPECT_EQ(same.responses, 12);
  EXPECT_EQ(same.equal, 12);
  EXPECT_GT(speculation.stats().trees, 0);
  // Another model's responses.
  EXPECT_LT(replay(engine, *other, options, nullptr, groups).equal, 12);
}

}  // namespace
}  // namespace tlt::rl
