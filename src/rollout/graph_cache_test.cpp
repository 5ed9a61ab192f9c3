// SPDX-License-Identifier: Apache-2.0
#include "rollout/graph_cache.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace tlt::rollout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Its graphs run what was captured, and it keeps a list of events.
class FakeAccelerator final : public runtime::Accelerator {
 public:
  std::unique_ptr<runtime::Graph> capture(at::Device, const std::function<void()>& body) override {
    TLT_CHECK(!fails_, "no memory");
    events_.push_back("capture");
    ++graphs_;
    return std::make_unique<FakeGraph>(*this, body);
  }
  runtime::DeviceMemory memory(at::Device) override { return {}; }
  at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) override {
    return at::empty(sizes, type);
  }

  void fail(bool fails) { fails_ = fails; }
  int64_t graphs() const { return graphs_; }  // that exist
  std::vector<std::string>& events() { return events_; }

 private:
  class FakeGraph final : public runtime::Graph {
   public:
    FakeGraph(FakeAccelerator& owner, std::function<void()> body)
        : owner_(owner), body_(std::move(body)) {}
    ~FakeGraph() override { --owner_.graphs_; }
    void replay() override {
      owner_.events_.push_back("replay");
      body_();
    }

   private:
    FakeAccelerator& owner_;
    const std::function<void()> body_;
  };

  std::vector<std::string> events_;
  bool fails_ = false;
  int64_t graphs_ = 0;
};

class GraphCacheTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMost = 3, kParts = 2;

  void pass(int64_t rows) {
    for (int64_t part = 0; part < kParts; ++part)
      cache_.launch(rows, part, [this, part] {
        accelerator_.events().push_back("part " + std::to_string(part));
      });
  }
  std::vector<std::string> events_of_pass(int64_t rows) {
    accelerator_.events().clear();
    pass(rows);
    return accelerator_.events();
  }

  FakeAccelerator accelerator_;
  GraphCache cache_{accelerator_, at::Device(at::kCPU), kMost};
};

TEST_F(GraphCacheTest, TheSecondPassIsCapturedAndLaterOnesReplayed) {
  EXPECT_THAT(events_of_pass(8), ElementsAre("part 0", "part 1"));
  EXPECT_THAT(events_of_pass(8),
              ElementsAre("capture", "replay", "part 0", "capture", "replay", "part 1"));
  EXPECT_THAT(events_of_pass(8), ElementsAre("replay", "part 0", "replay", "part 1"));
  const GraphStats stats = cache_.stats();
  EXPECT_EQ(stats.direct, 1);
  EXPECT_EQ(stats.captures, 1);
  EXPECT_EQ(stats.replays, 1);
  EXPECT_EQ(stats.sets, 1);
  EXPECT_EQ(stats.rows, 8);
}

TEST_F(GraphCacheTest, TheLeastRecentlyUsedSetIsDropped) {
  for (const int64_t rows : {1, 2, 4, 1, 2, 4}) pass(rows);
  pass(1);  // 2 is the oldest
  pass(8);
  EXPECT_EQ(cache_.stats().sets, kMost) << "8 was not captured yet";
  pass(8);
  EXPECT_EQ(cache_.stats().sets, kMost);
  EXPECT_EQ(cache_.stats().dropped, 1);
  EXPECT_EQ(accelerator_.graphs(), kMost * kParts);
  EXPECT_THAT(events_of_pass(2), ElementsAre("part 0", "part 1")) << "directly, as the first time";
  EXPECT_THAT(events_of_pass(1), ElementsAre("replay", "part 0", "replay", "part 1"));
}

TEST_F(GraphCacheTest, AFailedCaptureIsAnErrorAndLaterOnesAreTried) {
  pass(4);
  accelerator_.fail(true);
  EXPECT_THROW(pass(4), Error);
  accelerator_.fail(false);
  EXPECT_THAT(events_of_pass(4),
              ElementsAre("capture", "replay", "part 0", "capture", "replay", "part 1"));
}

TEST_F(GraphCacheTest, APassThatEndsEarlyIsCapturedLater) {
  pass(4);
  cache_.launch(4, 0, [] {});
  EXPECT_THAT(events_of_pass(4), ElementsAre("replay", "capture", "replay", "part 1"));
}

TEST_F(GraphCacheTest, PartsComeInOrder) {
  EXPECT_THROW(cache_.launch(2, 1, [] {}), Error);
  pass(2);
  cache_.launch(2, 0, [] {});
  EXPECT_THROW(cache_.launch(2, 2, [] {}), Error);
}

TEST_F(GraphCacheTest, ClearForgetsAllGraphs) {
  pass(2);
  pass(2);
  cache_.clear();
  EXPECT_EQ(accelerator_.graphs(), 0);
  EXPECT_THAT(events_of_pass(2), ElementsAre("part 0", "part 1"));
}

// Whatever the passes: their work is done once each, within the bound, and what was used last is
// replayed.
TEST_F(GraphCacheTest, RandomPassesMatchAListOfThoseUsedLast) {
  RandomStream random(1, {});
  std::vector<int64_t> captured, seen;  // used last at the end
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = 1 + static_cast<int64_t>(random.below(7));
    const std::vector<std::string> events = events_of_pass(rows);
    EXPECT_EQ(std::ranges::count(events, "part 0"), 1);
    EXPECT_EQ(std::ranges::count(events, "part 1"), 1);
    const bool was_captured = std::erase(captured, rows) > 0;
    EXPECT_EQ(std::ranges::count(events, "capture") == 0 && events[0] == "replay", was_captured);
    const bool was_seen = std::erase(seen, rows) > 0;
    EXPECT_EQ(events[0] == "capture", was_seen) << "pass " << i;
    (was_captured || was_seen ? captured : seen).push_back(rows);
    if (std::ssize(captured) > kMost) captured.erase(captured.begin());
    EXPECT_EQ(accelerator_.graphs(), std::ssize(captured) * kParts);
  }
  EXPECT_GT(cache_.stats().dropped, 10);
}

}  // namespace
}  // namespace tlt::rollout
