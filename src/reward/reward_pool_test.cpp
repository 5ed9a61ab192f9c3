// SPDX-License-Identifier: Apache-2.0
#include "reward/reward_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "base/random.h"

namespace tlt::reward {
namespace {

using namespace std::chrono_literals;
using Clock = RewardPool::Clock;

// Rewards hang here until the test releases them. Shared, since a hung reward may outlive the test.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_arrivals(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

// The response is the script: "hang", "throw", "throw part", "throw int", "nan", or a number.
class ScriptedReward : public Reward {
 public:
  explicit ScriptedReward(std::shared_ptr<Gate> gate = nullptr) : gate_(std::move(gate)) {}

  RewardResult score(const RewardInput& input) const override {
    const std::string text(input.response);
    if (text == "hang") gate_->pass();
    if (text == "throw") throw std::runtime_error("bad " + std::string(input.ground_truth));
    if (text == "throw part") throw RewardError("part", "bad part");
    if (text == "throw int") throw 7;
    if (text == "nan") return {.score = NAN};
    if (text == "hang") return {.score = -1};
    return {.score = std::stod(text), .extras = {{"twice", 2 * std::stod(text)}}};
  }
  void check_row(const RewardInput&) const override {}
  RewardNeeds needs() const override { return {}; }
  std::string name() const override { return "scripted"; }
  double wall_factor(std::string_view source) const override { return source == "slow" ? 1e3 : 1; }

 private:
  const std::shared_ptr<Gate> gate_;
};

RewardJob job(std::string response, std::string ground_truth = "") {
  return {.data_source = "test",
          .response = std::move(response),
          .ground_truth = std::move(ground_truth)};
}

RewardOptions options(int64_t threads, double timeout_seconds) {
  RewardOptions made;
  made.threads = threads;
  made.timeout_seconds = timeout_seconds;
  return made;
}

TEST(RewardPoolTest, SamplesAreReturnedById) {
  RewardPool pool(std::make_shared<ScriptedReward>(),
                  options(/*threads=*/4, /*timeout_seconds=*/100));
  for (int i = 499; i >= 0; --i) pool.submit(i * 3, job(std::to_string(i)));
  const auto samples = pool.wait_all();
  ASSERT_EQ(samples.size(), 500u);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(samples[i].id, static_cast<uint64_t>(i * 3));
    EXPECT_EQ(samples[i].status, RewardStatus::kScored);
    EXPECT_EQ(samples[i].result.score, i);
    EXPECT_EQ(samples[i].result.extras.at("twice"), 2 * i);
  }
  EXPECT_EQ(pool.counters().scored, 500);
  EXPECT_TRUE(pool.wait_all().empty());
}

TEST(RewardPoolTest, EveryFieldReachesTheReward) {
  class Checking : public ScriptedReward {
    RewardResult score(const RewardInput& input) const override {
      const bool all = input.data_source == "source" && input.response == "response" &&
                       input.raw_response == "raw" && input.ground_truth == "truth" &&
                       input.prompt == "prompt" && input.truncated && input.extra_info == nullptr;
      return {.score = all ? 1.0 : 0.0};
    }
  };
  RewardPool pool(std::make_shared<Checking>(), options(1, 100));
  pool.submit(0, {.data_source = "source",
                  .response = "response",
                  .raw_response = "raw",
                  .ground_truth = "truth",
                  .prompt = "prompt",
                  .truncated = true});
  EXPECT_EQ(pool.wait_all().at(0).result.score, 1);
}

TEST(RewardPoolTest, ThrowingRewardFailsItsSampleOnly) {
  RewardPool pool(std::make_shared<ScriptedReward>(), options(1, 100));
  pool.submit(1, job("throw", "first"));
  pool.submit(2, job("5"));
  pool.submit(3, job("throw", "second"));
  pool.submit(4, job("throw part"));
  pool.submit(5, job("throw int"));
  pool.submit(6, job("nan"));
  pool.submit(7, job("6"));
  const auto samples = pool.wait_all();
  ASSERT_EQ(samples.size(), 7u);
  for (const int failed : {0, 2, 3, 4, 5}) {
    EXPECT_EQ(samples[failed].status, RewardStatus::kFailed) << failed;
    EXPECT_EQ(samples[failed].result.score, 0) << failed;
    EXPECT_FALSE(samples[failed].error.empty()) << failed;
  }
  EXPECT_EQ(samples[1].result.score, 5);
  EXPECT_EQ(samples[6].result.score, 6);
  const RewardCounters counters = pool.counters();
  EXPECT_EQ(counters.scored, 2);
  EXPECT_EQ(counters.failed, 5);
  EXPECT_EQ(counters.late, 0);
  EXPECT_EQ(counters.errors, (std::map<std::string, int64_t>{{"part", 1}, {"scripted", 4}}));
  EXPECT_EQ(counters.first_error.at("scripted"), "bad first");
  EXPECT_EQ(counters.first_error.at("part"), "bad part");
}

TEST(RewardPoolTest, PollNeverWaitsAndReturnsEachSampleOnce) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(1, 100));
  EXPECT_TRUE(pool.poll().empty());
  pool.submit(0, job("1"));
  pool.submit(1, job("hang"));
  pool.submit(2, job("2"));
  gate->wait_for_arrivals(1);  // so 0 is scored, 1 runs, 2 waits
  const auto early = pool.poll();
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].id, 0u);
  EXPECT_TRUE(pool.poll().empty());
  gate->open();
  const auto rest = pool.wait_all();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].id, 1u);
  EXPECT_EQ(rest[0].result.score, -1);
  EXPECT_EQ(rest[1].result.score, 2);
}

TEST(RewardPoolTest, SameIdTwiceAtOnceThrows) {
  RewardPool pool(std::make_shared<ScriptedReward>(), options(1, 100));
  pool.submit(7, job("1"));
  EXPECT_THROW(pool.submit(7, job("1")), Error);
  EXPECT_EQ(pool.wait_all().size(), 1u);
  EXPECT_NO_THROW(pool.submit(7, job("1")));
}

// A job with a later deadline may start first.
TEST(RewardPoolTest, RewardMayHaveAMultipleOfTheTimeout) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(2, 0.3));
  pool.submit(0, {.data_source = "slow", .response = "hang"});
  gate->wait_for_arrivals(1);
  pool.submit(1, job("hang"));
  std::vector<ScoredSample> late;
  while (late.empty()) {
    std::this_thread::sleep_for(5ms);
    late = pool.poll();
  }
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].id, 1u);
  EXPECT_EQ(late[0].status, RewardStatus::kLate);
  gate->open();
  const auto rest = pool.wait_all();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].status, RewardStatus::kScored);
}

TEST(RewardPoolTest, LateRewardFailsItsSampleOnly) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(1, 0.4));
  pool.submit(0, job("hang"));
  pool.submit(1, job("1"));
  const auto samples = pool.wait_all();
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].status, RewardStatus::kLate);
  EXPECT_EQ(samples[0].result.score, 0);
  EXPECT_EQ(samples[0].error, "ran longer than 0.4 seconds on a row of data source `test`");
  EXPECT_EQ(samples[1].result.score, 1);
  EXPECT_EQ(pool.counters().late, 1);

  pool.submit(0, job("5"));  // the id is free again, though the old reward still runs …
  gate->open();              // … and returns now: its score is dropped
  const auto again = pool.wait_all();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].result.score, 5);
  EXPECT_TRUE(pool.wait_all().empty());
}

TEST(RewardPoolTest, LatenessIsFoundWithoutACall) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(1, 0.01));
  pool.submit(0, job("hang"));
  pool.submit(1, job("hang"));
  gate->wait_for_arrivals(2);  // the second can only run on a new thread
  gate->open();
}

TEST(RewardPoolTest, RunContinuesWhenAllThreadsHang) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(2, 0.02));
  constexpr int kJobs = 2 + kMaxHungThreads + 5;
  for (int i = 0; i < kJobs; ++i) pool.submit(i, job("hang"));
  const auto samples = pool.wait_all();
  ASSERT_EQ(samples.size(), static_cast<size_t>(kJobs));
  int never_ran = 0;
  for (const ScoredSample& sample : samples) {
    EXPECT_EQ(sample.status, RewardStatus::kLate);
    never_ran += sample.error.starts_with("never ran");
  }
  EXPECT_EQ(never_ran, 5);
  EXPECT_EQ(pool.counters().late, kJobs);

  pool.submit(0, job("1"));  // no thread is there to run it
  EXPECT_EQ(pool.wait_all().at(0).status, RewardStatus::kLate);

  gate->open();  // the threads return
  bool scored = false;
  for (int attempt = 0; attempt < 100 && !scored; ++attempt) {
    pool.submit(0, job("1"));
    scored = pool.wait_all().at(0).status == RewardStatus::kScored;
  }
  EXPECT_TRUE(scored);
}

TEST(RewardPoolTest, DeadlineOfTheStepEndsTheWait) {
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(1, 100));
  pool.submit(0, job("1"));
  pool.submit(1, job("hang"));
  pool.submit(2, job("2"));
  gate->wait_for_arrivals(1);
  const auto samples = pool.wait_all(Clock::now() + 10ms);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].status, RewardStatus::kScored);
  EXPECT_EQ(samples[1].status, RewardStatus::kLate);
  EXPECT_EQ(samples[2].status, RewardStatus::kLate);
  pool.submit(3, job("3"));
  EXPECT_EQ(pool.wait_all().at(0).result.score, 3);
  gate->open();
}

TEST(RewardPoolTest, DestructorDoesNotWaitForAHungReward) {
  const auto gate = std::make_shared<Gate>();
  // Reports its destruction: after the pool's, by the thread that hung.
  class DestructionReporter : public ScriptedReward {
   public:
    DestructionReporter(std::shared_ptr<Gate> gate, std::promise<void> gone)
        : ScriptedReward(std::move(gate)), gone_(std::move(gone)) {}
    ~DestructionReporter() override { gone_.set_value(); }

   private:
    std::promise<void> gone_;
  };
  std::promise<void> gone;
  std::future<void> is_gone = gone.get_future();
  Clock::time_point begin;
  {
    RewardPool pool(std::make_shared<DestructionReporter>(gate, std::move(gone)), options(2, 100));
    pool.submit(0, job("hang"));
    pool.submit(1, job("1"));
    gate->wait_for_arrivals(1);
    begin = Clock::now();
  }
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), kCloseSeconds + 5);
  EXPECT_EQ(is_gone.wait_for(0s), std::future_status::timeout);
  gate->open();
  EXPECT_EQ(is_gone.wait_for(5s), std::future_status::ready);
}

TEST(RewardPoolTest, DestructorWaitsForARunningReward) {
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  class Brief : public ScriptedReward {
   public:
    Brief(std::shared_ptr<Gate> gate, std::shared_ptr<std::atomic<bool>> ended)
        : gate_(std::move(gate)), ended_(std::move(ended)) {}
    RewardResult score(const RewardInput&) const override {
      gate_->pass();
      ended_->store(true);
      return {};
    }

   private:
    const std::shared_ptr<Gate> gate_;
    const std::shared_ptr<std::atomic<bool>> ended_;
  };
  const auto gate = std::make_shared<Gate>();
  std::jthread opener;
  {
    RewardPool pool(std::make_shared<Brief>(gate, ended), options(1, 100));
    pool.submit(0, job(""));
    gate->wait_for_arrivals(1);
    opener = std::jthread([gate] { gate->open(); });
  }
  EXPECT_TRUE(ended->load());
}

// Samples of every kind at once, submitted by one thread and fetched at times: each id gets the
// result of its script, whatever the timing.
TEST(RewardPoolTest, RandomLoadGivesEachSampleItsScore) {
  RandomStream random(22, {});
  const auto gate = std::make_shared<Gate>();
  RewardPool pool(std::make_shared<ScriptedReward>(gate), options(3, 0.4));
  std::map<uint64_t, std::string> scripts;
  std::map<uint64_t, ScoredSample> samples;
  const auto keep = [&](std::vector<ScoredSample> fetched) {
    for (size_t i = 0; i < fetched.size(); ++i) {
      EXPECT_TRUE(i == 0 || fetched[i - 1].id < fetched[i].id);
      EXPECT_TRUE(samples.emplace(fetched[i].id, fetched[i]).second);
    }
  };
  std::vector<uint64_t> ids(400);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  random.shuffle(ids);
  for (const uint64_t id : ids) {
    scripts[id] = id % 150 == 0 ? "hang" : random.below(4) == 0 ? "throw" : std::to_string(id);
    pool.submit(id, job(scripts[id]));
    if (random.below(20) == 0) keep(pool.poll());
  }
  keep(pool.wait_all());
  gate->open();
  ASSERT_EQ(samples.size(), ids.size());
  for (const auto& [id, script] : scripts) {
    const ScoredSample& sample = samples.at(id);
    if (script == "hang") {
      EXPECT_EQ(sample.status, RewardStatus::kLate) << id;
    } else if (script == "throw") {
      EXPECT_EQ(sample.status, RewardStatus::kFailed) << id;
    } else {
      EXPECT_EQ(sample.status, RewardStatus::kScored) << id;
      EXPECT_EQ(sample.result.score, static_cast<double>(id));
    }
  }
  const RewardCounters counters = pool.counters();
  EXPECT_EQ(counters.late, 3);
  EXPECT_EQ(counters.scored + counters.failed + counters.late, 400);
}

}  // namespace
}  // namespace tlt::reward
