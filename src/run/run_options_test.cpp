// SPDX-License-Identifier: Apache-2.0
#include "run/run_options.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/test_folder.h"

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

// docs/launching.md, "Training in groups".
TEST(RunOptionsTest, GroupsTrainTogetherUnlessAnOptionRulesItOut) {
  const auto obstacle = [](const std::string& size, const std::vector<std::string>& overrides) {
    RunOptions options;
    const auto refs = collect_options(options);
    apply_override(refs, "rollout.tensor_model_parallel_size=" + size);
    for (const std::string& override : overrides) apply_override(refs, override);
    const std::string found = options.obstacle_to_group_training();
    EXPECT_EQ(options.trains_in_groups(), size != "1" && found.empty());
    return found;
  };
  EXPECT_EQ(obstacle("2", {}), "");
  EXPECT_EQ(obstacle("2", {"actor.use_kl_loss=true", "distillation.teacher=folder"}), "");
  for (const std::string option : {"model.lora_rank=4", "actor.use_distributed_optimizer=true",
                                   "actor.optim.optimizer=Muon", "algorithm.adv_estimator=gae"}) {
    EXPECT_NE(obstacle("2", {option}).find(option.substr(0, option.find('='))), std::string::npos);
    EXPECT_EQ(obstacle("1", {option}), "");
  }
  EXPECT_EQ(obstacle("2", {"distillation.teacher=folder", "distillation.loss_mode=reverse_kl"}),
            "distillation.loss_mode=reverse_kl");
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

// Options of one estimator are refused with another, by name.
TEST(RunOptionsTest, EstimatorsRefuseTheOptionsOfOthers) {
  const auto complaint_of = [](const std::vector<std::string>& overrides) -> std::string {
    RunOptions options;
    const auto refs = collect_options(options);
    apply_toml_file(refs, TLT_SOURCE_DIR "/recipes/demo.toml");
    for (const std::string& override : overrides) apply_override(refs, override);
    return thrown_message<InputError>([&] { options.check(); });
  };
  const std::string gae = "algorithm.adv_estimator=gae", remax = "algorithm.adv_estimator=remax";
  EXPECT_EQ(complaint_of({gae, "algorithm.gamma=0.99", "algorithm.lam=0.95",
                          "critic.cliprange_value=0.2", "trainer.critic_warmup=3"}),
            "");
  EXPECT_EQ(complaint_of({remax, "rollout.n=1"}), "");
  EXPECT_EQ(complaint_of({"algorithm.adv_estimator=reinforce_plus_plus", "algorithm.gamma=0.9"}),
            "");
  const std::map<std::string, std::vector<std::string>> refused = {
      {"algorithm.pass_k has no effect with algorithm.adv_estimator=gae",
       {gae, "algorithm.pass_k=2"}},
      {"algorithm.norm_adv_by_std_in_grpo has no effect with algorithm.adv_estimator=gae",
       {gae, "algorithm.norm_adv_by_std_in_grpo=false"}},
      {"algorithm.norm_adv_by_std_in_grpo has no effect with algorithm.adv_estimator=remax",
       {remax, "algorithm.norm_adv_by_std_in_grpo=false"}},
      {"rollout.temperature=0 makes all of them greedy", {remax, "rollout.temperature=0"}},
      {"algorithm.gamma has no effect with algorithm.adv_estimator=grpo", {"algorithm.gamma=0.9"}},
      {"algorithm.lam has no effect with algorithm.adv_estimator=remax",
       {remax, "algorithm.lam=0.9"}},
      {"critic.model.path has no effect with algorithm.adv_estimator=grpo",
       {"critic.model.path=models/demo"}},
      {"trainer.critic_warmup has no effect with algorithm.adv_estimator=grpo",
       {"trainer.critic_warmup=2"}},
      {"algorithm.gamma is 1.5", {gae, "algorithm.gamma=1.5"}},
      {"algorithm.lam -1", {gae, "algorithm.lam=-1"}},
      {"critic.optim.lr is -1", {gae, "critic.optim.lr=-1"}},
      {"critic.cliprange_value is 0", {gae, "critic.cliprange_value=0"}},
      {"must not be negative", {gae, "trainer.critic_warmup=-1"}}};
  for (const auto& [sentence, overrides] : refused)
    EXPECT_NE(complaint_of(overrides).find(sentence), std::string::npos) << sentence << "\n"
                                                                         << complaint_of(overrides);
}

TEST(RunOptionsTest, RefusesInvalidValues) {
  for (const char* override :
       {"rollout.n=0", "trainer.resume_mode=sometimes", "trainer.logger=clearml",
        "model.dtype=float16", "trainer.experiment_name=a/b", "actor.ppo_mini_batch_size=99",
        "algorithm.adv_estimator=gea", "actor.optim.lr=-1", "actor.optim.optimizer=adam",
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
    const std::string message = thrown_message<InputError>([&] { options.check(); });
    EXPECT_NE(message.find("actor.optim.optimizer=Muon trains the matrices"), std::string::npos)
        << adapter << ": " << message;
  }
}

}  // namespace
}  // namespace tlt::run
