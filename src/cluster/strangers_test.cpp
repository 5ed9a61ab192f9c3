// What a process that is not of the job can do to a run, and what it cannot (docs/trust.md).
//
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/check.h"
#include "cluster/comm.h"
#include "cluster/listeners.h"
#include "cluster/spawn.h"
#include "cluster/store_guard.h"
#include "tests/support/connection.h"
#include "tests/support/run_ranks.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kSecret = "sixteen letters or more";

bool sends_wrong_proofs = false;

// make_comm() of a worker with this secret.
std::unique_ptr<Comm> meet_with(Launch launch, const std::string& secret) {
  launch.job_secret = secret;
  return make_comm(launch, {.timeout_seconds = 20, .rendezvous_seconds = 20});
}

// A connection to the rendezvous without a secret.
c10::intrusive_ptr<c10d::Store> rendezvous_at(int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(20);
  return c10::make_intrusive<c10d::PrefixStore>(
      "tlt/", c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
}

// A connection of a program that says nothing.
int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

TEST(StrangersTest, WorkersWithTheSameSecretMeet) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = meet_with(launch, kSecret);
    EXPECT_THAT(comm->all_gather_bytes(std::to_string(launch.rank)),
                ::testing::ElementsAre("0", "1", "2"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(StrangersTest, OtherSecretEndsEveryRankWithASentence) {
  for (const std::string& other : {std::string("another secret than that"), std::string()}) {
    const auto ends = run_ranks(2, [&](const Launch& launch) {
      const std::string message = thrown_message<InputError>(
          [&] { meet_with(launch, launch.rank == 0 ? kSecret : other); });
      EXPECT_THAT(
          message,
          AllOf(HasSubstr("the rendezvous at 127.0.0.1 port "),
                HasSubstr("not written with the job secret of this worker (key joined/" +
                          std::to_string(1 - launch.rank) + ")"),
                HasSubstr("give every worker the same TLT_JOB_SECRET"), Not(HasSubstr(kSecret))));
    });
    EXPECT_THAT(ends, Each(kPassed)) << "'" << other << "'";
  }
}

// A stranger writes in the place of rank 1 before rank 1 does.
TEST(StrangersTest, ValueOfAStrangerEndsTheRendezvousWithASentence) {
  const std::pair<std::string, std::string> kRows[] = {
      {"1", "that was not written with the job secret of this worker (key joined/1)"},
      {std::string(100'000, 'x'), "of 100000 bytes (key joined/1), more than a worker writes"}};
  for (const auto& [value, said] : kRows) {
    const auto ends = run_ranks(2, [&, &value = value, &said = said](const Launch& launch) {
      if (launch.rank == 1) {
        const auto rendezvous = rendezvous_at(launch.master_port);
        rendezvous->set("joined/1", value);
        EXPECT_EQ(rendezvous->get_to_str("joined/1"), value);
      }
      EXPECT_THAT(thrown_message<InputError>([&] { meet_with(launch, kSecret); }), HasSubstr(said));
    });
    EXPECT_THAT(ends, Each(kPassed)) << said;
  }
}

// A stranger that takes the connection of rank 1 to rank 0 cannot compute the proof.
TEST(StrangersTest, ConnectionWithoutTheSessionKeyIsRefused) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    sends_wrong_proofs = launch.rank == 1;
    if (launch.rank == 1) {
      thrown_message<Error>([&] { meet_with(launch, kSecret); });  // rank 0 is gone
      return;
    }
    EXPECT_THAT(thrown_message<InputError>([&] { meet_with(launch, kSecret); }),
                HasSubstr("what is connected to rank 0 as rank 1 is no worker of this job"));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(StrangersTest, NoConnectionIsAcceptedAfterTheStart) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = meet_with(launch, kSecret);
    const std::map<std::string, int> sockets = listening_sockets();
    EXPECT_THAT(sockets, SizeIs(launch.rank == 0 ? 2 : 1));  // Gloo's; the rendezvous
    for (const auto& [name, fd] : sockets) EXPECT_FALSE(tests::Connection(fd).is_open()) << name;
    const Listener open = listen_on("127.0.0.1", 0);
    EXPECT_TRUE(tests::Connection(open.fd).is_open());  // so a connection would be noticed
    close(open.fd);
    comm->barrier("those of the workers remain");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// A process that connects while the workers meet is left without a connection; those of the workers
// stay.
TEST(StrangersTest, ConnectionsOfNoWorkerAreClosedAfterTheStart) {
  const TestFolder folder;
  const std::string connected = folder / "connected", closed = folder / "closed";
  const auto wait_for = [](const std::string& file) {
    for (int i = 0; i < 2000 && !std::filesystem::exists(file); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  const auto ends = run_ranks(3, [&](Launch launch) {
    if (launch.rank == 2) {
      std::vector<int> strangers;
      for (int i = 0; i < 50; ++i) strangers.push_back(connect_to(launch.master_port));
      std::ofstream(connected) << "x";
      for (const int stranger : strangers) {
        pollfd item{};
        item.fd = stranger;
        item.events = POLLIN;
        ASSERT_EQ(poll(&item, 1, /*milliseconds=*/20'000), 1) << "still open";
        char byte = 0;
        EXPECT_LE(recv(stranger, &byte, 1, 0), 0);
      }
      std::ofstream(closed) << "x";
      return;
    }
    launch.world_size = launch.local_world_size = 2;
    wait_for(connected);
    const auto comm = meet_with(launch, kSecret);
    const auto part = comm->split(/*color=*/0);  // by way of the rendezvous
    EXPECT_THAT(part->all_gather_bytes("x"), SizeIs(2));
    wait_for(closed);  // the end of rank 0 would close them too
    EXPECT_TRUE(std::filesystem::exists(closed));
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// A gateway may translate addresses: the workers' are not those that rank 0 sees. None is closed.
TEST(StrangersTest, ConnectionsStayIfThoseOfTheWorkersAreNotAmongThem) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 2), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  const int stranger = connect_to(port), accepted = accept(listener, nullptr, nullptr);
  pollfd item{.fd = stranger, .events = POLLIN, .revents = 0};
  EXPECT_EQ(close_other_connections(port, {"10.9.8.7:1234"}, /*wanted=*/1), -1);
  EXPECT_EQ(poll(&item, 1, /*milliseconds=*/0), 0) << "closed";
  const std::vector<std::string> own = connections_to(port);
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_EQ(close_other_connections(port, {own.front()}, 1), 0);
  EXPECT_EQ(poll(&item, 1, 0), 0) << "closed";
  EXPECT_EQ(close_other_connections(port, {}, 0), 1);
  EXPECT_EQ(poll(&item, 1, /*milliseconds=*/10'000), 1) << "still open";
  for (const int fd : {listener, stranger, accepted}) close(fd);
}

// A stranger that writes until it cannot: rank 0 ends with a sentence, and without its memory
// growing beyond the bound by more than what arrives between two looks.
TEST(StrangersTest, RendezvousThatIsFilledEndsTheStart) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    if (launch.rank == 0) {
      const std::string said = thrown_message<InputError>([&] { meet_with(launch, kSecret); });
      EXPECT_THAT(said, AllOf(HasSubstr("was filled with more than 256 MiB"),
                              HasSubstr("another MASTER_PORT")));
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      EXPECT_LT(usage.ru_maxrss, 2'000'000) << "kB";
      return;
    }
    const auto rendezvous = rendezvous_at(launch.master_port);
    const std::string value(7 << 20, 'x');
    int written = 0;
    EXPECT_ANY_THROW(for (; written < 1000; ++written)
                         rendezvous->set(std::to_string(written), value));
    EXPECT_LT(written, 1000) << "7 GB";
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(StrangersTest, WorkerMayOpenAsManyFilesAsTheAdministratorAllows) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 64;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const auto comm = meet_with(launch, kSecret);
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
    comm->barrier("end");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// spawn_workers() starts this test again as a worker.
TEST(SpawnedSecretTest, WorkersShareASecretThatTheirChildrenDoNotInherit) {
  const Launch launch = read_launch(process_environment());
  if (launch.world_size == 1) {
    const SpawnResult result = spawn_workers(
        2, {"strangers_test", "--gtest_brief=1", "--gtest_filter=SpawnedSecretTest.*"});
    EXPECT_EQ(result.exit_code, 0) << result.message;
    return;
  }
  EXPECT_THAT(launch.job_secret, SizeIs(64));
  EXPECT_EQ(std::system("test -z \"$TLT_JOB_SECRET\""), 0);
  std::ifstream file("/proc/self/environ", std::ios::binary);
  const std::string environment((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
  EXPECT_THAT(environment, AllOf(HasSubstr("WORLD_SIZE=2"), Not(HasSubstr(launch.job_secret))));
  const auto comm = make_comm(launch, {.timeout_seconds = 20, .rendezvous_seconds = 20});
  EXPECT_THAT(comm->all_gather_bytes(launch.job_secret), Each(launch.job_secret));
}

}  // namespace
}  // namespace tlt::cluster

// Replaces the C library's function in this program: Gloo sends a message as its header and its
// bytes.
extern "C" ssize_t writev(int fd, const iovec* parts, int count) {
  static const auto real = reinterpret_cast<decltype(&writev)>(dlsym(RTLD_NEXT, "writev"));
  if (!tlt::cluster::sends_wrong_proofs || count != 2 || parts[1].iov_len != 32)
    return real(fd, parts, count);
  std::string wrong(32, 'x');
  const iovec changed[] = {parts[0], {wrong.data(), wrong.size()}};
  return real(fd, changed, 2);
}
