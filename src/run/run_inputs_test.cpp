// SPDX-License-Identifier: Apache-2.0
#include "run/run_inputs.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tlt::run
