// Messages: what workers and the coordinator send to each other, as values and as small JSON texts.
//
// Every message belongs to an RL step; messages of an older step are ignored.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tlt::cluster {

// The unfinished part of a worker's groups.
struct WorkerLoad {
  int64_t sequences = 0;
  int64_t tokens = 0;     // they have, prompts included; to prefill after a migration
  int64_t remaining = 0;  // upper bound of tokens one of them still gets
  int64_t room = 0;       // sequences of other workers it has capacity for

  bool operator==(const WorkerLoad&) const = default;
};

// From a worker to the coordinator.
struct Event {
  enum class Kind {
    kBegin,       // begins this step; group: number of groups of the step
    kTake,        // its engine has capacity and it holds no group: requesting until one comes
    kStarted,     // its engine has started the group that was given
    kReturned,    // returns the recalled group, which it had not started
    kDone,        // all responses of the group are finished
    kLoad,        // unfinished sequences, in `load`
    kMigrated,    // answer to kMigrate: `migration` has all its unfinished sequences
    kHeartbeat,   // the worker is alive
    kStop,        // this worker was interrupted: all are to stop working on the step
    kOffer,       // group: number of finished groups whose gradients it has not begun
    kWant,        // is idle and would compute the gradients of another worker's group
    kHandedOver,  // answer to kHandOver: a group for worker `group`, in `migration`; or none
  };
  Kind kind = Kind::kHeartbeat;
  int worker = 0;
  int64_t step = 0;
  int64_t group = -1;
  WorkerLoad load = {};        // of kLoad
  std::string migration = {};  // of kMigrated, kHandedOver; a second frame after the message

  bool operator==(const Event&) const = default;
};

// From the coordinator to a worker.
struct WorkerCommand {
  enum class Kind {
    kGive,      // `group` (or migration) is for this worker
    kRecall,    // return this group unless it was started
    kNoWork,    // nothing to start now; a group may come later (a worker may be lost)
    kStepDone,  // every group of the step is done
    kLost,      // worker number `group` was lost
    kExit,      // this worker was marked lost and others have its groups: stop
    kAlive,     // answer to a heartbeat
    kTrain,     // this worker and enough others have nothing to roll out: train the draft model
                // until the next kGive or kStepDone
    kMigrate,   // send the unfinished sequences; another worker resumes them
    kStop,      // a worker was interrupted: the step ends here for all, or if it is done, nothing
                // that can be repeated later is to begin
    kHandOver,  // send a finished group whose gradients worker number `group` will compute
    kFinished,  // such a group, in `migration`
  };
  Kind kind = Kind::kAlive;
  int worker = 0;
  int64_t step = 0;
  int64_t group = -1;
  std::string migration = {};  // of kGive, kFinished; a second frame after the message

  bool operator==(const WorkerCommand&) const = default;
};

constexpr int64_t kMaxMessageBytes = 256;
constexpr int64_t kMaxMigrationBytes = int64_t{1} << 26;

std::string encode(const Event& event);
std::string encode(const WorkerCommand& command);

// Throw Error if the text is not such a message. `worker` is known from the connection, not from
// the text. A migration is not in the text: it is a frame of its own.
Event decode_event(const std::string& text, int worker);
WorkerCommand decode_command(const std::string& text, int worker);

}  // namespace tlt::cluster
