// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::train {
namespace {

OptimOptions options(const std::string& type, int64_t warmup, double min_ratio = 0) {
  OptimOptions o;
  o.lr = 8;
  o.lr_scheduler_type = type;
  o.lr_warmup_steps = warmup;
  o.min_lr_ratio = min_ratio;
  return o;
}

TEST(ScheduleTest, WarmUpRisesInEqualStepsAndStartsAboveZero) {
  for (const char* type : {"constant", "cosine", "linear"}) {
    EXPECT_DOUBLE_EQ(learning_rate(options(type, 4), 0, 100), 2);
    EXPECT_DOUBLE_EQ(learning_rate(options(type, 4), 2, 100), 6);
    EXPECT_DOUBLE_EQ(learning_rate(options(type, 4), 3, 100), 8);
    EXPECT_DOUBLE_EQ(learning_rate(options(type, 4), 4, 100), 8);
  }
}

TEST(ScheduleTest, EachTypeDecaysAsNamed) {
  EXPECT_DOUBLE_EQ(learning_rate(options("constant", 0), 99, 100), 8);
  EXPECT_DOUBLE_EQ(learning_rate(options("linear", 0), 25, 100), 6);
  EXPECT_DOUBLE_EQ(learning_rate(options("linear", 20, 0.5), 60, 100), 6);
  EXPECT_DOUBLE_EQ(learning_rate(options("cosine", 0), 50, 100), 4);
  EXPECT_NEAR(learning_rate(options("cosine", 0), 25, 100), 8 * 0.8535533905932737, 1e-12);
  EXPECT_NEAR(learning_rate(options("cosine", 0, 0.25), 100, 100), 2, 1e-12);
}

TEST(ScheduleTest, RateIsConstantAfterTheLastStep) {
  EXPECT_NEAR(learning_rate(options("cosine", 10, 0.1), 500, 100), 0.8, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(options("linear", 10), 500, 100), 0);
}

TEST(ScheduleTest, WarmUpCanBeAShareOfAllSteps) {
  OptimOptions o = options("constant", -1);
  o.lr_warmup_steps_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 40), 2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 40), 8);
}

TEST(ScheduleTest, InvalidOptionsAreRejected) {
  const auto refuses = [](auto change) {
    OptimOptions o;
    o.check();
    change(o);
    EXPECT_THROW(o.check(), InputError);
  };
  refuses([](OptimOptions& o) { o.optimizer = "muon"; });
  refuses([](OptimOptions& o) { o.lr = -1; });
  refuses([](OptimOptions& o) { o.betas = {0.9}; });
  refuses([](OptimOptions& o) { o.betas = {0.9, 1.0}; });
  refuses([](OptimOptions& o) { o.weight_decay = -0.1; });
  refuses([](OptimOptions& o) { o.min_lr_ratio = 2; });
  refuses([](OptimOptions& o) { o.lr_scheduler_type = "step"; });
}

}  // namespace
}  // namespace tlt::train
