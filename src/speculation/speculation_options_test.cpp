// SPDX-License-Identifier: Apache-2.0
#include "speculation/speculation_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"

namespace tlt::speculation {
namespace {

using testing::HasSubstr;

std::string message(const SpeculationOptions& options) {
  try {
    options.check();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// The message of check() with these overrides ("bs_threshold=2").
std::string complaint(const std::vector<std::string>& overrides) {
  SpeculationOptions options;
  const std::vector<OptionRef> refs = collect_options(options);
  for (const std::string& text : overrides) apply_override(refs, text);
  return message(options);
}

TEST(SpeculationOptionsTest, DefaultsAreFastRlsAndValid) {
  EagleOptions options;
  options.tune_algorithm = "BEG";
  options.check();
  EXPECT_EQ(options.strategies(),
            (std::vector<drafter::Strategy>{{8, 4, 48}, {8, 4, 32}, {8, 4, 16}, {8, 4, 8}}));
  EXPECT_EQ(complaint({}), "");
  EXPECT_GT(EagleOptions().strategies().size(), 4u);  // ADAPTIVE has more
}

TEST(SpeculationOptionsTest, DuplicateStrategiesAreOneArm) {
  EagleOptions options;
  options.tune_algorithm = "BEG";
  options.mab_configs = {"8_4_16", "8_4_48", "8_4_16"};
  EXPECT_EQ(options.strategies(), (std::vector<drafter::Strategy>{{8, 4, 16}, {8, 4, 48}}));
}

TEST(SpeculationOptionsTest, OnlyTheAcceptRuleAffectsResults) {
  SpeculationOptions options;
  for (const OptionRef& ref : collect_options(options))
    EXPECT_EQ(ref.affects == Affects::kResults, ref.name == "accept_rule") << ref.name;
}

TEST(SpeculationOptionsTest, InvalidValuesAreNamed) {
  EXPECT_THAT(complaint({"memory_bytes=3"}), HasSubstr("speculative.memory_bytes is 3"));
  EXPECT_THAT(complaint({"accept_rule=greedy"}), HasSubstr("give one of coupled, target_only"));
  EXPECT_THAT(complaint({"bs_threshold=-1"}), HasSubstr("speculative.bs_threshold is -1"));
  EXPECT_THAT(complaint({"eagle.mab_configs=[]"}), HasSubstr("mab_configs is empty"));
  EXPECT_THAT(complaint({"eagle.tune_algorithm=beg"}), HasSubstr("give one of ADAPTIVE, BEG"));
  EXPECT_NE(complaint({"eagle.mab_configs=[\"8_4\"]"}), "");
  EXPECT_THAT(complaint({"eagle.mab_configs=[\"off\"]"}), HasSubstr("always included"));
}

TEST(SpeculationOptionsTest, RemovedValuesNameAReplacement) {
  for (const char* name : {"EG", "UCB1", "PREDEFINED"})
    EXPECT_THAT(complaint({std::string("eagle.tune_algorithm=") + name}),
                testing::AllOf(HasSubstr("which was removed; give "), HasSubstr("BEG")));
}

TEST(SpeculationOptionsTest, AcceptThresholdsAreAbove0AtMost1) {
  SpeculationOptions options;
  for (double SpeculationOptions::*const threshold :
       {&SpeculationOptions::accept_threshold_single, &SpeculationOptions::accept_threshold_acc}) {
    options = {};
    options.accept_rule = "target_only";
    for (const double value : {0.0, -0.5, 1.01, std::nan("")}) {
      options.*threshold = value;
      EXPECT_THAT(message(options), HasSubstr("speculative.accept_threshold_")) << value;
    }
    options.*threshold = 0.5;
    EXPECT_EQ(message(options), "");
    options.accept_rule = "coupled";
    EXPECT_THAT(message(options), HasSubstr("only speculative.accept_rule"));
  }
}

TEST(SpeculationOptionsTest, BegHasAtMostFourNumbersOfTokensToVerify) {
  const std::string five =
      "eagle.mab_configs=[\"4_2_4\",\"8_4_8\",\"8_4_16\",\"8_4_32\",\"8_4_48\"]";
  EXPECT_THAT(
      complaint({"eagle.tune_algorithm=BEG", five}),
      HasSubstr("5 different numbers of tokens to verify, and BEG has ranges of batch sizes "
                "for 4"));
  EXPECT_EQ(complaint({five}), "") << "ADAPTIVE has no ranges";
  EXPECT_EQ(complaint({"eagle.tune_algorithm=BEG", "eagle.mab_configs=[\"8_4_16\",\"6_4_16\"]"}),
            "");
}

}  // namespace
}  // namespace tlt::speculation
