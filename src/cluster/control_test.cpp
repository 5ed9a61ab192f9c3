// SPDX-License-Identifier: Apache-2.0
#include "cluster/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <zmq.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cluster/comm.h"
#include "cluster/messages.h"
#include "cluster/spawn.h"
#include "tests/support/run_ranks.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;

constexpr ControlOptions kPatient = {.heartbeat_seconds = 0.05, .lost_after_seconds = 20};
constexpr ControlOptions kQuick = {.heartbeat_seconds = 0.05,
                                   .lost_after_seconds = 1.5};  // if a worker is lost

// Rolls out a step with capacity for `room` groups, each of which takes `engine_steps` steps of a
// millisecond. Returns the groups done here.
std::vector<int64_t> roll_out(GroupSource& source, int64_t step, int64_t groups, size_t room,
                              int engine_steps) {
  std::vector<int64_t> done;
  std::vector<std::pair<int64_t, int>> engine;
  source.begin_step(step, groups);
  while (!source.step_done()) {
    while (engine.size() < room) {
      const auto group = source.try_take();
      if (!group) break;
      engine.emplace_back(*group, engine_steps);
    }
    if (engine.empty()) {
      source.wait_for_news(0.01);
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (auto& [group, left] : engine)
      if (--left == 0) done.push_back(group), source.done(group);
    std::erase_if(engine, [](const auto& running) { return running.second == 0; });
  }
  return done;
}

std::vector<int64_t> numbers_below(int64_t end) {
  std::vector<int64_t> numbers(end);
  for (int64_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

TEST(ControlTest, ThreeWorkersShareTheGroupsOfEveryStep) {
  ControlServer server("127.0.0.1", 3, kPatient);
  std::vector<std::vector<int64_t>> done(3 * 4);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker)
    threads.emplace_back([&, worker] {
      ControlClient client(server.keys(), worker, kPatient);
      for (int64_t step = 0; step < 4; ++step)
        done[3 * step + worker] = roll_out(client, step, 20, 4, worker == 2 ? 40 : 2);
    });
  for (std::thread& thread : threads) thread.join();
  for (int64_t step = 0; step < 4; ++step) {
    std::vector<int64_t> all;
    for (int worker = 0; worker < 3; ++worker)
      all.insert(all.end(), done[3 * step + worker].begin(), done[3 * step + worker].end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, numbers_below(20)) << "step " << step;
    EXPECT_LT(done[3 * step + 2].size(), 7u);  // the slow worker's groups were stolen
  }
}

TEST(ControlTest, TryTakeTakesMicroseconds) {
  ControlServer server("127.0.0.1", 1, kPatient);
  ControlClient client(server.keys(), 0, kPatient);
  std::vector<double> microseconds;
  client.begin_step(1, 500);
  while (!client.step_done()) {
    const auto start = Clock::now();
    const auto group = client.try_take();
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (group)
      client.done(*group);
    else
      client.wait_for_news(0.01);
  }
  std::sort(microseconds.begin(), microseconds.end());
  EXPECT_LT(microseconds[microseconds.size() / 2], 100);
  RecordProperty("median_microseconds", std::to_string(microseconds[microseconds.size() / 2]));
}

// Worker 1 rolls out the one group left; worker 0 may train from when it is idle until the step is
// done, and is notified without a request.
TEST(ControlTest, IdleWorkerMayTrainUntilTheStepIsDone) {
  ControlOptions options = kPatient;
  options.min_workers_for_training = 1;
  ControlServer server("127.0.0.1", 2, options);
  ControlClient idle(server.keys(), 0, options), busy(server.keys(), 1, options);
  idle.begin_step(1, 2);
  while (!idle.try_take()) idle.wait_for_news(0.01);
  busy.begin_step(1, 2);
  while (!busy.try_take()) busy.wait_for_news(0.01);
  EXPECT_FALSE(idle.may_train());
  idle.done(0);
  EXPECT_EQ(idle.try_take(), std::nullopt);
  const auto wait_until = [](const auto& condition) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (!condition() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  };
  EXPECT_TRUE(wait_until([&] { return idle.may_train(); }));
  EXPECT_EQ(server.state(0), WorkerState::kTraining);
  EXPECT_FALSE(busy.may_train());
  const double before = steady_clock().seconds();
  busy.done(1);
  EXPECT_TRUE(wait_until([&] { return idle.training_ended_at() >= before; }));
  EXPECT_FALSE(idle.may_train());
  EXPECT_LE(idle.training_ended_at(), steady_clock().seconds());
  EXPECT_TRUE(idle.step_done());
}

// Worker 1 has fewer sequences than worker 0, so they migrate there: a payload of any size and of
// any bytes.
TEST(ControlTest, MigrationReachesTheOtherWorker) {
  ControlServer server("127.0.0.1", 2, kPatient);
  ControlClient receiver(server.keys(), 0, kPatient), sender(server.keys(), 1, kPatient);
  std::string migration(3'000'000, '\0');
  for (size_t i = 0; i < migration.size(); ++i) migration[i] = static_cast<char>(i * i % 251);
  const auto wait_until = [](const auto& condition) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (!condition() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  };
  for (ControlClient* client : {&receiver, &sender}) client->begin_step(1, 2);
  for (ControlClient* client : {&receiver, &sender}) {
    while (!client->try_take()) client->wait_for_news(0.01);
    client->report(
        {.sequences = client == &sender ? 2 : 3, .tokens = 10, .remaining = 10, .room = 2});
  }
  ASSERT_TRUE(wait_until([&] { return sender.should_migrate(); }));
  EXPECT_FALSE(receiver.should_migrate());
  sender.move(migration);
  EXPECT_EQ(sender.try_take(), std::nullopt);
  ASSERT_TRUE(wait_until([&] { return receiver.has_migration(); }));
  EXPECT_EQ(receiver.try_take(), 2);
  EXPECT_EQ(receiver.take_migration() == migration, true);
  EXPECT_TRUE(wait_until([&] { return server.state(1) == WorkerState::kIdle; }));
  receiver.done(2);
  EXPECT_FALSE(receiver.step_done());
  receiver.done(0);
  EXPECT_TRUE(wait_until([&] { return receiver.step_done() && sender.step_done(); }));
}

TEST(ControlTest, FinishedGroupReachesTheOtherWorker) {
  ControlServer server("127.0.0.1", 2, kPatient);
  ControlClient busy(server.keys(), 0, kPatient), idle(server.keys(), 1, kPatient);
  for (ControlClient* client : {&busy, &idle}) client->begin_step(1, 2);
  const std::string rollouts(300'000, 'r');
  std::string received;
  busy.offer(1);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (received.empty() && Clock::now() < deadline) {
    received = idle.take_finished();
    if (busy.should_hand_over()) busy.hand_over(rollouts);
    idle.wait_for_news(0.001);
  }
  EXPECT_TRUE(received == rollouts);
}

TEST(ControlTest, WorkerWithWrongKeysIsIgnored) {
  ControlServer server("127.0.0.1", 2, kQuick);
  ControlServer stranger("127.0.0.1", 2, kQuick);
  ControlKeys keys = server.keys();
  keys.client_public = stranger.keys().client_public;
  keys.client_secret = stranger.keys().client_secret;
  ControlClient good(server.keys(), 0, kQuick), bad(keys, 1, kQuick);
  bad.begin_step(1, 4);
  EXPECT_THAT(roll_out(good, 1, 4, 2, 1), ElementsAre(0, 2, 3, 1));
  EXPECT_FALSE(thrown_message([&] {
                 while (!bad.step_done()) bad.wait_for_news(0.05);
               }).find("worker 1 has no message from the coordinator") == std::string::npos);
}

// A peer that has the keys but is no worker, or writes what no worker writes.
TEST(ControlTest, ForgedMessagesAreDropped) {
  ControlServer server("127.0.0.1", 2, kQuick);
  zmq::context_t context;
  const auto connect = [&](const std::string& identity) {
    zmq::socket_t dealer(context, zmq::socket_type::dealer);
    dealer.set(zmq::sockopt::linger, 1000);
    dealer.set(zmq::sockopt::routing_id, identity);
    dealer.set(zmq::sockopt::curve_serverkey, server.keys().server_public);
    dealer.set(zmq::sockopt::curve_publickey, server.keys().client_public);
    dealer.set(zmq::sockopt::curve_secretkey, server.keys().client_secret);
    dealer.connect(server.keys().endpoint);
    return dealer;
  };
  const std::string heartbeat = encode(Event{.kind = Event::Kind::kHeartbeat});
  ::testing::internal::CaptureStderr();
  std::vector<zmq::socket_t> strangers;
  for (const char* identity : {"evil", "7", "-1", "01", "99999999999"}) {
    strangers.push_back(connect(identity));
    strangers.back().send(zmq::buffer(heartbeat));
  }
  strangers.push_back(connect("1"));
  for (const std::string& text : {std::string("{\"kind\":\"gimme\"}"), std::string("["),
                                  std::string(), std::string(300, ' ')})
    strangers.back().send(zmq::buffer(text));
  for (int frame = 0; frame < 3; ++frame)
    strangers.back().send(zmq::buffer(heartbeat),
                          frame < 2 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_NO_THROW(static_cast<void>(server.state(0)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("a control message that no worker of this run writes was dropped"));
  ControlClient good(server.keys(), 0, kQuick);
  EXPECT_THAT(roll_out(good, 1, 4, 2, 1), SizeIs(4));
}

TEST(ControlTest, KeysAreThoseOfTheSecret) {
  const auto keys = [](const std::string& secret) {
    return ControlServer("127.0.0.1", 1, kPatient, secret).keys();
  };
  const ControlKeys first = keys("sixteen letters or more"), same = keys("sixteen letters or more"),
                    other = keys("another secret than that"), random = keys(""), again = keys("");
  EXPECT_EQ(first.server_public, same.server_public);
  EXPECT_EQ(first.client_public, same.client_public);
  EXPECT_EQ(first.client_secret, same.client_secret);
  EXPECT_NE(first.client_public, first.server_public);
  EXPECT_NE(first.server_public, other.server_public);
  EXPECT_NE(first.client_secret, other.client_secret);
  EXPECT_NE(random.client_secret, again.client_secret);
}

TEST(ControlTest, ServerListensInThePortRange) {
  const Listener taken = listen_on("127.0.0.1", 0);
  const PortRange ports = {.begin = taken.port, .end = taken.port};
  const auto endpoint = [&] {
    return ControlServer("127.0.0.1", 1, kPatient, "", ports).keys().endpoint;
  };
  EXPECT_THAT(thrown_message<InputError>(endpoint), HasSubstr("is in use; give a larger range"));
  close(taken.fd);
  EXPECT_THAT(endpoint(), ::testing::EndsWith(":" + std::to_string(taken.port)));
}

TEST(ControlRanksTest, RanksShareTheGroups) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kPatient);
    for (int64_t step = 1; step <= 3; ++step) {
      const auto done = roll_out(*source, step, 12, 2, 1 + 3 * launch.rank);
      std::string mine(12, '.');
      for (const int64_t group : done) mine[group] = 'x';
      std::string all(12, '0');
      for (const std::string& text : comm->all_gather_bytes(mine))
        for (int i = 0; i < 12; ++i) all[i] = static_cast<char>(all[i] + (text[i] == 'x'));
      EXPECT_EQ(all, std::string(12, '1'));
    }
    EXPECT_THAT(source->lost_workers(), ElementsAre());
    comm->barrier("end");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// With a secret rank 0 sends its address alone; without one, three keys as well.
TEST(ControlRanksTest, DerivedKeysAreNotSent) {
  for (const std::string& secret : {std::string("sixteen letters or more"), std::string()}) {
    const auto ends = run_ranks(2, [&](Launch launch) {
      launch.job_secret = secret;
      const auto comm = make_comm(launch, {});
      std::unique_ptr<GroupSource> source;
      if (launch.rank == 0) {
        source = make_group_source(*comm, launch, kPatient);
      } else {
        const std::string sent = comm->all_gather_bytes("").front();
        EXPECT_THAT(sent, HasSubstr("tcp://"));
        EXPECT_EQ(std::count(sent.begin(), sent.end(), ','), secret.empty() ? 3 : 0);
      }
      comm->barrier("end");
    });
    EXPECT_THAT(ends, Each(kPassed)) << "'" << secret << "'";
  }
}

TEST(ControlRanksTest, RanksWithASecretShareTheGroups) {
  const auto ends = run_ranks(2, [](Launch launch) {
    launch.job_secret = "sixteen letters or more";
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kPatient);
    const auto done = roll_out(*source, 1, 12, 2, 3);
    EXPECT_THAT(comm->all_reduce_sum(std::vector<double>{static_cast<double>(done.size())}),
                ElementsAre(12));
    comm->barrier("end");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

// spawn_workers() and tools/netns_demo.sh start this test again as a worker.
TEST(SpawnedControlTest, SpawnedWorkersShareTheGroups) {
  const Launch launch = read_launch(process_environment());
  if (launch.world_size == 1) {
    const SpawnResult result = spawn_workers(
        2, {"control_test", "--gtest_brief=1", "--gtest_filter=SpawnedControlTest.*"});
    EXPECT_EQ(result.exit_code, 0) << result.message;
    return;
  }
  const auto comm = make_comm(launch, {});
  const auto source = make_group_source(*comm, launch, kPatient);
  const auto done = roll_out(*source, 1, 12, 2, 3);
  EXPECT_THAT(comm->all_reduce_sum(std::vector<double>{static_cast<double>(done.size())}),
              ElementsAre(12));
}

TEST(ControlRanksTest, SoloRunHasAllGroupsAndNoSocket) {
  const auto comm = make_comm({}, {});
  const auto source = make_group_source(*comm, {}, kPatient);
  EXPECT_NE(dynamic_cast<LocalGroups*>(source.get()), nullptr);
  EXPECT_THAT(roll_out(*source, 1, 3, 2, 1), ElementsAre(0, 1, 2));
}

// Begins step 1 and takes a group of it.
void begin_and_take(GroupSource& source, int64_t groups) {
  source.begin_step(1, groups);
  while (!source.try_take()) source.wait_for_news(0.01);
}

TEST(ControlRanksTest, GroupsOfAKilledWorkerAreDoneByTheOthers) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kQuick);
    if (launch.rank == 2) begin_and_take(*source, 12);
    comm->barrier("rank 2 has a group");
    if (launch.rank == 2) raise(SIGKILL);
    const auto done = roll_out(*source, 1, 12, 2, 5);
    EXPECT_THAT(source->lost_workers(), ElementsAre(2));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, kPassed, 128 + SIGKILL));
}

// Between two steps too, where collectives need to know it.
TEST(ControlRanksTest, ClosedConnectionIsNoticedBeforeTheSilence) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kPatient);
    roll_out(*source, 1, 4, 2, 5);
    comm->barrier("after a step");
    if (launch.rank == 1) raise(SIGKILL);
    EXPECT_FALSE(source->is_silent(1));
    const auto start = Clock::now();
    while (!source->is_silent(1) && Clock::now() - start < std::chrono::seconds(10))
      source->wait_for_news(0.01);
    EXPECT_TRUE(source->is_silent(1));
    EXPECT_FALSE(source->is_silent(0));
    source->lose(1);
    EXPECT_EQ(roll_out(*source, 2, 4, 2, 5).size(), 4u);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(12));
    EXPECT_THAT(source->lost_workers(), ElementsAre(1));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, 128 + SIGKILL));
}

// The worker that others' sequences migrated to dies with them: another worker's source returns the
// same migration.
TEST(ControlRanksTest, MigrationOfAKilledWorkerIsResumed) {
  const auto ends = run_ranks(3, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kQuick);
    begin_and_take(*source, 3);
    comm->barrier("all have a group");
    const int64_t left = launch.rank == 2 ? 3 : launch.rank == 1 ? 2 : 7;
    source->report({.sequences = left, .tokens = 10, .remaining = 10, .room = 8 - left});
    if (launch.rank == 1) {
      while (!source->should_migrate()) source->wait_for_news(0.01);
      source->move("two");
    }
    if (launch.rank == 2) {
      while (!source->try_take()) source->wait_for_news(0.01);
      EXPECT_EQ(source->take_migration(), "two");
      raise(SIGKILL);
    }
    if (launch.rank == 0) source->done(0);
    while (!source->step_done()) {
      const auto group = source->try_take();
      if (!group) {
        source->wait_for_news(0.01);
        continue;
      }
      EXPECT_THAT(*group, ::testing::AnyOf(2, 3));
      EXPECT_EQ(source->take_migration(), *group == 3 ? "two" : "");
      source->done(*group);
    }
    EXPECT_THAT(source->lost_workers(), ElementsAre(2));
  });
  EXPECT_THAT(ends, ElementsAre(kPassed, kPassed, 128 + SIGKILL));
}

TEST(ControlRanksTest, SuspendedWorkerMustExitWhenItContinues) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto pids = comm->all_gather_bytes(std::to_string(getpid()));
    const auto source = make_group_source(*comm, launch, kQuick);
    if (launch.rank == 1) begin_and_take(*source, 4);
    comm->barrier("rank 1 has a group");
    if (launch.rank == 1) {
      raise(SIGSTOP);
      EXPECT_THAT(thrown_message([&] {
                    while (!source->step_done()) source->wait_for_news(0.01);
                  }),
                  HasSubstr("worker 1 was silent for more than 1.5 s and was marked as lost"));
      comm->barrier("rank 1 knows");
      return;
    }
    EXPECT_EQ(roll_out(*source, 1, 4, 2, 5).size(), 4u);
    EXPECT_THAT(source->lost_workers(), ElementsAre(1));
    kill(std::stoi(pids[1]), SIGCONT);
    comm->barrier("rank 1 knows");
  });
  EXPECT_THAT(ends, Each(kPassed));
}

TEST(ControlRanksTest, LostCoordinatorIsNamed) {
  const auto ends = run_ranks(2, [](const Launch& launch) {
    const auto comm = make_comm(launch, {});
    const auto source = make_group_source(*comm, launch, kQuick);
    comm->barrier("start");
    if (launch.rank == 0) raise(SIGKILL);
    EXPECT_THAT(thrown_message([&] { roll_out(*source, 1, 4, 2, 5); }),
                HasSubstr("worker 1 has no message from the coordinator (rank 0) for 1.5 s"));
  });
  EXPECT_THAT(ends, ElementsAre(128 + SIGKILL, kPassed));
}

}  // namespace
}  // namespace tlt::cluster
