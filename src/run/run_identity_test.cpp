// SPDX-License-Identifier: Apache-2.0
#include "run/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const RunIdentity& here, const RunIdentity& there) {
  try {
    check_same_run("runs/a", here, there);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

const RunIdentity kRun{.command = "sft",
                       .model = "12ab",
                       .options = "actor.lr = 1\n",
                       .started = "2026-11-25T12:30:59"};

TEST(RunIdentityTest, RoundTripsThroughJson) {
  const RunIdentity saved = parse_identity(to_json(kRun), "run.json");
  EXPECT_EQ(saved.command, kRun.command);
  EXPECT_EQ(saved.model, kRun.model);
  EXPECT_EQ(saved.options, kRun.options);
  EXPECT_EQ(saved.started, kRun.started);
  EXPECT_EQ(refusal(kRun, saved), "");
}

TEST(RunIdentityTest, RefusalNamesTheDifference) {
  RunIdentity other = kRun;
  other.command = "train";
  EXPECT_THAT(refusal(kRun, other), AllOf(HasSubstr("runs/a has a run of tlt train; "),
                                          HasSubstr("give another trainer.experiment_name, or "
                                                    "trainer.resume_mode=disable")));
  other = kRun;
  other.model = "34cd";
  EXPECT_THAT(refusal(kRun, other), HasSubstr("from another model than that of model.path"));
  other = kRun;
  other.options = "actor.lr = 2\n";
  EXPECT_THAT(refusal(kRun, other), HasSubstr("other options (actor.lr is 1 here and 2 there)"));
}

TEST(RunIdentityTest, NumberOfStepsIsNotPartOfIt) {
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  const RunIdentity before = identify("train", options);
  options.trainer.total_training_steps = 99;
  options.trainer.total_epochs = 3;
  EXPECT_EQ(refusal(identify("train", options), before), "");
  options.data.seed = 99;
  EXPECT_THAT(refusal(identify("train", options), before), HasSubstr("data.seed"));
  EXPECT_THAT(refusal(before, identify("train", options, "the adapter's rank = 2\n")),
              HasSubstr("data.seed"));
}

// What the fingerprint's blocks miss by design: the base of an adapter is compared as a whole.
TEST(RunIdentityTest, FurtherLinesAreCompared) {
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  EXPECT_THAT(refusal(identify("train", options, "the base model's sha256 = 12\n"),
                      identify("train", options, "the base model's sha256 = 34\n")),
              HasSubstr("the base model's sha256 is 12 here and 34 there"));
}

TEST(RunIdentityTest, BrokenJsonNamesTheFile) {
  for (const char* text : {"", "[]", "{\"command\": 1}", "{\"command\": \"sft\"}"}) {
    try {
      parse_identity(text, "here/run.json");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("here/run.json"), HasSubstr("give another"),
                                      Not(HasSubstr("json.exception"))));
    }
  }
}

}  // namespace
}  // namespace tlt::run
