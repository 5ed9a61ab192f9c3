// SPDX-License-Identifier: Apache-2.0
#include "run/run_inputs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::run {
namespace {

TEST(RunInputsTest, EveryFileHasAnEntryAlsoIfItIsMissing) {
  const TestFolder folder;
  write_file_atomic(folder / "a.jsonl", "{}\n");
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  options.data.train_files = {"countdown:seed=1,size=4", folder / "missing.jsonl"};
  options.data.val_files = {folder / "a.jsonl"};
  options.data.chat_template = folder / "none.jinja";
  options.speculative.eagle.spec_model_path = folder / "unused";
  options.speculative.enable = false;
  const auto inputs = fingerprint_inputs(options);
  ASSERT_EQ(inputs.size(), 4U);
  EXPECT_EQ(inputs[0].name, "model.path");
  EXPECT_EQ(inputs[1].name, "data.train_files: " + (folder / "missing.jsonl"));
  EXPECT_EQ(inputs[2].name, "data.val_files: " + (folder / "a.jsonl"));
  EXPECT_EQ(inputs[3].name, "data.chat_template");
  EXPECT_EQ(inputs[1].fingerprint, inputs[3].fingerprint);

  write_file_atomic(folder / "a.jsonl", "{ }\n");
  const auto changed = fingerprint_inputs(options);
  EXPECT_NE(changed[2].fingerprint, inputs[2].fingerprint);
  EXPECT_EQ(changed[0].fingerprint, inputs[0].fingerprint);
}

// By name, the fingerprint.
std::map<std::string, std::string> fingerprints(const RunOptions& options) {
  std::map<std::string, std::string> all;
  for (const cluster::Input& input : fingerprint_inputs(options))
    all[input.name] = input.fingerprint;
  return all;
}

TEST(RunInputsTest, FilesOfTheRewardCommandAreCovered) {
  const TestFolder folder;
  const std::string program = folder / "reward.py", data = folder / "words.txt";
  write_file_atomic(program, "print(1)\n");
  write_file_atomic(data, "a\n");
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  options.reward.command = "LEVEL=2 python3 '" + program + "' --words=" + data + " <none";
  EXPECT_FALSE(fingerprints(options).contains("reward.command: " + program)) << "it is not used";
  options.reward.functions = {"exact", "command"};
  const auto before = fingerprints(options);
  ASSERT_TRUE(before.contains("reward.command: " + program));
  ASSERT_TRUE(before.contains("reward.command: " + data));
  EXPECT_EQ(before.at("reward.command: none"), before.at("reward.command: python3"));
  write_file_atomic(program, "print(2)\n");
  auto after = fingerprints(options);
  EXPECT_NE(after.at("reward.command: " + program), before.at("reward.command: " + program));
  after["reward.command: " + program] = before.at("reward.command: " + program);
  EXPECT_EQ(after, before);
}

TEST(RunInputsTest, PromptOfTheJudgeIsCovered) {
  const TestFolder folder;
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  options.reward.functions = {"judge"};
  options.reward.judge.prompt = folder / "judge.txt";
  write_file_atomic(options.reward.judge.prompt, "{response}");
  const auto before = fingerprints(options);
  write_file_atomic(options.reward.judge.prompt, "Judge {response}");
  EXPECT_NE(fingerprints(options).at("reward.judge.prompt"), before.at("reward.judge.prompt"));
}

TEST(RunInputsTest, InitialDraftModelIsCovered) {
  const TestFolder folder;
  RunOptions options;
  options.model.path = std::string(TLT_SOURCE_DIR) + "/models/demo";
  EXPECT_FALSE(fingerprints(options).contains("speculative.train.init"));
  options.speculative.train.warmup.init = folder / "drafter";
  const auto missing = fingerprints(options);
  std::filesystem::copy(options.model.path, folder / "drafter");
  const auto before = fingerprints(options);
  EXPECT_NE(before.at("speculative.train.init"), missing.at("speculative.train.init"));
  write_file_atomic(folder / "drafter/hot_token_id.json", "[1]");
  EXPECT_NE(fingerprints(options).at("speculative.train.init"),
            before.at("speculative.train.init"));
}

TEST(RunInputsTest, WeightsMustBeTheSameUnlessTheRunBeginsWithRandomOnes) {
  const TestFolder folder;
  RunOptions options;
  options.model.path = folder / "model";
  std::filesystem::copy(std::string(TLT_SOURCE_DIR) + "/models/demo", options.model.path);
  const auto change = [&] {
    const std::string file = options.model.path + "/model.safetensors";
    std::string bytes = read_file(file, int64_t{1} << 30);
    ++bytes.back();
    write_file_atomic(file, bytes);
  };
  for (const bool is_random : {false, true}) {
    options.model.random_seed = is_random ? 3 : -1;
    const auto before = fingerprints(options);
    change();
    EXPECT_EQ(fingerprints(options) == before, is_random);
  }
}

}  // namespace
}  // namespace tlt::run
