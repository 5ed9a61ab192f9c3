// The recipes, run as a user would run them: the one for a real model on GSM8K's own rows with
// Qwen's tokenizer and a small random model.
//
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace tlt {
namespace {

using tests::appears;
using tests::Program;
using tests::read_text;
using tests::run_program;
using tests::Scratch;

// A Qwen2 model folder without weights (model.random_seed makes them), with the tokenizer of
// `tokenizer_folder`.
void write_small_qwen2(const std::filesystem::path& folder,
                       const std::filesystem::path& tokenizer_folder, int64_t vocabulary = 151936,
                       int64_t eos = 151645) {
  std::filesystem::create_directories(folder);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    if (std::filesystem::exists(tokenizer_folder / file))
      std::filesystem::copy_file(tokenizer_folder / file, folder / file);
  const nlohmann::json config = {{"architectures", {"Qwen2ForCausalLM"}},
                                 {"model_type", "qwen2"},
                                 {"vocab_size", vocabulary},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 128},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 4096},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 1e6},
                                 {"tie_word_embeddings", true},
                                 {"hidden_act", "silu"},
                                 {"torch_dtype", "bfloat16"},
                                 {"eos_token_id", eos}};
  std::ofstream(folder / "config.json") << config.dump(1);
}

TEST(RecipesTest, Gsm8kStartsAndLearnsOnItsOwnRows) {
  const std::filesystem::path data = TLT_SHARED_DATA;
  if (data.empty() || !std::filesystem::exists(data / "gsm8k/train.jsonl"))
    GTEST_SKIP()
        << "no folder with gsm8k/ and tokenizers/qwen3: configure with -DTLT_SHARED_DATA=FOLDER";
  const Scratch scratch;
  write_small_qwen2(scratch / "model", data / "tokenizers/qwen3");
  const int code = run_program(
      {"train", "recipes/gsm8k_qwen2.5_0.5b.toml", "model.path=" + (scratch / "model").string(),
       "model.random_seed=0", "data.train_files=" + (data / "gsm8k/train.jsonl").string(),
       "data.val_files=" + (data / "gsm8k/test.jsonl").string(), "data.val_max_samples=4",
       "data.train_batch_size=4", "rollout.n=4", "data.max_response_length=24",
       "trainer.total_training_steps=2", "trainer.test_freq=2", "rollout.kv_memory_bytes=67108864",
       "trainer.default_local_dir=" + (scratch / "run").string(), "--workers", "2"},
      scratch / "log");
  ASSERT_EQ(code, 0) << read_text(scratch / "log");
  std::ifstream metrics(scratch / "run" / "metrics.jsonl");
  int steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("step") == 0) continue;
    ++steps;
    EXPECT_EQ(row.at("training/rollout_logprobs_diff_max"), 0) << line;
    EXPECT_TRUE(row.contains("actor/kl_loss"));
  }
  EXPECT_EQ(steps, 2);
  std::ifstream rollouts(scratch / "run" / "rollouts/000001.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(rollouts, line));
  const auto row = nlohmann::json::parse(line);
  EXPECT_NE(row.at("input").get<std::string>().find("<|im_start|>user"), std::string::npos)
      << row.at("input");
  EXPECT_FALSE(row.at("gts").get<std::string>().empty());
  EXPECT_TRUE(std::filesystem::exists(scratch / "run" /
                                      "checkpoints/step_000002/policy/model.safetensors"));
}

// The two recipes of docs/word_problems.md on the files of tools/word_problems.py, for a few steps.
TEST(RecipesTest, WordProblemsRunFromRandomWeightsToRl) {
  const Scratch scratch;
  const std::string data = (scratch / "word_problems").string();
  ASSERT_EQ(std::system(("python3 " TLT_SOURCE_DIR "/tools/word_problems.py " + data).c_str()), 0);
  ASSERT_EQ(run_program({"sft", "recipes/word_problems_sft.toml",
                         "data.train_files=" + data + "/sft.jsonl", "data.train_batch_size=16",
                         "actor.optim.lr_warmup_steps=2", "trainer.total_training_steps=12",
                         "trainer.default_local_dir=" + (scratch / "sft").string()},
                        scratch / "log"),
            0)
      << read_text(scratch / "log");
  ASSERT_EQ(
      run_program(
          {"train", "recipes/word_problems.toml", "model.path=" + (scratch / "sft/policy").string(),
           "data.train_files=" + data + "/train.jsonl", "data.val_files=" + data + "/test.jsonl",
           "data.val_max_samples=8", "data.train_batch_size=4", "trainer.total_training_steps=1",
           "trainer.default_local_dir=" + (scratch / "run").string(), "--workers", "2"},
          scratch / "log"),
      0)
      << read_text(scratch / "log");
  std::ifstream rollouts(scratch / "run/rollouts/000001.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(rollouts, line));
  EXPECT_NE(line.find("#### "), std::string::npos) << "the ground truth is GSM8K's: " << line;
}

// `make headline` in small, killed after a checkpoint of its model and after one of its first way.
// The script compares rollouts and weights of the ways; only the first one was interrupted.
TEST(RecipesTest, AnInterruptedHeadlineContinues) {
  const Scratch scratch;
  if (std::filesystem::space(scratch.path()).available < uint64_t{4} << 30)
    GTEST_SKIP() << "the headline's script asks for 4 GiB of free space";
  const std::string small = (scratch / "tlt").string();
  std::ofstream(small) << R"(#!/bin/sh
case $1 in
sft) set -- "$@" model.path=)" TLT_SOURCE_DIR R"(/models/headline data.train_batch_size=2 \
       data.train_max_samples=64 trainer.total_training_steps=2 trainer.save_freq=1 ;;
train) set -- "$@" data.max_response_length=24 rollout.n=2 data.val_max_samples=4 ;;
esac
exec )" TLT_PROGRAM R"( "$@"
)";
  std::filesystem::permissions(small, std::filesystem::perms::owner_all);
  const auto start = [&] {
    return Program({}, scratch / "log", [&] {
      if (chdir(scratch.path().c_str()) != 0) return;
      execlp("python3", "python3", TLT_SOURCE_DIR "/bench/headline.py", "--program", "./tlt",
             "--steps", "2", "--turn", "1", "--ways", "plain", "full_early", nullptr);
    });
  };
  for (const char* file :
       {"runs/headline_sft/checkpoints/latest", "runs/headline/seed_0/plain/checkpoints/latest"}) {
    Program headline = start();
    ASSERT_TRUE(appears(scratch / file)) << headline.output();
    const pid_t group = headline.pid();
    headline.kill_all();
    for (int i = 0; i < 100 && kill(-group, 0) == 0; ++i)  // its `tlt` may still write
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs/headline/summary.json"));
  ASSERT_EQ(start().wait(), 0) << read_text(scratch / "log");
  const auto summary = nlohmann::json::parse(read_text(scratch / "runs/headline/summary.json"));
  for (const char* way : {"plain", "full_early"})
    EXPECT_EQ(summary.at("ways").at(way).at("steps").size(), 2) << way;
}

// Common mistakes of a new user; each error is one sentence.
TEST(RecipesTest, MistakesAreOneSentenceAndExitCodeTwo) {
  const Scratch scratch;
  const std::string folder = "trainer.default_local_dir=" + (scratch / "run").string();
  struct Mistake {
    std::vector<std::string> arguments;
    const char* says;
  };
  const Mistake mistakes[] = {
      {{"train", "recipes/demo.toml", folder, "rolout.n=4"}, "rollout.n"},
      {{"train", "recipes/demo.toml", folder, "rollout.n=four"}, "rollout.n"},
      {{"train", "recipes/none.toml", folder}, "recipes/none.toml"},
      {{"train", "recipes/demo.toml", folder, "model.path=/none"}, "/none"},
      {{"train", "recipes/demo.toml", folder, "data.train_files=none.jsonl"}, "none.jsonl"},
      {{"train", "recipes/demo.toml", folder, "data.train_batch_size=70000"}, "70000"},
      {{"train", "recipes/demo.toml", folder, "rollout.kv_memory_bytes=1000"}, "kv_memory_bytes"},
      {{"train", "recipes/demo.toml", folder, "trainer.device=tpu"}, "tpu"},
      {{"train", "recipes/demo.toml", folder, "reward.functions=wisdom"}, "wisdom"},
      {{"fly"}, "fly"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_EQ(run_program(mistake.arguments, scratch / "log"), 2) << mistake.says << "\n"
                                                                  << read_text(scratch / "log");
    EXPECT_NE(read_text(scratch / "log").find(mistake.says), std::string::npos)
        << read_text(scratch / "log");
  }
}

// Conversations with random user messages and a constant assistant message. Once it is learned,
// every trained token has a probability near 1; with user tokens among the trained ones it would
// not.
TEST(RecipesTest, ConversationsTrainPolicyAndDraftModel) {
  const Scratch scratch;
  const std::filesystem::path tests = std::filesystem::path(TLT_SOURCE_DIR) / "tests";
  write_small_qwen2(scratch / "model", tests / "golden/tokenizers/llama3_style", 1280, 1004);
  std::ofstream(scratch / "model/tokenizer_config.json")
      << R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})";
  std::filesystem::copy_file(tests / "data/chat_templates/llama3.1.jinja",
                             scratch / "model/chat_template.jinja");
  {
    std::ofstream chats(scratch / "chats.jsonl");
    for (int i = 0; i < 64; ++i) {
      const auto turn = [](const char* role, const std::string& text) {
        return nlohmann::json{{"role", role}, {"content", text}};
      };
      chats << nlohmann::json{{"messages",
                               {turn("user", std::to_string(i * 7919 % 1000)),
                                turn("assistant", "so it is"),
                                turn("user", std::to_string(i * 104729 % 1000)),
                                turn("assistant", "so it is")}}}
            << "\n";
    }
  }
  const auto run = [&](const char* command, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        command,
        "model.path=" + (scratch / "model").string(),
        "model.random_seed=0",
        "data.train_files=" + (scratch / "chats.jsonl").string(),
        "data.max_prompt_length=256",
        "data.max_response_length=256",
        "trainer.threads=1",
        "trainer.default_local_dir=" + (scratch / command).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(run_program(arguments, scratch / "log"), 0) << read_text(scratch / "log");
    std::ifstream metrics(scratch / command / "metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(metrics, line);) last = line;
    return nlohmann::json::parse(last);
  };
  const auto policy = run("sft", {"data.train_batch_size=16", "actor.optim.lr=3e-3",
                                  "trainer.total_training_steps=60"});
  EXPECT_GT(policy.at("train/token_probability"), 0.9) << policy;
  const auto drafter =
      run("draft", {"speculative.train.source=responses", "trainer.total_training_steps=4"});
  EXPECT_EQ(drafter.at("step"), 4);
}

// The recipe of docs/dpo.md, for a few steps.
TEST(RecipesTest, DpoDemoLearnsFromGeneratedPairs) {
  const Scratch scratch;
  ASSERT_EQ(run_program({"dpo", "recipes/dpo_demo.toml", "data.train_batch_size=8",
                         "data.val_max_samples=8", "trainer.total_training_steps=2",
                         "trainer.default_local_dir=" + (scratch / "run").string()},
                        scratch / "log"),
            0)
      << read_text(scratch / "log");
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/policy/model.safetensors"));
}

// A user of FastRL: its configuration, verl's GSM8K rows in Parquet, two RL steps.
TEST(RecipesTest, FastRlsConfigurationRunsOnVerlsParquetRows) {
  const Scratch scratch;
  const std::string recipe = (scratch / "recipe.toml").string();
  ASSERT_EQ(run_program({"import", "verl", "tests/golden/verl/fastrl.yaml", "--out", recipe},
                        scratch / "log"),
            0)
      << read_text(scratch / "log");
  write_small_qwen2(scratch / "model",
                    std::filesystem::path(TLT_SOURCE_DIR) / "tests/golden/tokenizers/gpt2_style",
                    1024, 0);
  const int code = run_program(
      {"train", recipe, "model.path=" + (scratch / "model").string(), "model.random_seed=0",
       "data.train_files=tests/golden/parquet/verl_gsm8k.parquet", "data.val_files=[]",
       "data.chat_template=chatml", "data.train_batch_size=8", "data.max_response_length=16",
       "rollout.kv_memory_bytes=67108864", "trainer.total_training_steps=2", "trainer.device=cpu",
       "rollout.tensor_model_parallel_size=1",  // the configuration has 4
       "trainer.logger=[\"console\"]",          // not wandb, whose package may be missing
       "trainer.default_local_dir=" + (scratch / "run").string()},
      scratch / "log");
  ASSERT_EQ(code, 0) << read_text(scratch / "log");
  std::ifstream metrics(scratch / "run" / "metrics.jsonl");
  int steps = 0;
  for (std::string line; std::getline(metrics, line); ++steps) {
    const auto step = nlohmann::json::parse(line);
    EXPECT_EQ(step.at("training/rollout_logprobs_diff_max"), 0) << line;
  }
  EXPECT_EQ(steps, 2);
  std::ifstream rollouts(scratch / "run" / "rollouts" / "000002.jsonl");
  int responses = 0;
  for (std::string line; std::getline(rollouts, line); ++responses) {
    const auto response = nlohmann::json::parse(line);
    EXPECT_NE(response.at("input").get<std::string>().find("How many apples are left?"),
              std::string::npos);
    EXPECT_FALSE(response.at("gts").get<std::string>().empty());
  }
  EXPECT_EQ(responses, 64);
}

TEST(RecipesTest, FolderInUseIsRefused) {
  const Scratch scratch;
  const std::string folder = "trainer.default_local_dir=" + (scratch / "run").string();
  tests::Program first({"train", "recipes/demo.toml", folder}, scratch / "log1");
  for (int i = 0; i < 1000 && !std::filesystem::exists(scratch / "run" / "options.toml"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(run_program({"train", "recipes/demo.toml", folder}, scratch / "log2"), 2);
  EXPECT_NE(read_text(scratch / "log2").find("run"), std::string::npos)
      << read_text(scratch / "log2");
}

TEST(RecipesTest, InterruptedRunSavesAndResumes) {
  const Scratch scratch;
  const std::vector<std::string> arguments = {
      "train",
      "recipes/demo.toml",
      "trainer.default_local_dir=" + (scratch / "run").string(),
      "trainer.val_before_train=false",
      "trainer.test_freq=0",
      "data.train_batch_size=4",
      "data.max_response_length=48",
      "trainer.total_training_steps=400",
      "trainer.save_freq=1000"};
  tests::Program program(arguments, scratch / "log");
  for (int i = 0; i < 2000 && !std::filesystem::exists(scratch / "run" / "rollouts/000002.jsonl");
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 128 + SIGINT) << program.output();
  EXPECT_NE(program.output().find("resumes from there"), std::string::npos) << program.output();
  tests::Program again(arguments, scratch / "log2");
  for (int i = 0;
       i < 2000 && read_text(scratch / "log2").find("resuming from") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(read_text(scratch / "log2").find("resuming from"), std::string::npos)
      << read_text(scratch / "log2");
}

}  // namespace
}  // namespace tlt
