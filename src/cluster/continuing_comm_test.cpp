// SPDX-License-Identifier: Apache-2.0
#include "cluster/continuing_comm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_ranks.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kKilled = 128 + SIGKILL;

// A Comm whose others continue without `lost`, as soon as they notice.
std::unique_ptr<Comm> make_continuing(const Launch& launch, const std::vector<int>& lost) {
  auto comm = make_comm(
      launch, {.timeout_seconds = 20, .rendezvous_seconds = 20, .continues_after_loss = true});
  EXPECT_FALSE(comm->continues_after_loss());
  comm->continue_after_loss([lost](int worker) { return std::ranges::count(lost, worker) > 0; });
  EXPECT_TRUE(comm->continues_after_loss());
  return comm;
}

void die() { kill(getpid(), SIGKILL); }

TEST(ContinuingCommTest, TheOthersGoOnAndKeepTheirNumbers) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_continuing(launch, {1});
    EXPECT_THAT(comm->all_gather_bytes(std::to_string(launch.rank)), ElementsAre("0", "1", "2"));
    if (launch.rank == 1) die();
    EXPECT_THAT(comm->all_gather_bytes(std::to_string(launch.rank)), ElementsAre("0", "2"));
    EXPECT_EQ(comm->size(), 2);
    EXPECT_EQ(comm->rank(), launch.rank == 0 ? 0 : 1);
    EXPECT_EQ(comm->worker(1), 2);
    EXPECT_THAT(comm->lost_workers(), ElementsAre(1));
    comm->barrier("after");
    at::Tensor sum = at::full({5}, launch.rank + 1.0, at::kFloat);
    comm->all_reduce_sum(sum);
    EXPECT_TRUE(at::equal(sum, at::full({5}, 4.0, at::kFloat)));
    at::Tensor most = at::full({2}, launch.rank, at::kLong);
    comm->all_reduce_max(most);
    EXPECT_TRUE(at::equal(most, at::full({2}, 2, at::kLong)));
    at::Tensor news = at::full({7}, launch.rank, at::kInt);
    comm->broadcast(news, 1);
    EXPECT_TRUE(at::equal(news, at::full({7}, 2, at::kInt)));
    at::Tensor parts = at::zeros({2, 3}, at::kFloat);
    parts[comm->rank()] = launch.rank;
    comm->all_gather(parts);
    EXPECT_TRUE(at::equal(parts, at::tensor({0.0f, 2.0f}).unsqueeze(1).expand({2, 3})));
    comm->check_lost({1});  // they have continued without it already
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, kKilled, kPassed));
}

TEST(ContinuingCommTest, ASectionBeginsAgainOnAllThatAreLeft) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_continuing(launch, {2});
    int runs = 0;
    double total = 0;
    comm->section("two sums", [&] {
      ++runs;
      const double first = comm->all_reduce_sum(std::vector<double>{1})[0];
      if (launch.rank == 2) die();
      total = first + comm->all_reduce_sum(std::vector<double>{10})[0];
    });
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(total, 22);  // both sums without the lost worker, though it took part in the first
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, kPassed, kKilled));
}

TEST(ContinuingCommTest, TheLastOneGoesOnAlone) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_continuing(launch, {2});
    comm->barrier("start");
    if (launch.rank == 2) die();
    comm->barrier("first loss");
    comm->continue_after_loss([](int worker) { return worker > 0; });
    if (launch.rank == 1) die();
    comm->barrier("second loss");
    EXPECT_EQ(comm->size(), 1);
    EXPECT_THAT(comm->all_gather_bytes("x"), ElementsAre("x"));
    EXPECT_THAT(comm->lost_workers(), ElementsAre(1, 2));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, kKilled, kKilled));
}

// A worker is killed at any moment of a chain of sections, each of which builds on the result of
// the one before: those that are left have the same results, and no section takes place twice.
TEST(ContinuingCommTest, KilledAtAnyMomentTheOthersAgree) {
  for (int round = 0; round < 12; ++round) {
    const auto ends = run_ranks(
        3,
        [round](const Launch& launch) {
          const auto comm = make_continuing(launch, {2});
          std::jthread killer;
          if (launch.rank == 2)
            killer = std::jthread([round] {
              std::this_thread::sleep_for(std::chrono::microseconds(500 + 1700 * round));
              die();
            });
          std::string chain;
          for (int i = 0; i < 300 || comm->size() == 3; ++i) {
            std::string next;
            if (i % 3 == 0) {
              next = std::to_string(comm->all_gather_bytes(chain).size());
            } else {
              comm->section("chain", [&] {
                const double sum = comm->all_reduce_sum(std::vector<double>{1})[0];
                at::Tensor news = at::full({1}, sum, at::kDouble);
                comm->broadcast(news, 0);
                next = std::to_string(static_cast<int>(news.item<double>()));
              });
            }
            chain += next;
          }
          EXPECT_THAT(comm->all_gather_bytes(chain), Each(chain));
        },
        /*bound_seconds=*/60);
    EXPECT_THAT(ends, ElementsAre(kPassed, kPassed, kKilled)) << "round " << round;
  }
}

// Known from elsewhere, before a collective fails: a worker that hangs would make the others wait.
TEST(ContinuingCommTest, AWorkerThatIsGivenUpIsLeftOutAndTold) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_continuing(launch, {});
    comm->barrier("start");
    const auto start = std::chrono::steady_clock::now();
    if (launch.rank == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(6));
      EXPECT_THAT(
          thrown_message<LostWorkerError>([&] { comm->barrier("late"); }),
          AllOf(HasSubstr("worker 2 was silent for too long, and the others continue without"),
                HasSubstr(kResumes)));
      return;
    }
    int runs = 0;
    comm->section("rollouts", [&] {
      ++runs;
      comm->check_lost({2});
      EXPECT_THAT(comm->all_gather_bytes("x"), ElementsAre("x", "x"));
    });
    EXPECT_EQ(runs, 2);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    // Serves the store until the other one has been told.
    if (launch.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(10));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(ContinuingCommTest, WithoutRankZeroTheOthersEnd) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_continuing(launch, {0});
    comm->barrier("start");
    if (launch.rank == 0) die();
    EXPECT_THAT(
        thrown_message<LostWorkerError>([&] { comm->barrier("after"); }),
        AllOf(HasSubstr("worker 0, which serves the rendezvous, is lost"), HasSubstr(kResumes)));
  });
  EXPECT_THAT(ends, ElementsAre(kKilled, kPassed, kPassed));
}

TEST(ContinuingCommTest, BeforeAndAfterThatALossEndsTheRun) {
  for (const bool switches_off : {false, true}) {
    const auto ends = run_ranks(2, [switches_off](const Launch& launch) {
      const auto comm = make_comm(
          launch, {.timeout_seconds = 20, .rendezvous_seconds = 20, .continues_after_loss = true});
      if (switches_off) {
        comm->continue_after_loss([](int) { return true; });
        comm->barrier("on");
        comm->continue_after_loss(nullptr);
      }
      comm->barrier("start");
      if (launch.rank == 1) die();
      EXPECT_THAT(thrown_message<LostWorkerError>([&] { comm->barrier("after"); }),
                  HasSubstr("no response from rank 1"));
      EXPECT_THAT(comm->lost_workers(), IsEmpty());
    });
    EXPECT_THAT(ends, ElementsAre(kPassed, kKilled));
  }
}

// A fault of the program: each waits for the other in every group.
TEST(ContinuingCommTest, GroupsThatFailWithoutALossAreNotFormedForEver) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(
        launch, {.timeout_seconds = 2, .rendezvous_seconds = 20, .continues_after_loss = true});
    comm->continue_after_loss([](int) { return false; });
    comm->barrier("start");
    EXPECT_THAT(thrown_message<LostWorkerError>([&] {
                  at::Tensor news = at::zeros({1});
                  comm->broadcast(news, 1 - launch.rank);
                }),
                HasSubstr(launch.rank == 0 ? "failed although no worker is lost" : ";"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

}  // namespace
}  // namespace tlt::cluster
