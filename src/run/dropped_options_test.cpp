// SPDX-License-Identifier: Apache-2.0
#include "run/dropped_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/check.h"
#include "drafter/ngram/ngram_drafter.h"
#include "drafter/suffix/suffix_drafter.h"
#include "run/run_identity.h"
#include "run/run_options.h"

namespace tlt::run {
namespace {

using ::testing::HasSubstr;

std::string complaint(const std::function<void(const std::vector<OptionRef>&)>& set) {
  RunOptions options;
  try {
    set(collect_options(options));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(DroppedOptionsTest, EachIsRefusedWithWhatReplacedIt) {
  std::set<std::string_view> names;
  for (const DroppedOption& option : dropped_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    const std::string name(option.name), value(option.value), sentence = dropped_option(name);
    EXPECT_THAT(sentence,
                HasSubstr(option.is_merged ? "replaced by " : "it is always " + value + " now"));
    EXPECT_THAT(sentence, HasSubstr(std::string(option.instead)));
    EXPECT_EQ(complaint([&](const auto& refs) {
                apply_override(refs, "actor_rollout_ref." + name + "=" + value, dropped_option);
              }),
              "command line: unknown option: " + name + "; " + sentence);
    EXPECT_EQ(complaint([&](const auto& refs) {
                apply_toml_text(refs, name + " = " + value, "old.toml", dropped_option);
              }),
              "old.toml:1: unknown option: " + name + "; " + sentence);
  }
}

// The name after "set " in what to set instead is one that exists.
TEST(DroppedOptionsTest, WhatToSetInsteadExists) {
  RunOptions options;
  std::set<std::string> names;
  for (const OptionRef& ref : collect_options(options)) names.insert(ref.name);
  for (const DroppedOption& option : dropped_options()) {
    EXPECT_FALSE(names.contains(std::string(option.name))) << option.name << " is back";
    const std::string instead(option.instead);
    if (option.is_merged) {
      EXPECT_TRUE(names.contains(instead.substr(0, instead.find_first_of(":,")))) << instead;
    } else if (instead.starts_with("set ")) {
      EXPECT_TRUE(names.contains(instead.substr(instead.rfind(' ') + 1))) << instead;
    }
  }
}

TEST(DroppedOptionsTest, ValuesAreThoseOfTheConstants) {
  RunOptions options;
  auto& speculative = options.speculative;
  auto& [trainer, warmup, idle] = speculative.train;
  drafter::NgramOptions ngram;
  drafter::SuffixOptions suffix;
  const std::pair<std::string_view, OptionValue> constants[] = {
      {"rollout.prefill_chunk", &options.rollout.engine.prefill_chunk},
      {"speculative.accept_threshold_single", &speculative.accept_threshold_single},
      {"speculative.accept_threshold_acc", &speculative.accept_threshold_acc},
      {"speculative.eagle.window", &speculative.eagle.drafter.window},
      {"speculative.eagle.mab_window", &speculative.eagle.mab_window},
      {"speculative.eagle.mab_epsilon", &speculative.eagle.mab_epsilon},
      {"speculative.eagle.common_random_numbers", &speculative.eagle.drafter.common_random_numbers},
      {"speculative.suffix.min_match", &suffix.min_match},
      {"speculative.suffix.min_probability", &suffix.min_probability},
      {"speculative.suffix.history", &suffix.history},
      {"speculative.train.hidden_weight", &trainer.hidden_weight},
      {"speculative.train.pass_decay", &trainer.pass_decay},
      {"speculative.train.loss_positions", &trainer.loss_positions},
      {"speculative.train.seed", &trainer.seed},
      {"speculative.train.optim.betas", &trainer.optim.betas},
      {"speculative.train.optim.eps", &trainer.optim.eps},
      {"speculative.train.optim.weight_decay", &trainer.optim.weight_decay},
      {"speculative.train.optim.clip_grad", &trainer.optim.clip_grad},
      {"speculative.train.optim.lr_warmup_steps", &trainer.optim.lr_warmup_steps},
      {"speculative.train.optim.lr_warmup_steps_ratio", &trainer.optim.lr_warmup_steps_ratio},
      {"speculative.train.optim.min_lr_ratio", &trainer.optim.min_lr_ratio},
      {"speculative.train.val_steps", &warmup.val_steps},
      {"speculative.train.window", &idle.window},
      {"speculative.ngram.branch_length", &ngram.branch_length},
      {"speculative.ngram.max_window", &ngram.max_window},
      {"speculative.ngram.min_window", &ngram.min_window},
      {"speculative.ngram.max_breadth", &ngram.max_breadth},
      {"speculative.ngram.min_breadth", &ngram.min_breadth},
      {"speculative.ngram.nodes", &ngram.nodes},
      {"speculative.train.max_token_len_per_gpu", &trainer.max_tokens},
      {"speculative.train.val_share", &warmup.val_share},
      {"speculative.train.slice_milliseconds", &idle.slice_milliseconds},
      {"speculative.train.publish_margin", &idle.publish_margin},
      {"speculative.eagle.kv_memory_bytes", &speculative.eagle.drafter.kv_memory_bytes},
      {"speculative.eagle.prompt_memory_bytes", &speculative.eagle.drafter.prompt_memory_bytes},
      {"speculative.suffix.memory_bytes", &suffix.memory_bytes},
      {"speculative.train.buffer_bytes", &idle.buffer_bytes},
      {"speculative.eagle.mab_bs_threshold", &speculative.eagle.mab_bs_threshold},
      {"speculative.train.optim.lr_scheduler_type", &trainer.optim.lr_scheduler_type},
      {"reward.code.memory_megabytes", &options.reward.code.memory_megabytes},
      {"actor.optim.eps", &options.actor.optim.eps}};
  for (const auto& [name, value] : constants)
    EXPECT_TRUE(is_dropped_value(name, to_text(value))) << name << " is " << to_text(value);
}

// Half, an eighth, an eighth and a quarter of the memory are what the four options were.
TEST(DroppedOptionsTest, PartsOfTheMemoryAreTheFormerDefaults) {
  const RunOptions options;
  const auto& speculative = options.speculative;
  EXPECT_EQ(speculative.suffix_bytes(), drafter::SuffixOptions().memory_bytes);
  EXPECT_EQ(speculative.draft_kv_bytes(), speculative.eagle.drafter.kv_memory_bytes);
  EXPECT_EQ(speculative.prompt_bytes(), speculative.eagle.drafter.prompt_memory_bytes);
  EXPECT_EQ(speculative.training_bytes(), speculative.train.idle.buffer_bytes);
}

TEST(DroppedOptionsTest, OneErrorNamesAllTheirLines) {
  EXPECT_THAT(complaint([](const auto& refs) {
                apply_toml_text(refs,
                                "[speculative.train]\nwindow = 512\nval_steps = 8\nseed = 0\n",
                                "options.toml", dropped_option);
              }),
              testing::AllOf(HasSubstr("options.toml:4: unknown option: speculative.train.seed; "),
                             HasSubstr("; further unknown options, by line: 2, 3")));
}

// The run.json of an earlier version has every option that affects results.
TEST(DroppedOptionsTest, ARunOfAnEarlierVersionResumes) {
  const RunIdentity here{.command = "train", .model = "12ab", .options = "rollout.n = 8\n"};
  RunIdentity there = here;
  for (const DroppedOption& option : dropped_options())
    there.options.append(option.name).append(" = ").append(option.value).append("\n");
  EXPECT_NO_THROW(check_same_run("runs/a", here, there));
  there.options += "speculative.train.hidden_weight = 0.5\n";
  try {
    check_same_run("runs/a", here, there);
    ADD_FAILURE() << "another value is another run";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("runs/a has a run with other options "
                                        "(speculative.train.hidden_weight is unknown here and 0.5 "
                                        "there; it is always 1.0 now; set "
                                        "speculative.train.logits_weight); give another "
                                        "trainer.experiment_name"));
  }
}

}  // namespace
}  // namespace tlt::run
