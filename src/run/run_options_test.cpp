// SPDX-License-Identifier: Apache-2.0
#include "run/run_options.h"

#include <gtest/gtest.h>

#include <set>

namespace tlt::run {
namespace {

TEST(RunOptionsTest, NamesAreUniqueAndHaveHelp) {
  RunOptions options;
  std::set<std::string> names;
  for (const OptionRef& option : collect_options(options)) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
  }
  for (const char* verls : {"data.train_batch_size", "rollout.n", "actor.clip_ratio_high",
                            "actor.optim.lr", "algorithm.adv_estimator",
                            "trainer.total_training_steps", "actor.ppo_max_token_len_per_gpu"})
    EXPECT_TRUE(names.contains(verls)) << verls;
}

TEST(RunOptionsTest, RecipesAreValid) {
  for (const char* recipe : {"demo", "demo_warmup_1", "demo_warmup_2", "gsm8k_qwen2.5_0.5b"}) {
    RunOptions options;
    apply_toml_file(collect_options(options),
                    std::string(TLT_SOURCE_DIR "/recipes/") + recipe + ".toml");
    EXPECT_NO_THROW(options.check()) << recipe;
  }
}

TEST(RunOptionsTest, UnknownLoggerNamesTheNearest) {
  const auto complaint_of = [](const std::string& logger) -> std::string {
    RunControlOptions options;
    options.logger = {"console", logger};
    try {
      options.check();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint_of("wandbb"),
            "trainer.logger has 'wandbb'; did you mean wandb? use console, file, tensorboard, "
            "wandb, mlflow, swanlab, trackio");
  EXPECT_EQ(complaint_of("comet"),
            "trainer.logger has 'comet'; use console, file, tensorboard, wandb, mlflow, swanlab, "
            "trackio");
  for (const char* name :
       {"console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "trackio"})
    EXPECT_EQ(complaint_of(name), "");
}

TEST(RunOptionsTest, RefusesInvalidValues) {
  for (const char* override :
       {"rollout.n=0", "trainer.resume_mode=sometimes", "trainer.logger=clearml",
        "model.dtype=float16", "trainer.experiment_name=a/b", "actor.ppo_mini_batch_size=99",
        "algorithm.adv_estimator=gae", "actor.optim.lr=-1", "actor.optim.optimizer=adam",
        "rollout.temperature=-1"}) {
    RunOptions options;
    const auto refs = collect_options(options);
    apply_toml_file(refs, TLT_SOURCE_DIR "/recipes/demo.toml");
    EXPECT_THROW(
        {
          apply_override(refs, override);
          options.check();
        },
        InputError)
        << override;
  }
}

TEST(RunOptionsTest, MuonDoesNotTrainAnAdapter) {
  for (const char* adapter : {"model.lora_rank=4", "model.lora_adapter_path=adapter"}) {
    RunOptions options;
    const auto refs = collect_options(options);
    apply_toml_file(refs, TLT_SOURCE_DIR "/recipes/demo.toml");
    apply_override(refs, "actor.optim.optimizer=Muon");
    EXPECT_NO_THROW(options.check());
    apply_override(refs, adapter);
    try {
      options.check();
      ADD_FAILURE() << adapter;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("actor.optim.optimizer=Muon trains the matrices"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tlt::run
