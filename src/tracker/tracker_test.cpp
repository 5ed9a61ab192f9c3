// SPDX-License-Identifier: Apache-2.0
#include "tracker/tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"
#include "tests/support/test_folder.h"
#include "tests/support/tracker_package.h"

namespace tlt::tracker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

constexpr seconds kLong(300);  // much more than a loaded machine needs

Json start_request(const std::string& id = "") {
  return {{"project", "p"}, {"name", "n"}, {"id", id}, {"config", {{"trainer.seed", 7}}}};
}

std::string log_request(int step) {
  return Json{{"log", {{"step", step}, {"x", 0.5}, {"bad", nullptr}}}}.dump();
}

class TrackerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests::has_python()) GTEST_SKIP() << "no python3";
  }

  // A tracker of the fake package, which does `fault` (tests/support/tracker_package.h).
  std::unique_ptr<Tracker> start(const std::string& fault, TrackerLimits limits = {},
                                 const std::string& id = "") {
    package_.set_fault(fault);
    return std::make_unique<Tracker>("wandb", start_request(id), limits);
  }

  // Ends it as a run does.
  static void end(Tracker& tracker, std::chrono::milliseconds time = kLong) {
    tracker.finish(/*exit_code=*/0);
    tracker.wait_for_end(Tracker::Clock::now() + time);
  }

  tests::TrackerPackage package_{"wandb"};
};

TEST_F(TrackerTest, EverythingArrivesInOrder) {
  Tracker tracker("wandb", start_request());
  ASSERT_EQ(tracker.wait_for_start(kLong), Tracker::State::kRunning) << tracker.fault();
  EXPECT_EQ(tracker.id(), "id-1");
  EXPECT_EQ(tracker.where(), "fake://p/n");
  for (int step = 0; step < 300; ++step) tracker.send(log_request(step));
  end(tracker);
  EXPECT_EQ(tracker.lost(), 0);
  const std::vector<Json> calls = package_.calls();
  ASSERT_EQ(calls.size(), 303u);
  EXPECT_EQ(calls[0], Json::parse(R"({"init": {"project": "p", "name": "n", "id": null}})"));
  EXPECT_EQ(calls[1], Json::parse(R"({"config": {"trainer": {"seed": 7}}})"));
  for (int step = 0; step < 300; ++step) {
    const Json& call = calls[static_cast<size_t>(step) + 2]["log"];
    EXPECT_EQ(call["step"], step);
    EXPECT_EQ(call["metrics"]["x"], 0.5);
    EXPECT_EQ(call["metrics"]["bad"], "nan");
  }
  EXPECT_EQ(calls.back(), Json::parse(R"({"finish": 0})"));
}

TEST_F(TrackerTest, MissingPackageAndPythonAreRefusedWithWhatToType) {
  EXPECT_NO_THROW(Tracker::check("wandb"));
  try {
    Tracker::check("trackio_that_is_not_there");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("-m pip install trackio_that_is_not_there"),
                                    HasSubstr("TLT_PYTHON")));
  }
  tests::Variable python("TLT_PYTHON", "/no/python3");
  try {
    Tracker::check("wandb");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("`/no/python3`"), HasSubstr("TLT_PYTHON")));
  }
}

// wandb writes its runs into ./wandb, which Python takes for a package without a file.
TEST_F(TrackerTest, FolderOfRunsIsNotThePackage) {
  package_.remove();
  make_folder(package_.folder() + "/wandb");
  EXPECT_THROW(Tracker::check("wandb"), InputError);
}

TEST_F(TrackerTest, ErrorAtInitIsAFaultWithTheReason) {
  for (const char* fault : {"raise in init", "exit in init", "raise in import"}) {
    const auto tracker = start(fault);
    EXPECT_EQ(tracker->wait_for_start(kLong), Tracker::State::kOff) << fault;
    EXPECT_THAT(tracker->fault(), HasSubstr("did not start: ")) << fault;
    tracker->send(log_request(1));
    end(*tracker);
    EXPECT_EQ(tracker->lost(), 2) << fault;
  }
}

TEST_F(TrackerTest, ErrorInLogLosesThatMessageOnly) {
  const auto tracker = start("raise in log of step 3");
  for (int step = 0; step < 6; ++step) tracker->send(log_request(step));
  ::testing::internal::CaptureStderr();
  end(*tracker);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("1 of 7 messages"));
  EXPECT_EQ(tracker->lost(), 1);
  EXPECT_EQ(package_.logged_steps(), (std::vector<int>{0, 1, 2, 4, 5}));
}

TEST_F(TrackerTest, DeathInMidRunTurnsItOff) {
  for (const char* fault : {"die in log of step 3", "kill in log of step 3"}) {
    package_.clear();
    const auto tracker = start(fault);
    ASSERT_EQ(tracker->wait_for_start(kLong), Tracker::State::kRunning) << tracker->fault();
    for (int step = 0; step < 6; ++step) tracker->send(log_request(step));
    end(*tracker);
    EXPECT_EQ(tracker->state(), Tracker::State::kOff);
    EXPECT_THAT(tracker->fault(), ::testing::AnyOf(HasSubstr("status 9"), HasSubstr("signal 9")));
    EXPECT_THAT(tracker->fault(), HasSubstr("last words"));
    EXPECT_EQ(tracker->lost(), 4) << "steps 3, 4, 5 and the end";
    EXPECT_EQ(package_.logged_steps(), (std::vector<int>{0, 1, 2})) << fault;
  }
}

// Not only when the next message is sent.
TEST_F(TrackerTest, DeathBetweenMessagesIsNoticed) {
  const auto tracker = start("die after log");
  ASSERT_EQ(tracker->wait_for_start(kLong), Tracker::State::kRunning) << tracker->fault();
  tracker->send(log_request(0));
  const auto deadline = Tracker::Clock::now() + kLong;
  while (tracker->state() != Tracker::State::kOff && Tracker::Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(tracker->state(), Tracker::State::kOff);
}

TEST_F(TrackerTest, HangInLogIsGivenUp) {
  const auto tracker = start("hang in log of step 2", {.answer = seconds(20)});
  ASSERT_EQ(tracker->wait_for_start(kLong), Tracker::State::kRunning) << tracker->fault();
  for (int step = 0; step < 4; ++step) tracker->send(log_request(step));
  end(*tracker);
  EXPECT_THAT(tracker->fault(), HasSubstr("gave no answer within 20 seconds"));
  EXPECT_EQ(package_.logged_steps(), (std::vector<int>{0, 1}));
  EXPECT_EQ(tracker->lost(), 3);
}

TEST_F(TrackerTest, HangAtTheEndIsBounded) {
  const auto tracker = start("hang in finish");
  ASSERT_EQ(tracker->wait_for_start(kLong), Tracker::State::kRunning) << tracker->fault();
  end(*tracker, milliseconds(50));
  EXPECT_EQ(tracker->lost(), 1);
  EXPECT_THAT(tracker->fault(), HasSubstr("still writing"));
}

TEST_F(TrackerTest, HangAtInitDoesNotStopTheRun) {
  const auto tracker = start("hang in init");
  EXPECT_EQ(tracker->wait_for_start(milliseconds(1)), Tracker::State::kStarting);
  tracker->send(log_request(0));
  end(*tracker, milliseconds(50));
  EXPECT_EQ(tracker->lost(), 2);
}

TEST_F(TrackerTest, FullQueueDropsWithoutWaiting) {
  const auto tracker = start("hang in log of step 0", {.queue_bytes = 1 << 12});
  ASSERT_EQ(tracker->wait_for_start(kLong), Tracker::State::kRunning) << tracker->fault();
  for (int step = 0; step < 10000; ++step) tracker->send(log_request(step));
  EXPECT_GT(tracker->lost(), 9000);
  EXPECT_EQ(tracker->state(), Tracker::State::kRunning);
}

TEST_F(TrackerTest, ChattyPackageDoesNotWaitForAReader) {
  const auto tracker = start("chat");
  for (int step = 0; step < 3; ++step) tracker->send(log_request(step));
  end(*tracker);
  EXPECT_EQ(tracker->lost(), 0) << tracker->fault();
  EXPECT_EQ(package_.logged_steps(), (std::vector<int>{0, 1, 2}));
}

TEST_F(TrackerTest, ProcessEndsWithTheTracker) {
  auto tracker = start("hang in log of step 0");
  tracker->send(log_request(0));
  const pid_t pid = package_.wait_for_pid();
  ASSERT_GT(pid, 0);
  tracker.reset();
  EXPECT_FALSE(package_.is_running(pid));
}

}  // namespace
}  // namespace tlt::tracker
