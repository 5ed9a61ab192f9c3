// SPDX-License-Identifier: Apache-2.0
#include "cluster/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <sstream>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "cluster/group_source.h"
#include "cluster/worker_protocol.h"

namespace tlt::cluster {

class CoordinatorPeer {
 public:
  explicit CoordinatorPeer(Coordinator& coordinator) : it_(coordinator) {}
  std::deque<int64_t>& queue(int worker) { return it_.workers_[worker].queue; }
  std::set<int64_t>& running(int worker) { return it_.workers_[worker].running; }
  std::set<int64_t>& done() { return it_.done_; }
  std::deque<int64_t>& common() { return it_.common_; }
  bool& requesting(int worker) { return it_.workers_[worker].requesting; }
  bool& trains(int worker) { return it_.workers_[worker].trains; }
  bool& lost(int worker) { return it_.workers_[worker].lost; }
  int64_t& given(int worker) { return it_.workers_[worker].given->group; }
  std::map<int64_t, std::string>& migrations() { return it_.migrations_; }
  bool& wanted(int worker) { return it_.workers_[worker].given->wanted; }
  void request_migration(int worker) { it_.pending_migration_ = {.from = worker, .to = 0}; }

 private:
  Coordinator& it_;
};

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using EventKind = Event::Kind;
using CommandKind = WorkerCommand::Kind;

constexpr double kLostAfter = 10;

// "give 3 to 1", for readable lists.
std::vector<std::string> texts(const std::vector<WorkerCommand>& commands) {
  static const std::map<CommandKind, std::string> kNames = {
      {CommandKind::kGive, "give"},         {CommandKind::kRecall, "recall"},
      {CommandKind::kNoWork, "no work"},    {CommandKind::kStepDone, "step done"},
      {CommandKind::kLost, "lost"},         {CommandKind::kExit, "exit"},
      {CommandKind::kAlive, "alive"},       {CommandKind::kTrain, "train"},
      {CommandKind::kMigrate, "move"},      {CommandKind::kHandOver, "hand over for"},
      {CommandKind::kFinished, "finished"}, {CommandKind::kStop, "stop"}};
  std::vector<std::string> result;
  for (const WorkerCommand& command : commands)
    result.push_back(kNames.at(command.kind) +
                     (command.group >= 0 ? " " + std::to_string(command.group) : "") + " to " +
                     std::to_string(command.worker) +
                     (command.migration.empty() ? "" : " with " + command.migration));
  return result;
}

int workers_in(const Coordinator& coordinator, WorkerState state, int workers = 2) {
  int count = 0;
  for (int worker = 0; worker < workers; ++worker) count += coordinator.state(worker) == state;
  return count;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  std::vector<std::string> say(EventKind kind, int worker, int64_t group = -1, int64_t step = 1) {
    const auto commands =
        coordinator_.on({.kind = kind, .worker = worker, .step = step, .group = group}, now_);
    coordinator_.check_invariant();
    return texts(commands);
  }
  std::vector<std::string> tick() {
    const auto commands = coordinator_.tick(now_);
    coordinator_.check_invariant();
    return texts(commands);
  }

  double now_ = 0;
  Coordinator coordinator_{2, kLostAfter, /*min_workers_for_training=*/0, 0};
};

TEST_F(CoordinatorTest, GroupsAreAssignedRoundRobinAndPrefetched) {
  EXPECT_THAT(say(EventKind::kBegin, 0, 5), ElementsAre("give 0 to 0"));
  EXPECT_THAT(say(EventKind::kBegin, 1, 5), ElementsAre("give 1 to 1"));
  EXPECT_THAT(say(EventKind::kStarted, 0, 0), ElementsAre("give 2 to 0"));
  EXPECT_THAT(say(EventKind::kStarted, 0, 2), ElementsAre("give 4 to 0"));
}

TEST_F(CoordinatorTest, ShareIsTheLengthOfTheQueue) {
  for (const int workers : {1, 2, 3, 7})
    for (int64_t groups = 0; groups < 16; ++groups) {
      const auto shares = Coordinator::round_robin(groups, workers);
      for (int worker = 0; worker < workers; ++worker)
        EXPECT_EQ(Coordinator::share_of(worker, groups, workers),
                  std::ssize(shares[static_cast<size_t>(worker)]))
            << groups << " groups, worker " << worker << " of " << workers;
    }
}

TEST_F(CoordinatorTest, RequestingWorkerStealsFromTheLongestQueue) {
  say(EventKind::kBegin, 0, 6);  // worker 0 holds 0, waits 2 4
  say(EventKind::kBegin, 1, 6);  // worker 1 holds 1, waits 3 5
  for (const int64_t group : {1, 3, 5}) say(EventKind::kStarted, 1, group);
  EXPECT_THAT(say(EventKind::kTake, 1), ElementsAre("give 4 to 1"));
}

TEST_F(CoordinatorTest, PrefetchedGroupIsRecalledOnce) {
  say(EventKind::kBegin, 0, 3);    // worker 0 holds 0, waits 2
  say(EventKind::kBegin, 1, 3);    // worker 1 holds 1
  say(EventKind::kStarted, 0, 0);  // now holds 2
  say(EventKind::kStarted, 1, 1);
  EXPECT_THAT(say(EventKind::kTake, 1), ElementsAre("recall 2 to 0", "no work to 1"));
  EXPECT_THAT(say(EventKind::kReturned, 0, 2), ElementsAre("give 2 to 1"));
  EXPECT_THAT(say(EventKind::kTake, 0), ElementsAre("no work to 0"));  // it is assigned there
}

TEST_F(CoordinatorTest, GroupRequestedOnItsWayIsNotRecalled) {
  say(EventKind::kBegin, 0, 2);
  say(EventKind::kBegin, 1, 2);
  say(EventKind::kStarted, 0, 0);
  EXPECT_THAT(say(EventKind::kTake, 1), IsEmpty());  // group 1 is on its way to it
  EXPECT_THAT(say(EventKind::kTake, 0), ElementsAre("no work to 0"));
}

TEST_F(CoordinatorTest, GroupStartedBeforeTheRecallStays) {
  say(EventKind::kBegin, 0, 3);
  say(EventKind::kBegin, 1, 3);
  say(EventKind::kStarted, 0, 0);
  say(EventKind::kStarted, 1, 1);
  say(EventKind::kTake, 1);
  EXPECT_THAT(say(EventKind::kStarted, 0, 2), IsEmpty());
  EXPECT_EQ(coordinator_.state(1), WorkerState::kBusy);
  say(EventKind::kDone, 1, 1);
  EXPECT_EQ(coordinator_.state(1), WorkerState::kIdle);
  EXPECT_EQ(workers_in(coordinator_, WorkerState::kIdle), 1);
}

TEST_F(CoordinatorTest, StepIsDoneWhenEveryGroupIs) {
  say(EventKind::kBegin, 0, 2);
  say(EventKind::kBegin, 1, 2);
  say(EventKind::kStarted, 0, 0);
  say(EventKind::kStarted, 1, 1);
  EXPECT_THAT(say(EventKind::kDone, 1, 1), IsEmpty());
  EXPECT_THAT(say(EventKind::kDone, 0, 0), ElementsAre("step done to 0", "step done to 1"));
  EXPECT_THAT(say(EventKind::kTake, 1), IsEmpty());
}

TEST_F(CoordinatorTest, LateWorkerGetsStepDone) {
  say(EventKind::kBegin, 0, 2);
  say(EventKind::kStarted, 0, 0);
  EXPECT_THAT(say(EventKind::kTake, 0),
              ElementsAre("give 1 to 0"));  // stolen from a worker that has not begun
  say(EventKind::kStarted, 0, 1);
  say(EventKind::kDone, 0, 0);
  EXPECT_THAT(say(EventKind::kDone, 0, 1), ElementsAre("step done to 0"));
  EXPECT_THAT(say(EventKind::kBegin, 1, 2), ElementsAre("step done to 1"));
  say(EventKind::kBegin, 0, 2, 2);
  EXPECT_THAT(say(EventKind::kBegin, 1, 2, 1), ElementsAre("step done to 1"));
}

TEST_F(CoordinatorTest, EmptyStepIsDoneAtOnce) {
  EXPECT_THAT(say(EventKind::kBegin, 0, 0), ElementsAre("step done to 0"));
}

// A worker may end a step only as long as the coordinator has not announced its end.
TEST_F(CoordinatorTest, StopEndsTheStepForAllOrForNone) {
  coordinator_.begin_step(1, {{0}, {1}});
  say(EventKind::kBegin, 0, 2);
  EXPECT_THAT(say(EventKind::kStop, 0), ElementsAre("stop to 0"));
  EXPECT_THAT(say(EventKind::kStop, 0), IsEmpty());
  EXPECT_TRUE(coordinator_.is_step_done());
  EXPECT_THAT(say(EventKind::kStarted, 0, 0), IsEmpty());
  EXPECT_THAT(say(EventKind::kBegin, 1, 2), ElementsAre("stop to 1"));
  coordinator_.begin_step(2, {{}, {}});
  say(EventKind::kBegin, 0, 0, 2);
  EXPECT_THAT(say(EventKind::kStop, 0, -1, 2), ElementsAre("stop to 0"));
  EXPECT_THAT(say(EventKind::kBegin, 1, 0, 2), ElementsAre("step done to 1", "stop to 1"));
}

TEST_F(CoordinatorTest, StartedGroupsOfALostWorkerAreGivenFirst) {
  say(EventKind::kBegin, 0, 6);
  say(EventKind::kBegin, 1, 6);
  say(EventKind::kStarted, 1, 1);  // worker 1 runs 1, holds 3, waits 5
  for (const int64_t group : {0, 2, 4}) say(EventKind::kStarted, 0, group);
  for (now_ = 0; now_ <= kLostAfter; now_ += 2) {
    say(EventKind::kHeartbeat, 0);
    EXPECT_THAT(tick(), IsEmpty());
  }
  EXPECT_THAT(tick(), ElementsAre("lost 1 to 0"));
  EXPECT_EQ(coordinator_.state(1), WorkerState::kLost);
  EXPECT_THAT(say(EventKind::kTake, 0), ElementsAre("give 1 to 0"));
  EXPECT_THAT(say(EventKind::kStarted, 0, 1), IsEmpty());
  EXPECT_THAT(say(EventKind::kTake, 0), ElementsAre("give 3 to 0"));
}

TEST_F(CoordinatorTest, IdleWorkerGetsTheGroupsOfALostOne) {
  say(EventKind::kBegin, 0, 2);
  say(EventKind::kBegin, 1, 2);
  say(EventKind::kStarted, 1, 1);
  say(EventKind::kStarted, 0, 0);
  EXPECT_THAT(say(EventKind::kTake, 0), ElementsAre("no work to 0"));
  say(EventKind::kDone, 0, 0);
  for (now_ = 0; now_ <= kLostAfter; now_ += 2) say(EventKind::kHeartbeat, 0), tick();
  EXPECT_THAT(tick(), ElementsAre("lost 1 to 0", "give 1 to 0"));
}

TEST_F(CoordinatorTest, LostWorkerThatReturnsMustExit) {
  say(EventKind::kBegin, 0, 1);
  say(EventKind::kBegin, 1, 1);
  for (now_ = 0; now_ <= kLostAfter + 2; now_ += 2) say(EventKind::kHeartbeat, 0), tick();
  EXPECT_THAT(say(EventKind::kHeartbeat, 1), ElementsAre("exit to 1"));
  EXPECT_THAT(say(EventKind::kDone, 1, 0), ElementsAre("exit to 1"));
}

TEST_F(CoordinatorTest, PauseOfTheCoordinatorLosesNoWorker) {
  now_ = 1000;
  EXPECT_THAT(tick(), IsEmpty());
  EXPECT_EQ(workers_in(coordinator_, WorkerState::kLost), 0);
}

TEST_F(CoordinatorTest, ClosedConnectionIsALossWithinSeconds) {
  say(EventKind::kBegin, 0, 2), say(EventKind::kBegin, 1, 2);
  coordinator_.set_connected(1, false, now_);
  for (now_ = 0; now_ <= Coordinator::kGoneSeconds; now_ += 1) {
    coordinator_.set_connected(1, false, now_);
    EXPECT_THAT(tick(), IsEmpty());
    EXPECT_FALSE(coordinator_.is_silent(1, now_));
  }
  EXPECT_TRUE(coordinator_.is_silent(1, now_));
  EXPECT_FALSE(coordinator_.is_silent(0, now_));
  EXPECT_THAT(tick(), ElementsAre("lost 1 to 0"));
}

TEST_F(CoordinatorTest, WorkerThatConnectsAgainIsNotLost) {
  say(EventKind::kBegin, 0, 2), say(EventKind::kBegin, 1, 2);
  for (; now_ < 3 * Coordinator::kGoneSeconds; now_ += 1) {
    coordinator_.set_connected(1, static_cast<int>(now_) % 3 == 0, now_);
    say(EventKind::kHeartbeat, 0);
    EXPECT_THAT(tick(), IsEmpty());
  }
  EXPECT_FALSE(coordinator_.is_silent(1, now_));
}

// Collectives have noticed it: nothing is decided between two steps, but others may ask.
TEST_F(CoordinatorTest, SilenceBetweenTwoStepsIsKnown) {
  for (; now_ <= kLostAfter; now_ += 2) {
    say(EventKind::kHeartbeat, 0);
    EXPECT_THAT(tick(), IsEmpty());
    EXPECT_FALSE(coordinator_.is_silent(1, now_));
  }
  EXPECT_TRUE(coordinator_.is_silent(1, now_));
  EXPECT_FALSE(coordinator_.is_silent(0, now_));
  EXPECT_NE(coordinator_.state(1), WorkerState::kLost);
}

TEST_F(CoordinatorTest, WorkerThatOthersFoundToBeLostHasNoGroups) {
  say(EventKind::kBegin, 0, 2), say(EventKind::kBegin, 1, 2);
  EXPECT_THAT(texts(coordinator_.lose(1)), ElementsAre("lost 1 to 0"));
  EXPECT_THAT(coordinator_.lose(1), IsEmpty());
  coordinator_.check_invariant();
  EXPECT_TRUE(coordinator_.is_silent(1, now_));
  EXPECT_EQ(coordinator_.state(1), WorkerState::kLost);
}

// An update may take longer than a heartbeat's timeout.
TEST_F(CoordinatorTest, SilentWorkerBetweenTwoStepsIsNotLost) {
  say(EventKind::kBegin, 0, 0);
  for (now_ = 0; now_ <= 3 * kLostAfter; now_ += 2) EXPECT_THAT(tick(), IsEmpty());
  say(EventKind::kBegin, 0, 1, 2);
  for (double end = now_ + kLostAfter - 2; now_ < end; now_ += 2)
    say(EventKind::kHeartbeat, 0), tick();
  EXPECT_EQ(workers_in(coordinator_, WorkerState::kLost), 0);
  for (double end = now_ + 6; now_ < end; now_ += 2) say(EventKind::kHeartbeat, 0), tick();
  EXPECT_EQ(coordinator_.state(1), WorkerState::kLost);
}

TEST_F(CoordinatorTest, InvalidEventsAreRejected) {
  say(EventKind::kBegin, 0, 4);
  EXPECT_THROW(say(EventKind::kStarted, 0, 2), Error);   // given was 0
  EXPECT_THROW(say(EventKind::kReturned, 0, 0), Error);  // not recalled
  EXPECT_THROW(say(EventKind::kDone, 0, 0), Error);      // not started
  EXPECT_THROW(say(EventKind::kTake, 1), Error);         // has not begun
  EXPECT_THROW(say(EventKind::kBegin, 0, 4), Error);     // twice
  EXPECT_THROW(say(EventKind::kBegin, 1, 5), Error);     // another number of groups
  EXPECT_THROW(say(EventKind::kBegin, 0, 4, 2), Error);  // step 1 is not done
  EXPECT_THROW(say(EventKind::kTake, 0, -1, 2), Error);
  EXPECT_THROW(say(EventKind::kHeartbeat, 2), Error);
}

TEST_F(CoordinatorTest, InvariantCheckDetectsEveryInjectedFault) {
  const std::vector<std::pair<std::string, std::function<void(CoordinatorPeer&)>>> faults = {
      {"given twice", [](CoordinatorPeer& peer) { peer.given(1) = peer.given(0); }},
      {"queued and running", [](CoordinatorPeer& peer) { peer.queue(1).push_back(0); }},
      {"in two queues",
       [](CoordinatorPeer& peer) { peer.queue(1).push_back(peer.queue(0).back()); }},
      {"missing", [](CoordinatorPeer& peer) { peer.queue(0).pop_back(); }},
      {"done and running", [](CoordinatorPeer& peer) { peer.done().insert(0); }},
      {"of no step", [](CoordinatorPeer& peer) { peer.common().push_back(99); }},
      {"requesting with a group", [](CoordinatorPeer& peer) { peer.requesting(0) = true; }},
      {"lost with groups", [](CoordinatorPeer& peer) { peer.lost(0) = true; }},
      {"trains with a group", [](CoordinatorPeer& peer) { peer.trains(0) = true; }},
      {"running at two workers", [](CoordinatorPeer& peer) { peer.running(1).insert(0); }},
      {"migration of no group", [](CoordinatorPeer& peer) { peer.migrations()[8] = "tokens"; }},
      {"migration of a group", [](CoordinatorPeer& peer) { peer.migrations()[1] = "tokens"; }},
      {"wanted and not noted", [](CoordinatorPeer& peer) { peer.wanted(1) = true; }},
      {"asked to migrate nothing", [](CoordinatorPeer& peer) { peer.request_migration(1); }},
  };
  for (const auto& [name, plant] : faults) {
    Coordinator coordinator(2, kLostAfter, 1, 0);
    for (const int worker : {0, 1})
      coordinator.on({.kind = EventKind::kBegin, .worker = worker, .step = 1, .group = 8}, 0);
    coordinator.on({.kind = EventKind::kStarted, .worker = 0, .step = 1, .group = 0}, 0);
    EXPECT_NO_THROW(coordinator.check_invariant());
    CoordinatorPeer peer(coordinator);
    plant(peer);
    EXPECT_THROW(coordinator.check_invariant(), Error) << name;
  }
}

// Three workers with a group each; two idle ones are promoted.
class CoordinatorTrainingTest : public CoordinatorTest {
 protected:
  CoordinatorTrainingTest() {
    for (const int worker : {0, 1, 2}) say(EventKind::kBegin, worker, 3);
    for (const int worker : {0, 1, 2}) say(EventKind::kStarted, worker, worker);
  }
  // Worker `worker` has finished its group and requests more.
  std::vector<std::string> run_dry(int worker) {
    std::vector<std::string> said = say(EventKind::kDone, worker, worker);
    for (const std::string& text : say(EventKind::kTake, worker)) said.push_back(text);
    return said;
  }
  std::vector<std::string> say(EventKind kind, int worker, int64_t group = -1, int64_t step = 1) {
    const auto commands =
        training_.on({.kind = kind, .worker = worker, .step = step, .group = group}, now_);
    training_.check_invariant();
    return texts(commands);
  }
  std::vector<std::string> tick() { return texts(training_.tick(now_)); }

  Coordinator training_{3, kLostAfter, /*min_workers_for_training=*/2, 0};
};

TEST_F(CoordinatorTrainingTest, IdleWorkersArePromotedWhenEnoughAreIdle) {
  EXPECT_THAT(run_dry(1), ElementsAre("no work to 1"));
  EXPECT_EQ(training_.state(1), WorkerState::kIdle);
  EXPECT_THAT(run_dry(0), ElementsAre("train to 0", "train to 1", "no work to 0"));
  EXPECT_EQ(workers_in(training_, WorkerState::kTraining, 3), 2);
  EXPECT_EQ(training_.state(2), WorkerState::kBusy);
}

// In FastRL a worker that is done stops training on all (docs/paper_map.md).
TEST_F(CoordinatorTrainingTest, OnlyTheEndOfTheStepEndsTraining) {
  run_dry(0);
  run_dry(1);
  EXPECT_THAT(say(EventKind::kHeartbeat, 2), ElementsAre("alive to 2"));
  EXPECT_EQ(workers_in(training_, WorkerState::kTraining, 3), 2);
  EXPECT_THAT(say(EventKind::kDone, 2, 2),
              ElementsAre("step done to 0", "step done to 1", "step done to 2"));
  EXPECT_EQ(workers_in(training_, WorkerState::kTraining, 3), 0);
  EXPECT_THAT(say(EventKind::kBegin, 0, 3, 2), ElementsAre("give 0 to 0"));
  EXPECT_EQ(workers_in(training_, WorkerState::kTraining, 3), 0);
}

TEST_F(CoordinatorTrainingTest, NewGroupEndsTrainingOnItsWorkerOnly) {
  run_dry(0);
  run_dry(1);
  for (; now_ <= kLostAfter; now_ += 2)
    for (const int worker : {0, 1}) say(EventKind::kHeartbeat, worker), tick();
  EXPECT_THAT(tick(), ElementsAre("lost 2 to 0", "lost 2 to 1", "give 2 to 0"));
  EXPECT_EQ(training_.state(0), WorkerState::kBusy);
  EXPECT_EQ(training_.state(1), WorkerState::kTraining);
  EXPECT_EQ(training_.state(2), WorkerState::kLost);
}

// One permission per idle period, however many events of the worker arrive (paper_map.md).
TEST_F(CoordinatorTrainingTest, PromotedWorkerIsNotPromotedAgain) {
  run_dry(0);
  run_dry(1);
  EXPECT_THAT(say(EventKind::kHeartbeat, 0), ElementsAre("alive to 0"));
  EXPECT_THAT(tick(), IsEmpty());
  EXPECT_THROW(say(EventKind::kTake, 0), Error);  // it is requesting already
}

TEST_F(CoordinatorTrainingTest, WorkerThatBecomesIdleLaterJoins) {
  Coordinator four(4, kLostAfter, 2, 0);
  const auto tell = [&](EventKind kind, int worker, int64_t group = -1) {
    return texts(four.on({.kind = kind, .worker = worker, .step = 1, .group = group}, 0));
  };
  for (const int worker : {0, 1, 2, 3}) tell(EventKind::kBegin, worker, 4);
  for (const int worker : {0, 1, 2, 3}) tell(EventKind::kStarted, worker, worker);
  for (const int worker : {0, 1}) tell(EventKind::kDone, worker, worker);
  for (const int worker : {0, 1}) tell(EventKind::kTake, worker);
  // It is done, the others continue training.
  EXPECT_THAT(tell(EventKind::kDone, 2, 2), IsEmpty());
  EXPECT_EQ(workers_in(four, WorkerState::kTraining, 4), 2);
  EXPECT_THAT(tell(EventKind::kTake, 2), ElementsAre("train to 2", "no work to 2"));
  EXPECT_EQ(workers_in(four, WorkerState::kTraining, 4), 3);
}

// Three workers with a group each, all of them requesting; a worker has capacity for 8 sequences.
class CoordinatorMigrationTest : public CoordinatorTest {
 protected:
  CoordinatorMigrationTest() {
    for (const int worker : {0, 1, 2}) say(EventKind::kBegin, worker, 3);
    for (const int worker : {0, 1, 2}) say(EventKind::kStarted, worker, worker);
    for (const int worker : {0, 1, 2}) say(EventKind::kTake, worker);
  }
  std::vector<std::string> tell(const Event& event) {
    const auto commands = migrating_.on(event, now_);
    migrating_.check_invariant();
    return texts(commands);
  }
  std::vector<std::string> say(EventKind kind, int worker, int64_t group = -1, int64_t step = 1) {
    return tell({.kind = kind, .worker = worker, .step = step, .group = group});
  }
  std::vector<std::string> load(int worker, int64_t sequences, int64_t tokens = 100,
                                int64_t remaining = 500) {
    return tell({.kind = EventKind::kLoad,
                 .worker = worker,
                 .step = 1,
                 .load = {.sequences = sequences,
                          .tokens = tokens,
                          .remaining = remaining,
                          .room = kCapacity - sequences}});
  }
  std::vector<std::string> move(int worker, const std::string& migration) {
    return tell(
        {.kind = EventKind::kMigrated, .worker = worker, .step = 1, .migration = migration});
  }
  // Lets the time pass in which `worker` sends nothing and is lost.
  std::vector<std::string> lose(int worker) {
    std::vector<std::string> said;
    for (const double end = now_ + kLostAfter + 2; now_ <= end; now_ += 2) {
      for (const int other : {0, 1, 2})
        if (other != worker && migrating_.state(other) != WorkerState::kLost)
          say(EventKind::kHeartbeat, other);
      for (const std::string& text : texts(migrating_.tick(now_))) said.push_back(text);
      migrating_.check_invariant();
    }
    return said;
  }

  // Its own group starts again; the migration that it got is resumed from its tokens.
  void lose_receiver(bool has_started) {
    load(0, 2);
    load(1, 1);
    EXPECT_THAT(move(1, "one"), ElementsAre("give 3 to 0 with one", "train to 1"));
    if (has_started) say(EventKind::kStarted, 0, 3);
    EXPECT_THAT(lose(0),
                ElementsAre("lost 0 to 1", "lost 0 to 2", "give 0 to 1", "give 3 to 2 with one"));
    say(EventKind::kStarted, 1, 0);
    say(EventKind::kStarted, 2, 3);
    for (const auto& [worker, group] : {std::pair(1, 0), {2, 2}, {2, 3}})
      say(EventKind::kDone, worker, group);
    EXPECT_TRUE(migrating_.is_step_done());
  }

  // The capacity that each worker reports is this less its own sequences.
  static constexpr int64_t kCapacity = 8;
  Coordinator migrating_{3, kLostAfter, /*min_workers_for_training=*/1, 0};
};

TEST_F(CoordinatorMigrationTest, FewestSequencesMigrateIfTheyFit) {
  EXPECT_THAT(load(0, 5), IsEmpty());
  EXPECT_THAT(load(1, 4), IsEmpty());  // 9 are too many
  EXPECT_THAT(load(1, 3), ElementsAre("move to 1"));
  EXPECT_THAT(load(2, 2), IsEmpty());  // one migration at a time
  EXPECT_THAT(move(1, "three"), ElementsAre("give 3 to 0 with three", "train to 1"));
  EXPECT_EQ(migrating_.state(1), WorkerState::kTraining);
  EXPECT_THAT(load(2, 1), IsEmpty());  // worker 0 has not reported its new load
  EXPECT_THAT(say(EventKind::kStarted, 0, 3), IsEmpty());
  EXPECT_THAT(load(0, 8), IsEmpty());
  EXPECT_THAT(load(0, 7), ElementsAre("move to 2"));
  EXPECT_THAT(move(2, "one"), ElementsAre("give 4 to 0 with one", "train to 2"));
  say(EventKind::kStarted, 0, 4);
  for (const int64_t group : {0, 3}) EXPECT_THAT(say(EventKind::kDone, 0, group), IsEmpty());
  EXPECT_THAT(say(EventKind::kDone, 0, 4),
              ElementsAre("step done to 0", "step done to 1", "step done to 2"));
}

TEST_F(CoordinatorMigrationTest, SequencesMigrateFromTheFewestToTheMost) {
  Coordinator four(4, kLostAfter, 0, 0);
  const auto tell = [&](Event event) {
    event.step = 1;
    const auto commands = four.on(event, 0);
    four.check_invariant();
    return texts(commands);
  };
  for (const int worker : {0, 1, 2, 3})
    tell({.kind = EventKind::kBegin, .worker = worker, .group = 4});
  const auto load = [&](int worker, int64_t sequences) {
    return tell({.kind = EventKind::kLoad,
                 .worker = worker,
                 .load = {.sequences = sequences,
                          .tokens = 10,
                          .remaining = 10,
                          .room = kCapacity - sequences}});
  };
  for (const int worker : {0, 1, 2})
    tell({.kind = EventKind::kStarted, .worker = worker, .group = worker});
  EXPECT_THAT(load(0, 6), IsEmpty());
  EXPECT_THAT(load(1, 5), IsEmpty());
  EXPECT_THAT(load(2, 2), IsEmpty());  // group 3 is not started
  EXPECT_THAT(tell({.kind = EventKind::kStarted, .worker = 3, .group = 3}),
              ElementsAre("move to 2"));
  EXPECT_THAT(tell({.kind = EventKind::kMigrated, .worker = 2, .migration = "two"}),
              ElementsAre("give 4 to 0 with two"));
}

TEST_F(CoordinatorMigrationTest, NearlyFinishedSequencesStay) {
  load(0, 2, /*tokens=*/100, /*remaining=*/500);
  EXPECT_THAT(load(1, 1, /*tokens=*/900, /*remaining=*/200), ElementsAre("move to 0"));
  // Nothing is left to migrate.
  EXPECT_THAT(say(EventKind::kDone, 0, 0), ElementsAre("train to 0"));
  EXPECT_THAT(load(2, 3, /*tokens=*/900, /*remaining=*/200), IsEmpty());
  EXPECT_THAT(load(2, 3, /*tokens=*/900, /*remaining=*/225), ElementsAre("move to 2"));
}

TEST_F(CoordinatorMigrationTest, WorkerDoneBeforeTheMigrateNeedNotAnswer) {
  load(0, 2);
  EXPECT_THAT(load(1, 1), ElementsAre("move to 1"));
  EXPECT_THAT(say(EventKind::kDone, 1, 1), ElementsAre("train to 1"));
  EXPECT_THAT(load(2, 1), ElementsAre("move to 2"));
}

TEST_F(CoordinatorMigrationTest, UnrequestedMigrationIsRejected) {
  EXPECT_THROW(move(1, "one"), Error);
  load(0, 2);
  load(1, 1);
  EXPECT_THROW(move(0, "two"), Error);
  EXPECT_THROW(move(1, ""), Error);
}

TEST_F(CoordinatorMigrationTest, CapacityOfTheReceiverIsTheLimit) {
  const auto tell_room = [&](int worker, int64_t sequences, int64_t room) {
    return tell({.kind = EventKind::kLoad,
                 .worker = worker,
                 .step = 1,
                 .load = {.sequences = sequences, .tokens = 10, .remaining = 10, .room = room}});
  };
  EXPECT_THAT(tell_room(0, 5, 1), IsEmpty());
  EXPECT_THAT(tell_room(1, 2, 4), IsEmpty());
  EXPECT_THAT(tell_room(0, 5, 2), ElementsAre("move to 1"));
}

// Against the definition: of all pairs, the one with the fewest sequences, then tokens, to the
// worker with the most; of equals the first.
TEST(CoordinatorManyWorkersTest, MigrationIsTheBestOfAllPairs) {
  constexpr int kWorkers = 4;
  RandomStream random(5, {});
  int requested = 0;
  for (int round = 0; round < 500; ++round) {
    Coordinator coordinator(kWorkers, kLostAfter, 0, 0);
    const auto tell = [&](Event event) {
      event.step = 1;
      return texts(coordinator.on(event, 0));
    };
    for (int i = 0; i < kWorkers; ++i)
      tell({.kind = EventKind::kBegin, .worker = i, .group = kWorkers});
    std::vector<WorkerLoad> loads;
    for (int i = 0; i < kWorkers; ++i) {
      if (i > 0) tell({.kind = EventKind::kStarted, .worker = i, .group = i});
      loads.push_back({.sequences = 1 + static_cast<int64_t>(random.below(4)),
                       .tokens = 1 + static_cast<int64_t>(random.below(3)),
                       .remaining = static_cast<int64_t>(random.below(2)),
                       .room = static_cast<int64_t>(random.below(4))});
    }
    // Group 0 has not started, so nothing migrates while the loads arrive.
    for (int i = 1; i < kWorkers; ++i)
      tell({.kind = EventKind::kLoad, .worker = i, .load = loads[static_cast<size_t>(i)]});
    std::optional<std::tuple<int64_t, int64_t, int64_t, int>> best;  // …, from
    for (int from = 1; from < kWorkers; ++from)
      for (int to = 1; to < kWorkers; ++to) {
        const WorkerLoad &one = loads[static_cast<size_t>(from)],
                         &other = loads[static_cast<size_t>(to)];
        if (from == to || one.tokens > 4 * one.remaining || one.sequences > other.room) continue;
        const auto key = std::tuple(one.sequences, one.tokens, -other.sequences, from);
        if (!best || std::pair(std::get<0>(key), std::get<1>(key)) <
                         std::pair(std::get<0>(*best), std::get<1>(*best)))
          best = key;
      }
    const auto said = tell({.kind = EventKind::kStarted, .worker = 0, .group = 0});
    if (best)
      EXPECT_THAT(said, ElementsAre("move to " + std::to_string(std::get<3>(*best)))) << round;
    else
      EXPECT_THAT(said, IsEmpty()) << round;
    if (!best) continue;
    ++requested;
    // The receiver: of those with capacity, the one with the most sequences.
    const WorkerLoad& moved = loads[static_cast<size_t>(std::get<3>(*best))];
    int to = -1;
    for (int i = 1; i < kWorkers; ++i)
      if (i != std::get<3>(*best) && moved.sequences <= loads[static_cast<size_t>(i)].room &&
          (to < 0 ||
           loads[static_cast<size_t>(i)].sequences > loads[static_cast<size_t>(to)].sequences))
        to = i;
    EXPECT_THAT(
        tell({.kind = EventKind::kMigrated, .worker = std::get<3>(*best), .migration = "m"}),
        ElementsAre("give 4 to " + std::to_string(to) + " with m"))
        << round;
  }
  EXPECT_GT(requested, 50);
}

// An event costs time linear in the workers: 2,000 of them, all but one idle.
TEST(CoordinatorManyWorkersTest, IdleWorkersAreCheap) {
  constexpr int kWorkers = 2000;
  Coordinator coordinator(kWorkers, kLostAfter, 0, 0);
  const auto tell = [&](Event event) {
    event.step = 1;
    coordinator.on(event, 0);
  };
  for (int i = 0; i < kWorkers; ++i) tell({.kind = EventKind::kBegin, .worker = i, .group = 1});
  tell({.kind = EventKind::kStarted, .worker = 0, .group = 0});
  const Stopwatch watch;
  for (int i = 1; i < kWorkers; ++i) tell({.kind = EventKind::kTake, .worker = i});
  EXPECT_LT(watch.seconds(),
            2);  // 4 million looks at a worker; of the square there were 2.7 billion
}

TEST_F(CoordinatorMigrationTest, NothingMigratesWithoutCapacity) {
  Coordinator still(2, kLostAfter, 1, 0);
  for (const EventKind kind : {EventKind::kBegin, EventKind::kStarted, EventKind::kLoad})
    for (const int worker : {0, 1})
      for (const WorkerCommand& command : still.on({.kind = kind,
                                          .worker = worker,
                                          .step = 1,
                                          .group = kind == EventKind::kBegin ? 2 : worker,
                                          .load = {.sequences = 1, .tokens = 1, .remaining = 9}},
                                                   0))
        EXPECT_EQ(command.kind, CommandKind::kGive);
}

TEST_F(CoordinatorMigrationTest, SenderIsLostBeforeItAnswers) {
  load(0, 2);
  EXPECT_THAT(load(1, 1), ElementsAre("move to 1"));
  EXPECT_THAT(lose(1),
              ElementsAre("lost 1 to 0", "lost 1 to 2", "give 1 to 0"));  // the whole group
  EXPECT_THAT(move(1, "late"), ElementsAre("exit to 1"));
  say(EventKind::kStarted, 0, 1);
  for (const auto& [worker, group] : {std::pair(0, 0), {0, 1}, {2, 2}})
    say(EventKind::kDone, worker, group);
  EXPECT_TRUE(migrating_.is_step_done());
}

TEST_F(CoordinatorMigrationTest, SenderIsLostAfterTheMigration) {
  load(0, 2);
  load(1, 1);
  EXPECT_THAT(move(1, "one"), ElementsAre("give 3 to 0 with one", "train to 1"));
  EXPECT_THAT(lose(1), ElementsAre("lost 1 to 0", "lost 1 to 2"));  // what was done stays done
  say(EventKind::kStarted, 0, 3);
  for (const auto& [worker, group] : {std::pair(0, 0), {0, 3}, {2, 2}})
    say(EventKind::kDone, worker, group);
  EXPECT_TRUE(migrating_.is_step_done());
}

TEST_F(CoordinatorMigrationTest, ReceiverIsLostBeforeItStarts) { lose_receiver(false); }
TEST_F(CoordinatorMigrationTest, ReceiverIsLostAfterItStarts) { lose_receiver(true); }

TEST_F(CoordinatorMigrationTest, ReceiverIsLostBeforeTheSenderAnswers) {
  load(0, 2);
  load(1, 1);
  EXPECT_THAT(lose(0), ElementsAre("lost 0 to 1", "lost 0 to 2", "give 0 to 1"));
  EXPECT_THAT(move(1, "one"), ElementsAre("give 3 to 2 with one"));  // a requesting worker gets it
}

TEST(WorkerProtocolTest, TrainingEndsWithAGroupOrTheStep) {
  for (const WorkerCommand::Kind end :
       {CommandKind::kGive, CommandKind::kStepDone, CommandKind::kExit}) {
    WorkerProtocol protocol(0);
    std::vector<Event> out;
    protocol.begin_step(1, 4, out);
    EXPECT_EQ(protocol.try_take(out), std::nullopt);
    protocol.on({.kind = CommandKind::kTrain, .step = 0}, out);  // of another step
    EXPECT_FALSE(protocol.may_train());
    protocol.on({.kind = CommandKind::kTrain, .step = 1}, out);
    protocol.on({.kind = CommandKind::kTrain, .step = 1}, out);
    EXPECT_TRUE(protocol.may_train());
    protocol.on({.kind = end, .step = 1, .group = 2}, out);
    EXPECT_FALSE(protocol.may_train());
  }
}

// A Coordinator with workers, engines and slow channels; what the engines finish is compared with
// plain sets.
class World {
 public:
  World(int workers, uint64_t seed)
      : random_(seed, {}),
        coordinator_(workers, kLostAfter, seed % 4, 0),
        capacity_(static_cast<int64_t>(seed % 3) * 4),
        sites_(workers) {
    for (int i = 0; i < workers; ++i) sites_[i].protocol = std::make_unique<WorkerProtocol>(i);
  }

  // One step with `groups` groups in which up to `deaths` workers fall silent. Some of those send
  // again later. `is_interrupted`: a worker stops the step at some time, if it is not done by then.
  void run_step(int64_t step, int64_t groups, int deaths, bool is_interrupted = false) {
    groups_ = groups;
    is_interrupted_ = is_interrupted;
    finished_.clear();
    content_.clear();
    computed_.clear();
    for (Site& site : sites_) site.complete.clear();
    dies_ = deaths > 0;
    takes_ = recalls_ = 0;
    for (int i = 0; i < size(); ++i)
      if (!sites_[i].silent) sites_[i].begins = true;
    int turns = 0;
    while (!all_know()) {
      ASSERT_LT(++turns, 20000) << "no end of step " << step << ", " << finished_.size() << " of "
                                << groups;
      const int i = static_cast<int>(random_.below(sites_.size()));
      act(i, step);
      if (random_.below(40) == 0) pass_time();
      if (deaths > 0 && alive() > 1 && random_.below(30) == 0)
        --deaths, sites_[random_.below(sites_.size())].silent = true;
    }
    bool was_stopped = false;
    for (Site& site : sites_)
      if (!site.silent) was_stopped = site.protocol->was_stopped(), site.engine.clear();
    stops_ += was_stopped;
    for (const Site& site : sites_)
      EXPECT_TRUE(site.silent || site.protocol->was_stopped() == was_stopped);
    if (was_stopped) return;
    EXPECT_EQ(finished_.size(), static_cast<size_t>(groups));
    for (const Site& site : sites_)
      EXPECT_FALSE(!site.silent && site.protocol->may_train()) << "trains after the end";
    EXPECT_LE(recalls_, takes_ + workers_in(coordinator_, WorkerState::kLost, size()));
  }

  int64_t trainings() const { return trainings_; }
  int64_t migrations() const { return migrations_; }
  int64_t handed_over() const { return handed_over_; }
  int64_t migrated_complete() const { return migrated_complete_; }
  int64_t stops() const { return stops_; }

  void check_that_lost_workers_exit() {
    for (int i = 0; i < size(); ++i) {
      if (coordinator_.state(i) != WorkerState::kLost) continue;
      Site& site = sites_[i];
      site.up.push_back({.kind = EventKind::kHeartbeat, .worker = i});
      while (!site.up.empty()) deliver_up(i);
      while (!site.down.empty()) deliver_down(i);
      EXPECT_TRUE(site.protocol->was_given_up());
    }
  }

 private:
  struct Site {
    std::unique_ptr<WorkerProtocol> protocol;
    std::deque<Event> up;
    std::deque<WorkerCommand> down;
    std::set<int64_t> engine;
    std::deque<int64_t> complete;  // done here, their gradients not begun
    bool silent = false;           // dead or hung
    bool begins = false;
  };

  int size() const { return static_cast<int>(sites_.size()); }
  int alive() const {
    return static_cast<int>(
        std::count_if(sites_.begin(), sites_.end(), [](const Site& site) { return !site.silent; }));
  }
  bool all_know() const {
    return std::all_of(sites_.begin(), sites_.end(), [](const Site& site) {
      return site.silent || (!site.begins && site.protocol->step_done());
    });
  }

  void act(int i, int64_t step) {
    Site& site = sites_[i];
    switch (random_.below(5)) {
      case 0:
        deliver_up(i);
        return;
      case 1:
        for (uint64_t count = 1 + random_.below(4); count > 0; --count) deliver_down(i);
        return;
      default:
        break;
    }
    if (site.silent) return;
    std::vector<Event> out;
    if (site.begins) {
      site.begins = false;
      site.protocol->begin_step(step, groups_, out);
    } else if (random_.below(2) == 0 && site.engine.size() < 2 + static_cast<size_t>(i)) {
      if (const auto group = site.protocol->try_take(out)) start(i, *group);
    } else if (site.protocol->should_migrate()) {
      std::string migration;
      for (const int64_t source : site.engine)
        for (const int64_t group : content_[source]) migration += std::to_string(group) + " ";
      site.engine.clear();
      site.protocol->move(migration, out);
    } else if (!site.engine.empty() && random_.below(3 + 4 * static_cast<uint64_t>(i)) == 0) {
      const int64_t source = *site.engine.begin();  // a group, or the migration of several
      site.engine.erase(source);
      site.protocol->done(source, out);
      for (const int64_t group : content_[source]) site.complete.push_back(group);
      migrated_complete_ += source >= groups_ ? std::ssize(content_[source]) : 0;
    } else if (!site.protocol->step_done()) {
      exchange_finished(site, out);
    }
    if (is_interrupted_ && !site.begins && random_.below(30) == 0) site.protocol->stop(out);
    if (const auto left = static_cast<int64_t>(site.engine.size()); left > 0)
      site.protocol->report({.sequences = left,
                             .tokens = left,
                             .remaining = left,
                             .room = std::max<int64_t>(0, capacity_ - left)},
                            out);
    for (const Event& event : out) takes_ += event.kind == EventKind::kTake;
    for (const Event& event : out) migrations_ += event.kind == EventKind::kMigrated;
    site.up.insert(site.up.end(), out.begin(), out.end());
  }

  // Gradients of finished groups: each is computed once.
  void exchange_finished(Site& site, std::vector<Event>& out) {
    site.protocol->offer(std::ssize(site.complete), out);
    if (site.protocol->should_hand_over()) {
      const bool has_group = !site.complete.empty();
      site.protocol->hand_over(has_group ? std::to_string(site.complete.back()) : "", out);
      if (has_group) site.complete.pop_back();
    } else if (!site.complete.empty() && random_.below(6) == 0) {
      compute(site.complete.front());
      site.complete.pop_front();
    } else if (site.engine.empty() && site.complete.empty()) {
      if (const std::string group = site.protocol->take_finished(out); !group.empty())
        compute(std::stoll(group)), ++handed_over_;
    }
  }
  // The groups of a lost worker are rolled out and computed again.
  void compute(int64_t group) {
    EXPECT_TRUE(computed_.insert(group).second || dies_) << "gradients of " << group << " twice";
  }

  // Starts a group, or the migration of several.
  void start(int i, int64_t source) {
    std::set<int64_t>& groups = content_[source];
    groups.clear();
    std::istringstream migration(sites_[i].protocol->take_migration());
    for (int64_t group = 0; migration >> group;) groups.insert(group);
    EXPECT_EQ(groups.empty(), source < groups_);
    if (groups.empty()) groups.insert(source);
    for (const int64_t group : groups) {
      for (int other = 0; other < size(); ++other)
        for (const int64_t running : sites_[other].engine)
          EXPECT_FALSE(!sites_[other].silent && content_[running].contains(group)) << group;
      EXPECT_FALSE(finished_.contains(group)) << "group " << group << " starts again";
    }
    sites_[i].engine.insert(source);
  }

  void deliver_up(int i) {
    Site& site = sites_[i];
    if (site.up.empty()) return;
    const Event event = site.up.front();
    site.up.pop_front();
    const bool counts =
        event.kind == EventKind::kDone && coordinator_.state(i) != WorkerState::kLost;
    if (counts) {
      for (const int64_t group : content_[event.group])
        EXPECT_TRUE(finished_.insert(group).second) << "group " << group << " is done twice";
    }
    send(coordinator_.on(event, now_));
  }

  void deliver_down(int i) {
    Site& site = sites_[i];
    if (site.down.empty()) return;
    std::vector<Event> out;
    const WorkerCommand command = site.down.front();
    site.down.pop_front();
    if (site.silent && command.kind != CommandKind::kExit) return;
    EXPECT_TRUE(command.kind != CommandKind::kStepDone ||
                finished_.size() == static_cast<size_t>(groups_));
    site.protocol->on(command, out);
    site.up.insert(site.up.end(), out.begin(), out.end());
    trainings_ += command.kind == CommandKind::kTrain;
    EXPECT_TRUE(!site.protocol->may_train() || (site.engine.empty() && !site.protocol->has_group()))
        << "worker " << i << " trains while it rolls out";
  }

  void send(const std::vector<WorkerCommand>& commands) {
    coordinator_.check_invariant();
    for (const WorkerCommand& command : commands) {
      EXPECT_EQ(coordinator_.state(command.worker) == WorkerState::kLost,
                command.kind == CommandKind::kExit);
      recalls_ += command.kind == CommandKind::kRecall;
      sites_[command.worker].down.push_back(command);
    }
  }

  void pass_time() {
    now_ += kLostAfter / 4;
    for (int i = 0; i < size(); ++i)
      if (!sites_[i].silent)
        send(coordinator_.on({.kind = EventKind::kHeartbeat, .worker = i}, now_));
    send(coordinator_.tick(now_));
  }

  RandomStream random_;
  Coordinator coordinator_;
  const int64_t capacity_;  // a worker reports this less its own sequences
  std::vector<Site> sites_;
  double now_ = 0;
  int64_t groups_ = 0;
  bool is_interrupted_ = false;
  int64_t stops_ = 0;
  std::set<int64_t> finished_;
  std::map<int64_t, std::set<int64_t>> content_;  // a migration's groups; a group: itself
  std::set<int64_t> computed_;                    // groups whose gradients were computed
  bool dies_ = false;                             // workers do in this step
  int64_t takes_ = 0, recalls_ = 0, trainings_ = 0, migrations_ = 0, handed_over_ = 0;
  int64_t migrated_complete_ = 0;
};

TEST(CoordinatorWalkTest, EveryGroupIsFinishedOnce) {
  int64_t trainings = 0, migrations = 0, handed_over = 0, migrated_complete = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World world(1 + static_cast<int>(seed % 5), seed);
    for (int64_t step = 1; step <= 4; ++step)
      world.run_step(step, static_cast<int64_t>(seed * step % 23), /*deaths=*/0);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    EXPECT_TRUE(seed % 4 > 0 || world.trainings() == 0);
    EXPECT_TRUE(seed % 3 > 0 || world.migrations() == 0);
    trainings += world.trainings();
    migrations += world.migrations();
    handed_over += world.handed_over();
    migrated_complete += world.migrated_complete();
  }
  EXPECT_GT(trainings, 50);
  EXPECT_GT(migrations, 50);
  EXPECT_GT(handed_over, 50);
  EXPECT_GT(migrated_complete, 50);
}

TEST(CoordinatorWalkTest, AllWorkersLearnThatTheStepWasStopped) {
  int64_t stops = 0, steps = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World world(1 + static_cast<int>(seed % 5), 2000 + seed);
    for (int64_t step = 1; step <= 4; ++step, ++steps)
      world.run_step(step, static_cast<int64_t>(seed * step % 23), /*deaths=*/step == 3,
                     /*is_interrupted=*/true);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    stops += world.stops();
  }
  EXPECT_GT(stops, 50);
  EXPECT_LT(stops, steps);
}

TEST(CoordinatorWalkTest, GroupsOfLostWorkersAreFinished) {
  int64_t migrations = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World world(2 + static_cast<int>(seed % 4), 1000 + seed);
    for (int64_t step = 1; step <= 4; ++step)
      world.run_step(step, 5 + static_cast<int64_t>(seed * step % 17), /*deaths=*/1);
    world.check_that_lost_workers_exit();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    migrations += world.migrations();
  }
  EXPECT_GT(migrations, 10);
}

TEST_F(CoordinatorTest, FinishedGroupsTravelToAnIdleWorker) {
  say(EventKind::kBegin, 0, 2);
  say(EventKind::kBegin, 1, 2);
  for (const int worker : {0, 1}) say(EventKind::kStarted, worker, worker);
  say(EventKind::kDone, 1, 1);
  say(EventKind::kTake, 1);
  EXPECT_THAT(say(EventKind::kWant, 1), IsEmpty());
  EXPECT_THAT(say(EventKind::kOffer, 0, 1), ElementsAre("hand over for 1 to 0"));
  EXPECT_THAT(texts(coordinator_.on({.kind = EventKind::kHandedOver,
                                     .worker = 0,
                                     .step = 1,
                                     .group = 1,
                                     .migration = "rollouts"},
                                    now_)),
              ElementsAre("finished to 1 with rollouts"));
  EXPECT_THROW(say(EventKind::kHandedOver, 0, 0), Error) << "to itself";
  EXPECT_THROW(say(EventKind::kHandedOver, 0, 2), Error) << "there is no such worker";
}

TEST(WorkerProtocolTest, OffersAndRequestsAreSentOnce) {
  WorkerProtocol protocol(0);
  std::vector<Event> out;
  protocol.begin_step(1, 2, out);
  out.clear();
  for (const int64_t groups : {0, 2, 2}) protocol.offer(groups, out);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(protocol.take_finished(out), "");
  ASSERT_EQ(out.size(), 2);
  EXPECT_EQ(out[0], (Event{.kind = EventKind::kOffer, .step = 1, .group = 2}));
  EXPECT_EQ(out[1], (Event{.kind = EventKind::kWant, .step = 1}));
  out.clear();
  protocol.on({.kind = CommandKind::kFinished, .step = 1, .migration = "rollouts"}, out);
  EXPECT_TRUE(protocol.has_finished());
  EXPECT_EQ(protocol.take_finished(out), "rollouts");
  EXPECT_THAT(out, IsEmpty());
  for (const char* rollouts : {"one", "another"})  // no group that came is lost
    protocol.on({.kind = CommandKind::kFinished, .step = 1, .migration = rollouts}, out);
  EXPECT_EQ(protocol.take_finished(out), "one");
  EXPECT_EQ(protocol.take_finished(out), "another");
  EXPECT_FALSE(protocol.has_finished());
  EXPECT_THAT(out, IsEmpty());
  protocol.on({.kind = CommandKind::kHandOver, .step = 1, .group = 1}, out);
  ASSERT_TRUE(protocol.should_hand_over());
  protocol.hand_over("mine", out);
  EXPECT_FALSE(protocol.should_hand_over());
  EXPECT_EQ(out.back(),
            (Event{.kind = EventKind::kHandedOver, .step = 1, .group = 1, .migration = "mine"}));
  protocol.offer(1, out);  // the coordinator knows
  EXPECT_EQ(out.size(), 1);
}

TEST(WorkerProtocolTest, GroupsOfAStoppedStepMayStillEnd) {
  WorkerProtocol protocol(0);
  std::vector<Event> out;
  protocol.begin_step(1, 4, out);
  protocol.on({.kind = CommandKind::kGive, .step = 1, .group = 3}, out);
  EXPECT_EQ(protocol.try_take(out), 3);
  out.clear();
  protocol.stop(out);
  protocol.stop(out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].kind, EventKind::kStop);
  EXPECT_FALSE(protocol.step_done());  // the coordinator decides
  protocol.on({.kind = CommandKind::kStop, .step = 1}, out);
  EXPECT_TRUE(protocol.step_done() && protocol.was_stopped() && protocol.is_interrupted());
  protocol.done(3, out);
  EXPECT_EQ(protocol.try_take(out), std::nullopt);
  EXPECT_EQ(out.size(), 1U);
  protocol.begin_step(2, 0, out);
  protocol.on({.kind = CommandKind::kStepDone, .step = 2}, out);
  protocol.on({.kind = CommandKind::kStop, .step = 2}, out);
  EXPECT_TRUE(protocol.step_done() && !protocol.was_stopped() && protocol.is_interrupted());
}

TEST(WorkerProtocolTest, CommandsOfAnotherStepAreIgnored) {
  WorkerProtocol protocol(0);
  std::vector<Event> out;
  protocol.begin_step(2, 4, out);
  protocol.on({.kind = CommandKind::kStepDone, .step = 1}, out);
  EXPECT_FALSE(protocol.step_done());
  protocol.on({.kind = CommandKind::kGive, .step = 1, .group = 3}, out);
  EXPECT_FALSE(protocol.has_group());
  EXPECT_THROW(protocol.begin_step(3, 4, out), Error);
  EXPECT_THROW(protocol.done(0, out), Error);
}

// A worker with one group, and the events it sends.
class WorkerProtocolMigrationTest : public ::testing::Test {
 protected:
  WorkerProtocolMigrationTest() {
    protocol_.begin_step(1, 4, out_);
    take(1);
    out_.clear();
  }
  void take(int64_t group, const std::string& migration = "") {
    hear(CommandKind::kGive, group, migration);
    EXPECT_EQ(protocol_.try_take(out_), group);
  }
  void hear(CommandKind kind, int64_t group = -1, const std::string& migration = "") {
    protocol_.on({.kind = kind, .step = 1, .group = group, .migration = migration}, out_);
  }
  std::vector<EventKind> said() {
    std::vector<EventKind> kinds;
    for (const Event& event : std::exchange(out_, {})) kinds.push_back(event.kind);
    return kinds;
  }

  WorkerProtocol protocol_{0};
  std::vector<Event> out_;
};

TEST_F(WorkerProtocolMigrationTest, LoadIsReportedOnlyWhenItChanges) {
  protocol_.report({.sequences = 3, .tokens = 100, .remaining = 9}, out_);
  protocol_.report({.sequences = 3, .tokens = 291, .remaining = 8}, out_);
  EXPECT_THAT(said(), ElementsAre(EventKind::kLoad));
  protocol_.report({.sequences = 3, .tokens = 292, .remaining = 7}, out_);
  protocol_.report({.sequences = 2, .tokens = 200, .remaining = 6}, out_);
  EXPECT_EQ(out_.back().load, (WorkerLoad{.sequences = 2, .tokens = 200, .remaining = 6}));
  EXPECT_THAT(said(), ElementsAre(EventKind::kLoad, EventKind::kLoad));
  protocol_.done(1, out_);
  protocol_.report({.sequences = 1, .tokens = 100, .remaining = 6}, out_);
  EXPECT_THAT(said(), ElementsAre(EventKind::kDone));
}

TEST_F(WorkerProtocolMigrationTest, MigrationLeavesNoGroups) {
  hear(CommandKind::kMigrate);
  EXPECT_TRUE(protocol_.should_migrate());
  protocol_.move("all", out_);
  EXPECT_EQ(out_.back().migration, "all");
  EXPECT_THAT(said(), ElementsAre(EventKind::kMigrated));
  EXPECT_FALSE(protocol_.should_migrate());
  EXPECT_THROW(protocol_.done(1, out_), Error);
  EXPECT_THROW(protocol_.move("all", out_), Error);
  hear(CommandKind::kStepDone);
  EXPECT_TRUE(protocol_.step_done());
}

TEST_F(WorkerProtocolMigrationTest, WorkerWithoutGroupsDoesNotMigrate) {
  hear(CommandKind::kMigrate);
  protocol_.done(1, out_);
  EXPECT_FALSE(protocol_.should_migrate());
  hear(CommandKind::kMigrate);
  EXPECT_FALSE(protocol_.should_migrate());
}

TEST_F(WorkerProtocolMigrationTest, MigrationIsTakenLikeAGroup) {
  hear(CommandKind::kGive, 3);
  EXPECT_FALSE(protocol_.has_migration());
  EXPECT_EQ(protocol_.try_take(out_), 3);
  hear(CommandKind::kGive, 4, "from another worker");
  EXPECT_TRUE(protocol_.has_migration());
  EXPECT_EQ(protocol_.try_take(out_), 4);
  hear(CommandKind::kGive, 5, "another");  // at the same time
  EXPECT_EQ(protocol_.take_migration(), "from another worker");
  protocol_.done(4, out_);
  EXPECT_THAT(said(), ElementsAre(EventKind::kStarted, EventKind::kStarted, EventKind::kDone));
  EXPECT_EQ(protocol_.try_take(out_), 5);
  EXPECT_EQ(protocol_.take_migration(), "another");
}

TEST(MessagesTest, MessagesRoundTrip) {
  for (int kind = 0; kind <= static_cast<int>(EventKind::kHandedOver); ++kind) {
    const Event event{
        .kind = static_cast<EventKind>(kind), .worker = 3, .step = 7, .group = int64_t{1} << 40};
    EXPECT_EQ(decode_event(encode(event), 3), event) << encode(event);
  }
  const Event load{.kind = EventKind::kLoad,
                   .worker = 3,
                   .load = {.sequences = 1, .tokens = int64_t{1} << 40, .remaining = 3, .room = 2}};
  EXPECT_EQ(decode_event(encode(load), 3), load) << encode(load);
  for (int kind = 0; kind <= static_cast<int>(CommandKind::kFinished); ++kind) {
    const WorkerCommand command{
        .kind = static_cast<CommandKind>(kind), .worker = 1, .step = 7, .group = -1};
    EXPECT_EQ(decode_command(encode(command), 1), command) << encode(command);
  }
}

TEST(MessagesTest, MalformedMessagesAreRejected) {
  const std::string good =
      encode(Event{.kind = EventKind::kDone, .worker = 0, .step = 7, .group = 2});
  for (const std::string& text : {std::string(), std::string("take"), std::string("[]"),
                                  std::string(R"({"kind":"give","step":1,"group":1})"),
                                  std::string(R"({"kind":"done","step":"1","group":1})"),
                                  std::string(R"({"kind":5,"step":1,"group":1})"),
                                  std::string(R"({"kind":"done","group":1})"),
                                  std::string(R"({"kind":"load","step":1,"group":1,"tokens":1})"),
                                  good + std::string(300, ' '), std::string("\xff\xfe")})
    EXPECT_THROW(decode_event(text, 0), Error) << text;
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(decode_event(good.substr(0, length), 0), Error);
}

TEST(LocalGroupsTest, GroupsComeInOrderUntilAllAreDone) {
  LocalGroups groups;
  groups.begin_step(4, 2);
  EXPECT_EQ(groups.try_take(), 0);
  EXPECT_EQ(groups.try_take(), 1);
  EXPECT_EQ(groups.try_take(), std::nullopt);
  groups.done(1);
  EXPECT_FALSE(groups.step_done());
  EXPECT_THROW(groups.begin_step(5, 2), Error);
  EXPECT_THROW(groups.done(1), Error);
  groups.done(0);
  EXPECT_TRUE(groups.step_done());
  groups.begin_step(5, 0);
  EXPECT_TRUE(groups.step_done());
}

TEST(LocalGroupsTest, StopEndsAStepThatIsNotDone) {
  LocalGroups groups;
  groups.begin_step(1, 2);
  EXPECT_EQ(groups.try_take(), 0);
  groups.stop();
  EXPECT_TRUE(groups.step_done() && groups.was_stopped());
  EXPECT_EQ(groups.try_take(), std::nullopt);
  groups.done(0);
  groups.begin_step(2, 0);
  EXPECT_FALSE(groups.is_interrupted());
  groups.stop();
  EXPECT_TRUE(groups.is_interrupted() && !groups.was_stopped());
}

}  // namespace
}  // namespace tlt::cluster
