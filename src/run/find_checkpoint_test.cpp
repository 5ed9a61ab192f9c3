// SPDX-License-Identifier: Apache-2.0
#include "run/find_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "base/files.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"

namespace tlt::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kWorkers = 3;

class FindCheckpointTest : public ::testing::Test {
 protected:
  void save(int64_t step) const {
    train::CheckpointWriter writer(shared_.path(), /*keep=*/0);
    train::CheckpointParts parts;
    parts.optimizer.push_back(model::TensorSource::of("a", at::zeros({2})));
    parts.texts[train::kLoopText] = "{}";
    writer.save(step, std::move(parts));
    writer.drain();
  }
  // One within the step after `step`.
  void save_within(int64_t step) const {
    train::CheckpointWriter writer(shared_.path(), /*keep=*/0);
    train::CheckpointParts parts;
    parts.optimizer.push_back(model::TensorSource::of("a", at::zeros({2})));
    parts.texts[train::kLoopText] = "{\"step\": " + std::to_string(step) + "}";
    parts.texts[train::kOptionsText] = "these";
    writer.save_within_step(std::move(parts));
    writer.drain();
  }
  // What each worker finds: its step, or the message of its error. `other`: the folder of rank 2.
  std::vector<std::string> find(const std::string& other, const WithinStep& within = {}) const {
    std::vector<std::string> found;
    std::mutex mutex;
    train::run_workers(kWorkers, [&](cluster::Comm& comm) {
      std::string what = "none";
      const std::string error = thrown_message<InputError>([&] {
        const auto place = find_checkpoint(comm.rank() == 2 ? other : shared_.path(), comm, within);
        if (place) what = (place->is_within_step ? "after " : "") + std::to_string(place->step);
      });
      const std::scoped_lock lock(mutex);
      found.push_back(error.empty() ? what : error);
    });
    return found;
  }

  const TestFolder shared_, other_;
};

TEST_F(FindCheckpointTest, AllWorkersTakeTheNewestThatIsWhole) {
  EXPECT_THAT(find(shared_.path()), AllOf(SizeIs(kWorkers), Each("none")));
  for (const int64_t step : {4, 8}) save(step);
  EXPECT_THAT(find(shared_.path()), AllOf(SizeIs(kWorkers), Each("8")));
  fs::remove(shared_ / "step_000008/state/loop.json");
  EXPECT_THAT(find(shared_.path()), AllOf(SizeIs(kWorkers), Each("4")));
  fs::remove(shared_ / "step_000004/state/loop.json");
  EXPECT_THAT(find(shared_.path()), AllOf(SizeIs(kWorkers), Each(HasSubstr("is broken; set"))));
}

TEST_F(FindCheckpointTest, OneWithinAStepCountsUnlessAWholeOneIsNewer) {
  const WithinStep wanted{.options = "these", .total_steps = 10};
  save_within(0);
  EXPECT_THAT(find(shared_.path(), wanted), AllOf(SizeIs(kWorkers), Each("after 0")));
  save(4);
  EXPECT_THAT(find(shared_.path(), wanted), AllOf(SizeIs(kWorkers), Each("4")));
  for (const int64_t step : {4, 6}) {
    save_within(step);
    EXPECT_THAT(find(shared_.path(), wanted),
                AllOf(SizeIs(kWorkers), Each("after " + std::to_string(step))));
  }
  EXPECT_THAT(find(shared_.path()), AllOf(SizeIs(kWorkers), Each("4"))) << "not asked for";
  save_within(3);
  EXPECT_THAT(find(shared_.path(), wanted), AllOf(SizeIs(kWorkers), Each("4"))) << "an old one";
}

TEST_F(FindCheckpointTest, OneWithinAStepIsUsedIfAllWholeOnesAreBroken) {
  const WithinStep wanted{.options = "these", .total_steps = 10};
  save(4);
  save_within(4);
  fs::remove(shared_ / "step_000004/state/loop.json");
  EXPECT_THAT(find(shared_.path(), wanted), AllOf(SizeIs(kWorkers), Each("after 4")));
  fs::remove(shared_ / "unfinished_update/state/loop.json");
  EXPECT_THAT(find(shared_.path(), wanted), AllOf(SizeIs(kWorkers), Each(HasSubstr("is broken"))));
}

// With many workers the disk would send each file as many times.
TEST_F(FindCheckpointTest, OnlyRankZeroReadsWhatTheManifestLists) {
  save(4);
  const std::string manifest = "step_000004/MANIFEST.json";
  EXPECT_THAT(find(other_.path()),
              AllOf(SizeIs(kWorkers), Each(HasSubstr("rank 2 sees another checkpoint"))));
  make_folder(other_ / "step_000004");
  fs::copy(shared_ / manifest, other_ / manifest);
  EXPECT_THAT(find(other_.path()), AllOf(SizeIs(kWorkers), Each("4")));
  write_file_atomic(other_ / manifest, read_file(shared_ / manifest, 1 << 20) + " ");
  EXPECT_THAT(find(other_.path()),
              AllOf(SizeIs(kWorkers), Each(HasSubstr("rank 2 sees another checkpoint"))));
}

}  // namespace
}  // namespace tlt::run
