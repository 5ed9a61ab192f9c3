// SPDX-License-Identifier: Apache-2.0
#include "cluster/comm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.h"
#include "cluster/spawn.h"
#include "tests/support/failing_comm.h"
#include "tests/support/run_ranks.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CommOptions quick() { return {.timeout_seconds = 20, .rendezvous_seconds = 20}; }

class CommTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, CommTest, ::testing::Values(1, 2, 3));

TEST_P(CommTest, CollectivesGiveEqualResultsOnAllRanks) {
  const auto ends = run_ranks(GetParam(), [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    ASSERT_EQ(comm->rank(), launch.rank);
    ASSERT_EQ(comm->size(), launch.world_size);
    const int n = comm->size(), rank = comm->rank();
    comm->barrier("start");

    at::Tensor sum = at::full({5, 3}, rank + 1.0, at::kFloat);
    comm->all_reduce_sum(sum);
    EXPECT_TRUE(at::equal(sum, at::full({5, 3}, n * (n + 1) / 2.0, at::kFloat)));

    at::Tensor most = at::arange(4, at::kLong) * (rank == n - 1 ? 1 : -1);
    comm->all_reduce_max(most);
    EXPECT_TRUE(at::equal(most, at::arange(4, at::kLong)));

    at::Tensor news = at::full({7}, rank, at::kInt);
    comm->broadcast(news, n - 1);
    EXPECT_TRUE(at::equal(news, at::full({7}, n - 1, at::kInt)));

    at::Tensor parts = at::full({n, 3, 2}, -1, at::kFloat);
    parts.select(0, rank).copy_(at::arange(6).view({3, 2}) + 10 * rank);
    comm->all_gather(parts);
    for (int from = 0; from < n; ++from)
      EXPECT_TRUE(at::equal(parts.select(0, from),
                            (at::arange(6).view({3, 2}) + 10 * from).to(at::kFloat)));

    const auto texts =
        comm->all_gather_bytes(std::string(rank * 1000, static_cast<char>('a' + rank)));
    ASSERT_EQ(texts.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i)
      EXPECT_EQ(texts[i], std::string(i * 1000, static_cast<char>('a' + i)));

    EXPECT_THAT(comm->all_reduce_sum(std::vector<double>{1.0, rank * 0.5}),
                ElementsAre(n, n * (n - 1) * 0.25));

    at::Tensor nothing = at::empty({0});
    comm->all_reduce_sum(nothing);
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, SumOfIntegersWrapsAroundExactly) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const std::vector<int64_t> mine[] = {
        {kMost, 1, -5}, {kMost, int64_t{1} << 62, 3}, {7, int64_t{1} << 62, 2}};
    at::Tensor sum = at::tensor(mine[launch.rank], at::kLong);
    comm->all_reduce_sum(sum);
    std::vector<int64_t> want(3);
    for (int i = 0; i < 3; ++i)
      want[i] = static_cast<int64_t>(static_cast<uint64_t>(mine[0][i]) +
                                     static_cast<uint64_t>(mine[1][i]) +
                                     static_cast<uint64_t>(mine[2][i]));
    EXPECT_TRUE(at::equal(sum, at::tensor(want, at::kLong))) << sum;
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// Parts of any sizes, of none as well; the same bits as those of all_reduce_sum().
TEST_P(CommTest, EachRankGetsTheSumOfItsPart) {
  const auto ends = run_ranks(GetParam(), [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const auto n = static_cast<size_t>(comm->size());
    for (const std::vector<int64_t>& all :
         {std::vector<int64_t>{5, 1000, 3}, {0, 7, 0}, {4, 0, 1}, {0, 0, 0}}) {
      ASSERT_LE(n, all.size());
      const std::vector<int64_t> sizes(all.begin(), all.begin() + comm->size());
      const int64_t elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
      const at::Tensor parts =
          (at::arange(elements, at::kLong) + 1) * (int64_t{1} << 61) + launch.rank * 5;
      at::Tensor want = parts.clone();
      comm->all_reduce_sum(want);
      const at::Tensor before = parts.clone(), mine = comm->reduce_scatter_sum(parts, sizes);
      EXPECT_TRUE(at::equal(mine, want.split_with_sizes(sizes)[comm->rank()])) << sizes.size();
      EXPECT_TRUE(at::equal(parts, before));
    }
    if (n == 1) return;
    EXPECT_THROW(comm->reduce_scatter_sum(at::ones({5}, at::kLong), {5}), Error);
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// Bytes that this process has written; Gloo writes to its connections.
int64_t written_bytes() {
  std::ifstream file("/proc/self/io");
  int64_t bytes = -1;
  for (std::string name; file >> name >> bytes;)
    if (name == "wchar:") return bytes;
  ADD_FAILURE() << "no wchar in /proc/self/io";
  return bytes;
}

class SentBytesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, SentBytesTest, ::testing::Values(2, 3, 4));

TEST_P(SentBytesTest, OfAReduceScatterAreHalfOfThoseOfAnAllReduce) {
  const auto ends = run_ranks(GetParam(), [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const int64_t n = comm->size(), part = 60'000;
    constexpr double kSlack = 20'000;
    at::Tensor sum = at::ones({n * part}, at::kLong);
    const auto sent_in = [&](const std::function<void()>& collective) {
      comm->barrier("before");
      const int64_t before = written_bytes();
      collective();
      comm->barrier("after");
      return static_cast<double>(written_bytes() - before);
    };
    const auto bytes = static_cast<double>(sum.nbytes() * (n - 1) / n);
    EXPECT_NEAR(sent_in([&] { comm->all_reduce_sum(sum); }), 2 * bytes, kSlack);
    EXPECT_NEAR(
        sent_in([&] { comm->reduce_scatter_sum(sum, std::vector<int64_t>(comm->size(), part)); }),
        bytes, kSlack);
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, SumOfTwoBfloat16IsRoundedOnce) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const at::Tensor first = at::arange(1000, at::kFloat).mul(0.37).to(at::kBFloat16);
    const at::Tensor second = at::arange(1000, at::kFloat).mul(-0.011).add(3.7).to(at::kBFloat16);
    at::Tensor sum = (launch.rank == 0 ? first : second).clone();
    comm->all_reduce_sum(sum);
    EXPECT_TRUE(at::equal(sum, (first.to(at::kFloat) + second.to(at::kFloat)).to(at::kBFloat16)));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, SumOfThreeFloatsHasTheSameBitsEverywhere) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    at::Tensor sum = at::sin(at::arange(10007, at::kFloat) * (launch.rank + 1));
    comm->all_reduce_sum(sum);
    const std::string bits(static_cast<const char*>(sum.const_data_ptr()), sum.nbytes());
    EXPECT_THAT(comm->all_gather_bytes(bits), Each(bits));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, LargeTensorIsReducedInBuckets) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    CommOptions options = quick();
    options.bucket_bytes = 1000;  // 125 values of int64: the last bucket is short
    const auto comm = make_comm(launch, options);
    at::Tensor sum = at::arange(4003, at::kLong).view({4003, 1});
    comm->all_reduce_sum(sum);
    EXPECT_TRUE(at::equal(sum.view({-1}), at::arange(4003, at::kLong) * 2));
    at::Tensor news = at::full({4003}, launch.rank, at::kByte);
    comm->broadcast(news, 1);
    EXPECT_TRUE(at::equal(news, at::ones({4003}, at::kByte)));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, PartsOfASplitCommWorkIndependently) {
  const auto ends = run_ranks(4, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const auto pair = comm->split(launch.rank / 2), other = comm->split(launch.rank % 2);
    ASSERT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), launch.rank % 2);
    EXPECT_EQ(other->rank(), launch.rank / 2);
    EXPECT_EQ(pair->worker(1), launch.rank / 2 * 2 + 1);
    EXPECT_EQ(other->worker(1), launch.rank % 2 + 2);
    // A different number of collectives in each pair.
    for (int i = 0; i <= launch.rank / 2; ++i) {
      at::Tensor sum = at::full({3}, launch.rank, at::kLong);
      pair->all_reduce_sum(sum);
      EXPECT_EQ(sum[0].item<int64_t>(), launch.rank / 2 == 0 ? 1 : 5);
    }
    EXPECT_THAT(other->all_gather_bytes(std::to_string(launch.rank)),
                ElementsAre(std::to_string(launch.rank % 2), std::to_string(launch.rank % 2 + 2)));
    const auto alone = comm->split(launch.rank);
    EXPECT_EQ(alone->size(), 1);
    comm->barrier("end");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, DeadRankOfASplitCommIsNamedAsAWorker) {
  const auto ends = run_ranks(4, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const auto pair = comm->split(launch.rank / 2);
    if (launch.rank == 3) _exit(kPassed);
    // Rank 0 reports the loss in the Comm of all, and serves the rendezvous meanwhile.
    const auto& waits = launch.rank < 2 ? comm : pair;
    const std::string message = thrown_message([&] { waits->barrier("after the death"); });
    EXPECT_THAT(message, launch.rank < 2 ? HasSubstr("of 4 after")
                                         : HasSubstr("failed on rank 0 of 2 (workers 2, 3)"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, DeadRankIsNamedAtOnce) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, {.timeout_seconds = 20, .rendezvous_seconds = 20});
    comm->barrier("start");
    if (launch.rank == 1) raise(SIGKILL);
    at::Tensor sum = at::ones({100000});
    const std::string first = thrown_message([&] { comm->all_reduce_sum(sum); });
    EXPECT_THAT(first, AllOf(HasSubstr("all_reduce_sum of Float [100000]"),
                             HasSubstr("no response from rank 1: "), Not(HasSubstr(".cc:"))));
    EXPECT_THAT(thrown_message([&] { comm->barrier("next"); }),
                AllOf(HasSubstr("barrier 'next'"), HasSubstr(first)));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, 128 + SIGKILL, kPassed));
}

TEST(RanksTest, DeadRankOfAReduceScatterIsNamed) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    comm->barrier("start");
    if (launch.rank == 1) raise(SIGKILL);
    EXPECT_THAT(
        thrown_message([&] {
          comm->reduce_scatter_sum(at::ones({100'000}, at::kLong), {30'000, 40'000, 30'000});
        }),
        AllOf(HasSubstr("reduce_scatter_sum of Long [100000]"),
              HasSubstr("no response from rank 1:")));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, 128 + SIGKILL, kPassed));
}

// In a broadcast from rank 1 to 0, 2 and 3, one rank receives from a live one: it is not connected
// to the dead rank and must not be reported as missing, too.
TEST(RanksTest, RankThatWaitsForALiveRankIsNotReported) {
  const auto ends = run_ranks(4, [](const Launch& launch) {
    const auto comm = make_comm(launch, {.timeout_seconds = 20, .rendezvous_seconds = 20});
    comm->barrier("start");
    if (launch.rank == 1) raise(SIGKILL);
    at::Tensor values = at::zeros({100000});
    EXPECT_THAT(thrown_message([&] { comm->broadcast(values, 1); }),
                HasSubstr("no response from rank 1:"));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, 128 + SIGKILL, kPassed, kPassed));
}

TEST(RanksTest, DeadRankZeroIsNamed) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    comm->barrier("start");
    if (launch.rank == 0) raise(SIGKILL);
    EXPECT_THAT(thrown_message([&] { comm->barrier("end"); }),
                AllOf(HasSubstr("barrier 'end'"),
                      HasSubstr("rank 0, which serves the rendezvous, is gone")));
  });
  EXPECT_THAT(ends, ElementsAre(128 + SIGKILL, kPassed));
}

TEST(RanksTest, StuckRankIsNamedAfterTheTimeout) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, {.timeout_seconds = 1, .rendezvous_seconds = 20});
    comm->barrier("start");
    if (launch.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3800));
      _exit(kPassed);
    }
    at::Tensor sum = at::ones({3});
    EXPECT_THAT(
        thrown_message([&] { comm->all_reduce_sum(sum); }),
        AllOf(HasSubstr("all_reduce_sum of Float [3]"), HasSubstr("no response from rank 1")));
    _exit(::testing::Test::HasFailure() ? kExpectationFailed : kPassed);
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, BarriersWithDifferentNamesAreRejected) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const std::string name = launch.rank == 0 ? "save" : "publish";
    EXPECT_THAT(
        thrown_message([&] { comm->barrier(name); }),
        HasSubstr("is at barrier '" + name + "', another rank at a barrier of another name"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, MissingRankIsNamedAtTheRendezvous) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    if (launch.rank == 2) return;
    const std::string message = thrown_message(
        [&] { make_comm(launch, {.timeout_seconds = 1, .rendezvous_seconds = 0.4}); });
    EXPECT_NE(message, "");
    if (launch.rank == 0) {
      EXPECT_THAT(message, AllOf(HasSubstr("rendezvous of 3 workers"),
                                 HasSubstr("no response from rank 2")));
    }
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, UnreachableRankZeroWritesNothingToStderr) {
  const auto ends = run_ranks(1, [](Launch launch) {
    launch.rank = launch.local_rank = 1;
    launch.world_size = launch.local_world_size = 2;
    const Listener unused = listen_on("127.0.0.1", 0);
    launch.master_port = unused.port;
    close(unused.fd);
    ::testing::internal::CaptureStderr();
    EXPECT_THROW(make_comm(launch, {.rendezvous_seconds = 0.5}), Error);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, DuplicateRankIsRejected) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    if (launch.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    Launch wrong = launch;
    wrong.rank = 0;
    wrong.launcher_serves_store = launch.rank == 1;  // the second rank 0 has no socket to serve
    const std::string message =
        thrown_message([&] { make_comm(wrong, {.timeout_seconds = 1, .rendezvous_seconds = 2}); });
    EXPECT_THAT(message, launch.rank == 0 ? HasSubstr("no response from rank 1")
                                          : HasSubstr("a second process says it is rank 0"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, HandshakeNamesTheRankAndTheDifference) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    const std::string recipe = "actor.optim.lr = 1e-6\nrollout.n = 8\n";
    handshake(*comm, "0.1.0", recipe);
    const auto refused = [&](const std::string& version, const std::string& options) {
      return thrown_message<InputError>([&] { handshake(*comm, version, options); });
    };
    EXPECT_EQ(
        refused("0.1.0", launch.rank == 2 ? "actor.optim.lr = 1e-6\nrollout.n = 4\n" : recipe),
        "rank 2 (here) and rank 0 (there) were started with other options: rollout.n is 4 here and "
        "8 there; "
        "give every rank the same recipe, overrides and environment");
    EXPECT_EQ(
        refused(launch.rank == 1 ? "0.2.0" : "0.1.0", recipe),
        "rank 1 runs tlt 0.2.0 but rank 0 runs tlt 0.1.0; install the same version on every host");
    EXPECT_THAT(refused("0.1.0", launch.rank == 1 ? recipe + "seed = 1\n" : recipe),
                HasSubstr("seed is 1 here and unknown there"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, OtherInputsAreNamed) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    std::vector<Input> inputs = {{"model.path", "a"}, {"data.train_files: x.jsonl", "b"}};
    check_same_inputs(*comm, inputs);
    const auto refused = [&] {
      return thrown_message<InputError>([&] { check_same_inputs(*comm, inputs); });
    };
    if (launch.rank == 2) inputs[1].fingerprint = "c";
    EXPECT_EQ(refused(),
              "rank 2 reads other contents than rank 0 for data.train_files: x.jsonl; copy what "
              "rank 0 reads to every host");
    if (launch.rank == 2) inputs.pop_back();
    EXPECT_THAT(refused(),
                HasSubstr("rank 2 reads other contents than rank 0 for data.train_files"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(RanksTest, TwoWorkersOnOneCardAreNamed) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, quick());
    check_different_cards(*comm, "card " + std::to_string(launch.rank));
    const std::string message = thrown_message<InputError>(
        [&] { check_different_cards(*comm, "card " + std::to_string(launch.rank % 2)); });
    EXPECT_THAT(message, HasSubstr("ranks 0 and 2 have the same card"));
    EXPECT_THAT(message, HasSubstr("as many workers on a host as it has cards"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// spawn_workers() starts this test again as a worker.
TEST(SpawnedCommTest, SpawnedWorkersMeet) {
  const Launch launch = read_launch(process_environment());
  if (launch.world_size == 1) {
    const SpawnResult result =
        spawn_workers(2, {"comm_test", "--gtest_brief=1", "--gtest_filter=SpawnedCommTest.*"});
    EXPECT_EQ(result.exit_code, 0) << result.message;
    return;
  }
  const auto comm = make_comm(launch, quick());
  EXPECT_THAT(comm->all_gather_bytes(std::to_string(launch.rank)), ElementsAre("0", "1"));
}

TEST(SoloCommTest, SoloRunOpensNoSocket) {
  const auto ends = run_ranks(1, [](const Launch& launch) {
    const int before = dup(0);
    close(before);
    const auto comm = make_comm(launch, {});
    const int after = dup(0);
    EXPECT_EQ(before, after);  // the lowest free descriptor is the same
    handshake(*comm, "0.1.0", "");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(FailingCommTest, FailsAtTheGivenCallAndAfterIt) {
  const auto solo = make_comm({}, {});
  FailingComm comm(*solo, 2);
  comm.barrier("first");
  EXPECT_THAT(thrown_message([&] { comm.all_gather_bytes("x"); }),
              HasSubstr("all_gather_bytes (collective 2) failed"));
  EXPECT_THROW(comm.barrier("third"), Error);
  EXPECT_EQ(comm.calls(), 3);
}

}  // namespace
}  // namespace tlt::cluster
