// SPDX-License-Identifier: Apache-2.0
#include "run/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/files.h"
#include "run/run_identity.h"
#include "run/run_options.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A run folder with the options of its run.
class OverridesTest : public ::testing::Test {
 protected:
  OverridesTest() {
    options_.actor.optim.lr = 1e-4;
    options_.trainer.save_freq = 5;
    write_file_atomic(folder_ + "/run.json", "{}");
    save({});
  }
  void save(const std::vector<Override>& history) {
    write_file_atomic(folder_ + "/options.toml",
                      tlt::to_toml(collect_options(options_)) + to_toml(history));
  }
  // Starts the run with a recipe that has this learning rate; as RunFolder::start() at `step`.
  std::vector<Override> start(double lr, const std::vector<std::string>& texts, int64_t step = 0) {
    options_.actor.optim.lr = lr;
    std::vector<Override> history = apply_overrides(collect_options(options_), folder_, texts, {});
    for (Override& change : history)
      if (change.step == Override::kNew) change.step = step;
    save(history);
    return history;
  }
  std::string complaint(const std::vector<std::string>& texts) {
    try {
      apply_overrides(collect_options(options_), folder_, texts, {});
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  }
  double lr() const { return options_.actor.optim.lr; }

  const TestFolder scratch_;
  std::string folder_ = scratch_.path();
  RunOptions options_;
};

TEST_F(OverridesTest, LaterStartsHaveTheOverriddenValue) {
  EXPECT_THAT(start(1e-4, {}), IsEmpty());
  const auto history = start(
      1e-4, {"actor.optim.lr=1e-5", "actor_rollout_ref.actor.optim.lr=1e-5", "trainer.save_freq=3"},
      12);
  ASSERT_THAT(history, SizeIs(2));
  EXPECT_EQ(history[0].step, 12);
  EXPECT_EQ(history[0].name, "actor.optim.lr");
  EXPECT_EQ(history[0].before, "0.0001");
  EXPECT_EQ(history[0].value, "1e-05");
  EXPECT_EQ(history[1].name, "trainer.save_freq");
  EXPECT_EQ(lr(), 1e-5);

  EXPECT_THAT(start(1e-4, {}), SizeIs(2)) << "the recipe is unchanged";
  EXPECT_EQ(lr(), 1e-5);
  EXPECT_EQ(options_.trainer.save_freq, 3);
  start(1e-5, {});
  EXPECT_EQ(lr(), 1e-5) << "the recipe was changed too";
  start(3e-4, {});
  EXPECT_EQ(lr(), 3e-4) << "another value stays, and run.json refuses it";
}

TEST_F(OverridesTest, NewestOverrideHolds) {
  start(1e-4, {"actor.optim.lr=1e-5"}, 3);
  EXPECT_THAT(start(1e-4, {"actor.optim.lr=1e-5"}, 5), SizeIs(1)) << "the same command again";
  EXPECT_THAT(start(1e-4, {"actor.optim.lr=1e-4"}, 6), SizeIs(2)) << "back to the first value";
  start(1e-4, {});
  EXPECT_EQ(lr(), 1e-4);
  const auto history = start(2e-4, {"actor.optim.lr=2e-4"}, 7);
  ASSERT_THAT(history, SizeIs(3)) << "recipe and override at once";
  EXPECT_EQ(history[2].before, "0.0001");
  start(1e-4, {});
  EXPECT_EQ(lr(), 2e-4);
}

TEST_F(OverridesTest, OptionsTomlIsStillARecipe) {
  start(1e-4, {"actor.optim.betas=[0.8, 0.9]", "actor.optim.lr_scheduler_type=cosine"}, 3);
  RunOptions read;
  apply_toml_file(collect_options(read), folder_ + "/options.toml");
  EXPECT_EQ(read.actor.optim.betas, (std::vector{0.8, 0.9}));
  EXPECT_EQ(read.actor.optim.lr_scheduler_type, "cosine");
  const auto history = start(1e-4, {});
  ASSERT_THAT(history, SizeIs(2));
  EXPECT_EQ(history[0].value, "[0.8, 0.9]");
  EXPECT_EQ(history[1].before, "\"constant\"");
}

TEST_F(OverridesTest, WhatTheRunIsCannotChange) {
  for (const char* text :
       {"rollout.n=4", "actor.optim.optimizer=Muon", "trainer.seed=3", "data.train_batch_size=8",
        "model.path=elsewhere", "data.train_files=a.jsonl", "trainer.experiment_name=b",
        "reward.functions=math", "model.lora_rank=2", "data.apply_chat_template_kwargs.a=1"})
    EXPECT_THAT(complaint({text}),
                AllOf(HasSubstr(std::string("--override ") + text),
                      HasSubstr(" says what the run is and cannot change within it")))
        << text;
  for (const char* text : {"actor.optim.lr=1", "reward.timeout_seconds=60", "trainer.test_freq=2",
                           "trainer.save_freq=3", "trainer.total_training_steps=9",
                           "rollout.max_num_seqs=4", "speculative.train.optim.lr=1e-4"})
    EXPECT_EQ(complaint({text}), "") << text;
  EXPECT_THAT(complaint({"actor.optim.rl=1"}), HasSubstr("did you mean actor.optim.lr?"));
  folder_ += "/none";
  EXPECT_THAT(complaint({"actor.optim.lr=1"}),
              AllOf(HasSubstr("/none has no run to resume"),
                    HasSubstr("give actor.optim.lr=1 without --override")));
}

TEST_F(OverridesTest, BrokenHistoryNamesTheFile) {
  for (const char* text : {"[[override]]\nstep = 1\n", "[[override]]\nstep = -1\nname = \"a\"\n",
                           "override = [1]\n", "[[override",
                           "[[override]]\nstep = 1\nname = \"a\"\n"
                           "before = 1\nvalue = 2\n"}) {
    write_file_atomic(folder_ + "/options.toml", text);
    EXPECT_THAT(complaint({}), HasSubstr(folder_ + "/options.toml")) << text;
  }
}

TEST_F(OverridesTest, RunIdentityNamesTheWayToOverride) {
  RunOptions here;
  here.actor.optim.lr = 2e-4;
  RunIdentity mine{"train", "12ab", options_digest(collect_options(here))};
  RunIdentity there = mine;
  const std::vector<Override> history = {
      {.step = 2, .name = "actor.optim.lr", .before = "0.0002", .value = "1e-05"}};
  there.options = with_overrides(there.options, history);
  try {
    check_same_run("runs/a", mine, there);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("(actor.optim.lr is 0.0002 here and 1e-05 there)"),
                      HasSubstr("or add --override actor.optim.lr=0.0002 to resume it")));
  }
  here.rollout.n = 99;
  here.actor.optim.lr = 1e-5;
  mine.options = options_digest(collect_options(here));
  try {
    check_same_run("runs/a", mine, there);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rollout.n is 99"), Not(HasSubstr("--override"))));
  }
}

}  // namespace
}  // namespace tlt::run
