// SPDX-License-Identifier: Apache-2.0
#include "rl/score_alarm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "base/random.h"
#include "tests/support/program.h"

namespace tlt::rl {
namespace {

using Curve = std::function<double(int)>;

double learning(int i) { return 0.3 + 0.4 * (1 - std::exp(-i / 20.0)); }
double flat(int) { return 0.5; }

// The number of validations after which the alarm triggers; 0: never. `correlation`: of the noise
// of consecutive points; `bad_share`: share of validations with five times the noise.
int triggers_after(const Curve& held_out, const Curve& training, int validations, uint64_t seed,
                   double noise = 0.03, double correlation = 0, double bad_share = 0) {
  RandomStream random(seed, {});
  ScoreAlarm alarm;
  double held_out_noise = 0, training_noise = 0;
  for (int i = 0; i < validations; ++i) {
    const double fresh = noise * std::sqrt(1 - correlation * correlation);
    held_out_noise = correlation * held_out_noise + fresh * random.normal();
    training_noise = correlation * training_noise + fresh * random.normal();
    alarm.add_training(training(i) + training_noise - 0.01);
    alarm.add_training(training(i) + training_noise + 0.01);
    const double bad = bad_share > 0 && random.uniform() < bad_share ? 5 : 1;
    if (alarm.add_validation(held_out(i) + bad * held_out_noise, noise)) return i + 1;
  }
  return 0;
}

int count_triggers(const Curve& held_out, const Curve& training, int runs, double correlation = 0,
                   double bad_share = 0) {
  int triggers = 0;
  for (int seed = 0; seed < runs; ++seed)
    triggers += triggers_after(held_out, training, 100, static_cast<uint64_t>(seed), 0.03,
                               correlation, bad_share) > 0;
  return triggers;
}

TEST(ScoreAlarmTest, TriggersAtTheFirstSignificantPoint) {
  // Held-out falls and training rises by the same d per point, without noise. Points 3 apart differ
  // by 3 d, which counts as noise: 5 errors are 5 * 0.947 * 3 d / 0.9539 = 14.9 d. The first and
  // the last block differ by more than that from the 18th point on (15 d).
  const auto fall = [](int i) { return 0.9 - 0.01 * i; };
  const auto rise = [](int i) { return 0.1 + 0.01 * i; };
  EXPECT_EQ(triggers_after(fall, rise, 100, 0, /*noise=*/0), 18);
  EXPECT_EQ(triggers_after(rise, rise, 100, 0, 0), 0);
  EXPECT_EQ(triggers_after(fall, fall, 100, 0, 0), 0) << "both fall: no divergence";
  EXPECT_EQ(triggers_after(fall, flat, 100, 0, 0), 0);
  EXPECT_EQ(triggers_after(rise, fall, 100, 0, 0), 0);
}

TEST(ScoreAlarmTest, DivergenceHasTheScoresOfBothBlocks) {
  ScoreAlarm alarm;
  std::optional<Divergence> divergence;
  // Before the fall there is some noise: alternately 0.6 and 0.62.
  for (int i = 0; i < 20 && !divergence; ++i) {
    alarm.add_training(i < 9 ? 0.4 + 0.01 * (i % 2) : 0.8);
    divergence = alarm.add_validation(i < 9 ? (i % 2 == 0 ? 0.6 : 0.62) : 0.2, 0.01);
  }
  ASSERT_TRUE(divergence);
  EXPECT_EQ(alarm.points(), 11) << "second point of the collapse";
  EXPECT_EQ(divergence->held_out_before, 0.62);
  EXPECT_NEAR(divergence->training_before, 0.41, 1e-12);
  EXPECT_EQ(divergence->held_out_now, 0.2);
  EXPECT_NEAR(divergence->training_now, 0.8, 1e-12);
}

TEST(ScoreAlarmTest, IgnoresAFallBelowTheStandardError) {
  ScoreAlarm alarm;
  for (int i = 0; i < 40; ++i) {
    alarm.add_training(learning(i));
    // One correct answer of 256 fewer.
    EXPECT_FALSE(alarm.add_validation(i < 20 ? 0.5 : 0.5 - 1.0 / 256, 0.03)) << i;
  }
}

TEST(ScoreAlarmTest, NoiseAloneRarelyTriggers) {
  EXPECT_LE(count_triggers(flat, learning, 300), 2);
  EXPECT_EQ(count_triggers(flat, flat, 100), 0);
  EXPECT_EQ(count_triggers(learning, learning, 100), 0);
  // With correlated noise the score does fall for a while.
  EXPECT_LT(count_triggers(flat, learning, 100, /*correlation=*/0.5), 20);
  EXPECT_LT(count_triggers(flat, learning, 100, 0, /*bad_share=*/0.05), 7);
}

TEST(ScoreAlarmTest, DetectsAFallInNoise) {
  const auto late_fall = [](int i) { return 0.5 - std::max(0, i - 40) * 0.01; };
  const auto rise = [](int i) { return 0.3 + 0.004 * i; };
  double delay = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int after = triggers_after(late_fall, rise, 100, seed);
    ASSERT_GT(after, 40) << "seed " << seed;
    delay += (after - 41) / 60.0;
  }
  EXPECT_GT(delay, 10);
  EXPECT_LT(delay, 18);
}

TEST(ScoreAlarmTest, IgnoresAValidationBeforeTheFirstStep) {
  ScoreAlarm alarm;
  EXPECT_FALSE(alarm.add_validation(0.5, 0.03));
  EXPECT_EQ(alarm.points(), 0);
}

TEST(ScoreAlarmTest, ReplayRestoresTheStateOfAResumedRun) {
  const tests::Scratch scratch;
  const std::string file = (scratch / "metrics.jsonl").string();
  ScoreAlarm whole, resumed;
  {
    std::ofstream out(file);
    out << R"({"step":0,"val-core/x/reward/mean@1":0.9})"
        << "\n";
    for (int i = 0; i < 17; ++i) {
      Metrics step;
      step.set("critic/score/mean", i % 2);
      step.set("critic/score_generated/mean", 0.1 + 0.01 * i);
      step.set("val-core/x/reward/mean@1", 0.8 - 0.01 * i);
      step.set("val-core/y/reward/mean@1", 1.0 - 0.01 * i);
      step.set("val-core/y/reward/best@8/mean", 1);  // not the held-out score
      out << step.to_json(i + 1) << "\n";
      EXPECT_FALSE(tell(whole, step));
    }
  }
  replay(resumed, file);
  EXPECT_EQ(resumed.points(), 17);
  for (ScoreAlarm* alarm : {&whole, &resumed}) {
    alarm->add_training(0.27);
    const auto divergence = alarm->add_validation(0.73, 0);
    ASSERT_TRUE(divergence);
    EXPECT_NEAR(divergence->held_out_now, 0.74, 1e-12);
    EXPECT_NEAR(divergence->training_now, 0.26, 1e-12);
  }
  ScoreAlarm none;
  replay(none, (scratch / "no such file").string());
  EXPECT_EQ(none.points(), 0);
}

}  // namespace
}  // namespace tlt::rl
