// SPDX-License-Identifier: Apache-2.0
#include "run/rollout.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::run {
namespace {

std::vector<Rollout> random_rollouts(uint32_t name) {
  RandomStream random(5, {.prompt = name});
  std::vector<Rollout> rollouts(random.below(6));
  for (Rollout& r : rollouts) {
    r.prompt = static_cast<uint32_t>(random.below(100));
    r.response.prompt_id = 7;
    r.response.sample = static_cast<uint32_t>(random.below(8));
    r.response.tokens.resize(random.below(50));
    for (int32_t& token : r.response.tokens) token = static_cast<int32_t>(random.below(1000));
    r.response.logprobs.assign(r.response.tokens.size(), static_cast<float>(-random.uniform()));
    r.response.entropies.assign(r.response.tokens.size(), static_cast<float>(random.uniform()));
    r.response.finish = rollout::FinishReason::kStop;
    r.finish_seconds = random.uniform();
    r.is_scored = random.below(2) == 0;
    r.score = random.normal();
    if (r.response.tokens.size() > 9) r.response.observed = {{0, 2}, {5, 9}};
    if (random.below(2) == 0)
      r.episode = reward::EpisodeOutcome{.reward = 0.5, .extras = {{"turns", 2}}, .fault = "died"};
    if (random.below(2) == 0) r.fault = "late";
    if (random.below(2) == 0) r.answer = "4\xc3";
    if (random.below(2) == 0) r.extras = {{"format", 0.5}, {"", -1}};
  }
  return rollouts;
}

TEST(RolloutTest, PackThenUnpackIsTheIdentity) {
  for (uint32_t name = 0; name < 50; ++name) {
    const auto sent = random_rollouts(name), got = unpack(pack(sent));
    ASSERT_EQ(got.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(got[i].prompt, sent[i].prompt);
      EXPECT_EQ(got[i].response.sample, sent[i].response.sample);
      EXPECT_EQ(got[i].response.tokens, sent[i].response.tokens);
      EXPECT_EQ(got[i].response.logprobs, sent[i].response.logprobs);
      EXPECT_EQ(got[i].response.entropies, sent[i].response.entropies);
      EXPECT_EQ(got[i].response.observed, sent[i].response.observed);
      ASSERT_EQ(got[i].episode.has_value(), sent[i].episode.has_value());
      if (got[i].episode) {
        EXPECT_EQ(got[i].episode->reward, sent[i].episode->reward);
        EXPECT_EQ(got[i].episode->extras, sent[i].episode->extras);
        EXPECT_EQ(got[i].episode->fault, sent[i].episode->fault);
      }
      EXPECT_EQ(got[i].response.finish, sent[i].response.finish);
      EXPECT_EQ(got[i].finish_seconds, sent[i].finish_seconds);
      EXPECT_EQ(got[i].is_scored, sent[i].is_scored);
      EXPECT_EQ(got[i].score, sent[i].score);
      EXPECT_EQ(got[i].fault, sent[i].fault);
      EXPECT_EQ(got[i].extras, sent[i].extras);
      EXPECT_EQ(got[i].answer, sent[i].answer);
    }
  }
}

TEST(RolloutTest, TruncatedBytesAreAnError) {
  std::string bytes;
  for (uint32_t name = 0; bytes.empty(); ++name) bytes = pack(random_rollouts(name));
  int whole = 0;
  for (size_t length = 1; length < bytes.size(); ++length) {
    try {
      unpack(std::string_view(bytes).substr(0, length));
      ++whole;  // the end of one of several rollouts
    } catch (const Error&) {
    }
  }
  EXPECT_LT(whole, 6);
}

}  // namespace
}  // namespace tlt::run
