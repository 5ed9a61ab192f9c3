// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/files.h"
#include "model/hf_folder.h"
#include "tests/support/golden_batch.h"
#include "tests/support/test_folder.h"

namespace tlt::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : model_(golden_model("llama_tied")), optimizer_(*model_, {}) {}

  // A step that changes every weight.
  void learn() {
    model::Gradients gradients = model_->make_gradients();
    for (at::Tensor& tensor : gradients.tensors) tensor.fill_(0.1);
    optimizer_.step(gradients, 0.01);
  }
  // A checkpoint with the policy, as runs have it.
  CheckpointParts parts(const std::string& loop_text = "{}") const {
    const auto policy = std::make_shared<model::PolicySnapshot>(model::snapshot_policy(*model_));
    return {.optimizer = optimizer_.snapshot(),
            .texts = {{kLoopText, loop_text}},
            .files = {[policy](const std::string& folder) {
              model::save_policy(*policy, folder + "/policy", kGolden + "models/llama_tied");
            }}};
  }
  void save(int64_t step) {
    CheckpointWriter writer(folder_.path(), /*keep=*/0);
    writer.save(step, parts("{\"step\": " + std::to_string(step) + "}"));
    writer.drain();
  }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : optimizer_.state()) all.push_back(tensor.clone());
    for (const auto& parameter : model_->parameters())
      all.push_back(parameter.read(model_->device()));
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TestFolder folder_;
  std::unique_ptr<model::PolicyModel> model_;
  Optimizer optimizer_;
};

TEST_F(CheckpointTest, WhatIsLoadedIsWhatWasSaved) {
  EXPECT_FALSE(find_latest(folder_.path()));
  learn();
  const auto want = state();
  save(10);
  learn();
  learn();
  const auto place = find_latest(folder_.path());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->step, 10);
  EXPECT_EQ(read_text(*place, kLoopText), "{\"step\": 10}");
  EXPECT_EQ(read_text(*place, "other.json"), std::nullopt);
  load_checkpoint(*place, optimizer_, 1);
  EXPECT_EQ(optimizer_.steps(), 1);
  const auto got = state();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
  EXPECT_EQ(read_file(folder_ / "latest", 100), "step_000010\n");
  const auto policy = model::load_policy(place->folder + "/policy", Device::cpu(1), at::kFloat);
  for (size_t p = 0; p < policy->parameters().size(); ++p)
    EXPECT_TRUE(at::equal(policy->parameters()[p].read(policy->device()),
                          model_->parameters()[p].read(model_->device())));
}

TEST_F(CheckpointTest, TheSnapshotIsOfTheMomentOfTheCall) {
  const auto want = state();
  {
    CheckpointWriter writer(folder_.path(), 0);
    writer.save(1, parts());
    learn();  // while the file thread writes
    writer.drain();
  }
  load_checkpoint(*find_latest(folder_.path()), optimizer_, 0);
  const auto got = state();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
}

TEST_F(CheckpointTest, TheNewestStayAndAStepCanBeSavedAgain) {
  CheckpointWriter writer(folder_.path(), /*keep=*/2);
  for (const int64_t step : {1, 2, 3, 3, 4}) writer.save(step, parts());
  writer.drain();
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_000003", "step_000004"}));
  EXPECT_EQ(find_latest(folder_.path())->step, 4);
}

// They would push out every checkpoint that is written.
TEST_F(CheckpointTest, NewerOnesThanTheRunResumedFromAreNotCounted) {
  for (const int64_t step : {2, 8, 9}) save(step);
  CheckpointWriter writer(folder_.path(), /*keep=*/2, /*resumed_from=*/2);
  for (const int64_t step : {3, 4}) writer.save(step, parts());
  writer.drain();
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_000003", "step_000004",
                                               "step_000008", "step_000009"}));
}

// Every way a file can be damaged, for every file of the checkpoint: the one before is taken, and
// alone it is refused.
TEST_F(CheckpointTest, ABrokenCheckpointIsNeverTakenForWhole) {
  save(1);
  learn();
  save(2);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "step_000002"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  ASSERT_GE(files.size(), 6u);
  for (const std::string& file : files) {
    const std::string whole = read_file(file, 1 << 26);
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x10);
    for (const std::string& damage :
         {whole.substr(0, whole.size() / 2), std::string(), flipped, whole + "x"}) {
      write_file_atomic(file, damage);
      const auto place = find_latest(folder_.path());
      ASSERT_TRUE(place) << file;
      EXPECT_EQ(place->step, 1) << file << " with " << damage.size() << " of " << whole.size()
                                << " bytes";
    }
    fs::remove(file);
    EXPECT_EQ(find_latest(folder_.path())->step, 1) << file << " removed";
    write_file_atomic(file, whole);
    EXPECT_EQ(find_latest(folder_.path())->step, 2) << file << " as it was";
  }
  fs::remove(folder_ / "step_000001/state/loop.json");
  fs::remove(folder_ / "step_000002/state/loop.json");
  EXPECT_THROW(find_latest(folder_.path()), InputError);
}

// Its files are whole: a copy of another checkpoint, or one with a mended manifest.
TEST_F(CheckpointTest, CheckpointUnderTheNameOfAnotherStepIsNotTaken) {
  save(1);
  save(2);
  fs::rename(folder_ / "step_000002", folder_ / "step_000003");
  testing::internal::CaptureStderr();
  const auto place = find_latest(folder_.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("step_000003 is broken (state/loop.json is of step 2)"));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->step, 1);
}

TEST_F(CheckpointTest, DamagedManifestIsNamed) {
  save(1);
  save(2);
  for (const auto& [text, said] :
       {std::pair("{\"files\": ", "(MANIFEST.json: line 1, column "),
        std::pair("[]", "(MANIFEST.json: array where another type is expected)")}) {
    write_file_atomic(folder_ / "step_000002/MANIFEST.json", text);
    testing::internal::CaptureStderr();
    const auto place = find_latest(folder_.path());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr(said));
    ASSERT_TRUE(place);
    EXPECT_EQ(place->step, 1);
  }
}

TEST_F(CheckpointTest, OneWithinAStepIsUsedUntilTheNextWholeOne) {
  const auto is_found = [&](const std::string& options, int64_t total_steps) {
    return find_within_step(folder_.path(), options, total_steps).has_value();
  };
  EXPECT_FALSE(is_found("these", 10));
  save(2);
  CheckpointWriter writer(folder_.path(), /*keep=*/0);
  CheckpointParts within = parts("{\"step\": 3}");
  within.texts[kOptionsText] = "these";
  writer.save_within_step(std::move(within));
  writer.drain();
  const auto place = find_within_step(folder_.path(), "these", /*total_steps=*/10);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->step, 3);
  EXPECT_TRUE(place->is_within_step);
  EXPECT_FALSE(is_found("others", 10));
  EXPECT_TRUE(is_found("these", 4));
  EXPECT_FALSE(is_found("these", 3)) << "the run has no fourth step";
  EXPECT_EQ(find_latest(folder_.path())->step, 2);
  std::ofstream(place->folder + "/state/" + kOptionsText) << "thoss";
  EXPECT_FALSE(is_found("these", 10)) << "damaged";
  writer.save(4, parts("{\"step\": 4}"));
  writer.drain();
  EXPECT_THAT(names(), testing::ElementsAre("latest", "step_000002", "step_000004"));
}

TEST_F(CheckpointTest, LeftoversOfAKilledRunAreReplaced) {
  save(1);
  fs::copy(folder_ / "step_000001", folder_ / "step_000002.writing", fs::copy_options::recursive);
  EXPECT_EQ(find_latest(folder_.path())->step, 1);
  save(2);
  EXPECT_EQ(find_latest(folder_.path())->step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_000001", "step_000002"}));
}

TEST_F(CheckpointTest, AnErrorOfTheFileThreadReachesTheCaller) {
  std::ofstream(folder_ / "file") << "in the way";
  CheckpointWriter writer(folder_ / "file", 0);
  writer.save(1, parts());
  EXPECT_ANY_THROW(writer.drain());
}

}  // namespace
}  // namespace tlt::train
