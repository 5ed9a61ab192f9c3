// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "cli/verl_config.h"
#include "cli/verl_import.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFastrl = TLT_SOURCE_DIR "/tests/golden/verl/fastrl.yaml";

struct Read {
  run::RunOptions options;
  cli::VerlImport imported;

  std::string notes() const {
    std::string text;
    for (const std::string& note : imported.notes) text += note + "\n";
    return text;
  }
};

Read read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  Read result;
  result.imported = cli::import_verl(cli::read_verl_config(yaml, overrides), result.options);
  return result;
}

Read read_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return read(scratch_file("config.yaml", text), overrides);
}

TEST(ImportVerlTest, MegatronsDistributedOptimizerIsImported) {
  const std::string megatron =
      "actor_rollout_ref:\n  actor:\n    strategy: megatron\n    megatron:\n"
      "      use_distributed_optimizer: ";
  EXPECT_TRUE(read_text(megatron + "True\n").options.actor.use_distributed_optimizer);
  EXPECT_FALSE(read_text(megatron + "False\n").options.actor.use_distributed_optimizer);
}

TEST(ImportVerlTest, FastRlConfigurationIsImported) {
  const Read result = read(kFastrl);
  const run::RunOptions& options = result.options;
  const std::string home = std::getenv("HOME") ? std::string(std::getenv("HOME")) : "~";
  EXPECT_EQ(options.model.path, home + "/models/Qwen2.5-7B");
  EXPECT_EQ(options.model.dtype, "bfloat16");
  EXPECT_EQ(options.data.train_files, std::vector{home + "/data/gsm8k/train.parquet"});
  EXPECT_EQ(options.data.train_batch_size, 64);
  EXPECT_EQ(options.data.max_response_length, 32768);
  EXPECT_TRUE(options.data.filter_overlong_prompts);
  EXPECT_EQ(options.rollout.n, 8);
  EXPECT_EQ(options.rollout.tensor_model_parallel_size, 4);
  EXPECT_EQ(options.rollout.sampling.temperature, 0.9);
  EXPECT_EQ(options.rollout.validation.temperature, 0) << "do_sample is false";
  EXPECT_EQ(options.actor.ppo_mini_batch_size, 4);
  EXPECT_TRUE(options.actor.loss.use_kl_loss);
  EXPECT_EQ(options.speculative.eagle.tune_algorithm, "BEG");
  EXPECT_EQ(options.speculative.eagle.mab_configs,
            (std::vector<std::string>{"8_4_48", "8_4_32", "8_4_16", "8_4_8"}));
  EXPECT_EQ(options.trainer.experiment_name, "qwen7b_grpo");
  EXPECT_EQ(options.trainer.default_local_dir, "checkpoints/fastrl/qwen7b_grpo");
  EXPECT_EQ(options.trainer.test_freq, 0);
  EXPECT_EQ(options.trainer.save_freq, 30);
  EXPECT_EQ(options.trainer.logger, (std::vector<std::string>{"console", "wandb"}));
  EXPECT_EQ(options.trainer.device, "cuda");
  EXPECT_NO_THROW(options.check());
  EXPECT_GE(result.imported.options.size(), 45U);
}

TEST(ImportVerlTest, CustomRewardFunctionBecomesACommand) {
  const Read result = read_text(R"(
custom_reward_function:
  path: my rewards/it's.py
  name: score
  reward_kwargs: {scale: 2, inner: {on: true}}
)");
  EXPECT_EQ(result.options.reward.functions, std::vector<std::string>{"command"});
  EXPECT_EQ(result.options.reward.command,
            R"(python3 tools/verl_reward.py 'my rewards/it'\''s.py' --name score )"
            R"(--kwargs '{"inner":{"on":true},"scale":2}')");
  EXPECT_EQ(result.notes(), "");
  EXPECT_THAT(read_text("custom_reward_function: {path: null, name: compute_score}").notes(),
              HasSubstr("used only with a custom_reward_function.path"));
}

TEST(ImportVerlTest, LoggersThatTltHasAreKept) {
  const Read result = read_text("trainer: {logger: [console, mlflow, clearml]}");
  EXPECT_EQ(result.options.trainer.logger,
            (std::vector<std::string>{"console", "mlflow", "file", "tensorboard"}));
  EXPECT_THAT(
      result.notes(),
      HasSubstr(
          "[\"console\",\"mlflow\",\"clearml\"]: tlt writes [\"console\",\"mlflow\",\"file\""));
}

TEST(ImportVerlTest, UnsupportedKeysHaveLineAndReason) {
  const Read result = read(kFastrl);
  const std::string notes = result.notes();
  EXPECT_THAT(notes, HasSubstr("fastrl.yaml:51: actor_rollout_ref.actor.ulysses_sequence_parallel_"
                               "size = 4: no such option\n"));
  EXPECT_THAT(notes, HasSubstr("rollout.gpu_memory_utilization = 0.4: give bytes: "
                               "rollout.kv_memory_bytes\n"));
  EXPECT_THAT(notes, HasSubstr("log_prob_max_token_len_per_gpu = 33792: the reference shares"));
  EXPECT_THAT(notes, HasSubstr("critic.ppo_mini_batch_size = 4: the critic is trained with"));
  EXPECT_THAT(notes, Not(HasSubstr("trainer.logger")));
  EXPECT_THAT(notes, Not(HasSubstr("mab_bs_threshold"))) << "it has the constant's value";
  EXPECT_THAT(notes, Not(HasSubstr("_target_")));
  EXPECT_THAT(notes, Not(HasSubstr("null")));
  EXPECT_THAT(notes, Not(HasSubstr("temperature")));
  // In file order.
  EXPECT_LT(notes.find("bs_threshold"), notes.find("ulysses_sequence_parallel_size"));
  EXPECT_LT(notes.find("ulysses_sequence_parallel_size"), notes.find("critic.ppo_mini_batch_size"));
}

TEST(ImportVerlTest, SamplingAndCorrectionKeepTheirNames) {
  const Read result = read_text(R"(
data: {train_batch_size: 64, gen_batch_size: 192}
algorithm:
  filter_groups: {_target_: verl.trainer.config.FilterGroupsConfig, enable: true, metric: seq_reward,
                  max_num_gen_batches: 10}
  rollout_correction: {rollout_is: token, rollout_is_threshold: 3.0, rollout_rs: sequence,
                       rollout_rs_threshold: null, bypass_mode: true, loss_type: reinforce,
                       rollout_is_batch_normalize: false}
actor_rollout_ref: {actor: {tis_imp_ratio_cap: 2.0}}
)");
  EXPECT_TRUE(result.options.algorithm.filter_groups.enable);
  EXPECT_EQ(result.options.algorithm.filter_groups.metric, "seq_reward");
  EXPECT_EQ(result.options.algorithm.filter_groups.max_num_gen_batches, 10);
  EXPECT_EQ(result.options.data.gen_batch_size, 192) << "valid only with the filter";
  EXPECT_TRUE(result.options.trainer_options().loss.has_importance_weights());
  EXPECT_EQ(result.options.algorithm.rollout_correction.rollout_is_threshold, 3);
  EXPECT_THAT(result.notes(),
              HasSubstr("rollout_rs = sequence: not needed: the rollout's logprobs"));
  EXPECT_THAT(result.notes(), HasSubstr("tis_imp_ratio_cap = 2.0: the rollout's logprobs are"));
  EXPECT_THAT(result.notes(), Not(HasSubstr("filter_groups")));
  const Read other = read_text("algorithm: {filter_groups: {enable: true, metric: entropy}}\n");
  EXPECT_EQ(other.options.algorithm.filter_groups.metric, "acc");
  EXPECT_THAT(other.notes(), HasSubstr("metric = entropy: algorithm.filter_groups.metric is"));
}

// DAPO's overlong buffer, under both keys that verl's recipes use.
TEST(ImportVerlTest, OverlongBufferBecomesTheRewardLength) {
  for (const std::string place : {"overlong_buffer", "reward_kwargs.overlong_buffer_cfg"}) {
    const std::string key = "reward_model." + place;
    const auto with = [&](const std::string& enable, const std::string& text) {
      return read_text(text,
                       {key + ".enable=" + enable, key + ".len=4096", key + ".penalty_factor=0.5"});
    };
    const Read on = with("True", "data: {max_response_length: 20480}\n");
    EXPECT_EQ(on.options.reward.functions, (std::vector<std::string>{"auto", "length"}));
    EXPECT_EQ(on.options.reward.overlong_buffer.len, 4096);
    EXPECT_EQ(on.options.reward.weights, (std::vector<double>{1, 0.5}));
    EXPECT_EQ(on.notes(), "");
    EXPECT_THAT(on.imported.options, ::testing::Contains("reward.functions"));
    EXPECT_EQ(with("False", "{}\n").options.reward.functions, std::vector<std::string>{"auto"});
    EXPECT_EQ(with("True", "custom_reward_function: {path: a.py}\n").options.reward.functions,
              (std::vector<std::string>{"command", "length"}));
  }
}

TEST(ImportVerlTest, AdaptersKeepTheirNames) {
  const Read result = read_text(
      "actor_rollout_ref:\n  model:\n    lora_rank: 32\n    lora_alpha: 64\n"
      "    target_modules: all-linear\n    exclude_modules: null\n    lora_adapter_path: a/b\n"
      "    lora: {rank: 8, alpha: 32}\n");
  EXPECT_EQ(result.options.model.lora_rank, 32);
  EXPECT_EQ(result.options.model.lora_alpha, 64);
  EXPECT_EQ(result.options.model.target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(result.options.model.lora_adapter_path, "a/b");
  EXPECT_THAT(result.notes(), HasSubstr("model.lora.rank = 8: Megatron's adapters; give"));
  EXPECT_THAT(result.notes(), Not(HasSubstr("exclude_modules")));
  const Read some =
      read_text("actor_rollout_ref: {model: {lora_rank: 4, target_modules: [q_proj, v_proj]}}\n");
  EXPECT_EQ(some.options.model.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
}

TEST(ImportVerlTest, OverridesAndNewNamesHavePrecedence) {
  const Read result = read_text(
      "actor_rollout_ref:\n  actor:\n    grad_clip: 1.0\n    clip_ratio: 0.3\n"
      "    optim: {clip_grad: 0.5, lr: 1e-5}\n",
      {"actor_rollout_ref.actor.optim.lr=2e-6", "+rollout.n=16",
       "data.train_files=['a.parquet','b.parquet']"});
  EXPECT_EQ(result.options.actor.optim.lr, 2e-6);
  EXPECT_EQ(result.options.actor.optim.clip_grad, 0.5);
  EXPECT_EQ(result.options.actor.loss.clip_ratio_low, 0.3);
  EXPECT_EQ(result.options.actor.loss.clip_ratio_high, 0.3);
  EXPECT_EQ(result.options.rollout.n, 16);
  EXPECT_EQ(result.options.data.train_files, (std::vector<std::string>{"a.parquet", "b.parquet"}));
  EXPECT_THAT(result.notes(), HasSubstr("config.yaml:3: actor_rollout_ref.actor.grad_clip = 1.0"));
}

TEST(ImportVerlTest, InvalidValuesAreRefusedOneByOne) {
  const Read result = read_text(
      "algorithm:\n  adv_estimator: gea\n  use_kl_in_reward: maybe\n"
      "actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 2000\n    loss_agg_mode: \"3\"\n"
      "  rollout:\n    n: 4.5\n    name: ???\n    temperature: ${a.b}\n"
      "data: {train_batch_size: 4000}\n");
  EXPECT_EQ(result.options.algorithm.adv_estimator, "grpo");
  EXPECT_EQ(result.options.actor.ppo_mini_batch_size, 2000) << "valid once the batch size is set";
  EXPECT_EQ(result.imported.options,
            (std::vector<std::string>{"data.train_batch_size", "actor.ppo_mini_batch_size"}));
  const std::string notes = result.notes();
  EXPECT_THAT(notes, HasSubstr("config.yaml:2: algorithm.adv_estimator = gea: algorithm.adv_esti"));
  EXPECT_THAT(notes,
              HasSubstr("config.yaml:3: algorithm.use_kl_in_reward = maybe: not a value of"));
  EXPECT_THAT(notes, HasSubstr("config.yaml:9: actor_rollout_ref.rollout.n = 4.5: not a value of"));
  EXPECT_THAT(notes, HasSubstr("rollout.name = ???: no value"));
  EXPECT_THAT(notes, HasSubstr("the value of ${…} is not in the file"));
  EXPECT_EQ(result.imported.unmapped, 6);
}

TEST(ImportVerlTest, InterpolationsAreResolvedAndCyclesAreNot) {
  const auto entries = cli::read_verl_config(
      scratch_file(
          "config.yaml",
          "a: {b: 3, c: '${.b}', d: '${a.c}', e: \"x${a.b}y\", f: '${oc.select:no,[1, 2]}',\n"
          "  g: {h: '${..b}'}, i: '${.j}', j: '${.i}', k: '${oc.env:HOME}', l: \"7\",\n"
          "  m: 100_000, n: 1e-6, o: [], p: True}\n"),
      {});
  const auto value = [&](const std::string& key) {
    const auto found = std::ranges::find(entries, key, &cli::VerlEntry::key);
    return found == entries.end() ? "none" : found->is_open ? "open" : found->value.dump();
  };
  EXPECT_EQ(value("a.c"), "3");
  EXPECT_EQ(value("a.d"), "3");
  EXPECT_EQ(value("a.e"), "\"x3y\"");
  EXPECT_EQ(value("a.f"), "[1,2]");
  EXPECT_EQ(value("a.g.h"), "3");
  EXPECT_EQ(value("a.i"), "open");
  EXPECT_EQ(value("a.k"), "open");
  EXPECT_EQ(value("a.l"), "\"7\"");
  EXPECT_EQ(value("a.m"), "100000");
  EXPECT_EQ(value("a.n"), "1e-06");
  EXPECT_EQ(value("a.p"), "true");
}

TEST(ImportVerlTest, WritesARecipeThatReadsBack) {
  const std::string recipe = scratch_folder() + "/recipe.toml";
  const Ended ended = run_program({"import", "verl", kFastrl, "--out", recipe});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_THAT(ended.err, HasSubstr(" options imported, "));
  run::RunOptions again;
  apply_toml_file(collect_options(again), recipe);
  Read want = read(kFastrl);
  EXPECT_EQ(to_toml(collect_options(again)), to_toml(collect_options(want.options)));
  const Ended shown = run_program({"import", "verl", kFastrl});
  EXPECT_EQ(shown.out, read_file(recipe, 1 << 20));
}

TEST(ImportVerlTest, InvalidConfigurationIsOneSentence) {
  const auto complaint_for = [](const std::string& text) {
    const Ended ended = run_program({"import", "verl", scratch_file("bad.yaml", text)});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(complaint_for("a: [1,\nb: }"), HasSubstr("bad.yaml:2: not YAML: "));
  EXPECT_THAT(complaint_for("a: ${oc.select:b.c,*d}\n"), HasSubstr("a:1: not YAML: "));
  EXPECT_THAT(complaint_for("a: na\xefve\n"), HasSubstr("bad.yaml: not UTF-8"));
  std::string aliases = "a: &a [1,1,1,1,1,1,1,1,1]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    aliases += fmt::format("{0}: &{0} [", name);
    for (int i = 0; i < 9; ++i) aliases += fmt::format("*{},", static_cast<char>(name - 1));
    aliases += "]\n";
  }
  EXPECT_THAT(complaint_for(aliases),
              HasSubstr("more than 10000 values (a long text counts as several)"));
  aliases = "a: &a " + std::string(1 << 20, 'x') + "\nb: [*a, *a, *a]\n";
  EXPECT_THAT(complaint_for(aliases), HasSubstr("more than 10000 values"));
  std::string references = "a0: " + std::string(100'000, 'x') + "\n", copies = references;
  for (int i = 1; i < 15; ++i) {
    const std::string before = "${a" + std::to_string(i - 1) + "}";
    references += "a" + std::to_string(i) + ": \"" + before + before + "\"\n";
    for (const char* copy : {"b", "c", "d", "e"})
      copies += copy + std::to_string(i) + ": \"${a0}\"\n";
  }
  for (const std::string& text : {references, copies})
    EXPECT_THAT(complaint_for(text), HasSubstr("bytes are read by ${…}; write the values in"));
  std::string dots = "a";
  for (int i = 0; i < 100'000; ++i) dots += ".b";
  EXPECT_THAT(complaint_for("custom_reward_function:\n  ? reward_kwargs." + dots + "\n  : 1\n"),
              HasSubstr("a key with more than 128 dots is not supported"));
  EXPECT_THAT(complaint_for("just a text"), HasSubstr("no keys; give a configuration of verl"));
  EXPECT_THAT(complaint_for("x: {y: 1}"), HasSubstr("no options of verl"));
  EXPECT_EQ(run_program({"import", "verl", "/nowhere.yaml"}).exit_code, 2);
  EXPECT_EQ(run_program({"import", "vrl", kFastrl}).exit_code, 2);
}

}  // namespace
}  // namespace tlt::apps
