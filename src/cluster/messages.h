// Messages: what workers and the coordinator say to each other, as values and as small JSON texts.
//
// Every message belongs to an RL step; one of an older step is out of date and is ignored.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tlt::cluster {

// What a worker has not finished.
struct Load {
  int64_t sequences = 0;
  int64_t tokens = 0;     // that they have, prompts included: another worker computes those first
  int64_t remaining = 0;  // that one of them may still get, at most
  int64_t room = 0;       // so many sequences of others it would take on

  bool operator==(const Load&) const = default;
};

// From a worker to the coordinator.
struct Event {
  enum class Kind {
    kBegin,      // "I begin this step"; group: how many groups it has
    kTake,       // "my engine has room and I hold no group": hungry until a group comes
    kStarted,    // "my engine has started the group you gave me"
    kReturned,   // "here is the group back that you asked back; I had not started it"
    kDone,       // "all responses of the group are finished"
    kLoad,       // "this much is left here"
    kMoved,      // "you asked me to move: all that was left of my groups is in this parcel"
    kHeartbeat,  // "I am alive"
  };
  Kind kind = Kind::kHeartbeat;
  int worker = 0;
  int64_t step = 0;
  int64_t group = -1;
  Load load = {};           // of kLoad
  std::string parcel = {};  // of kMoved; bytes that stand behind the message

  bool operator==(const Event&) const = default;
};

// From the coordinator to a worker.
struct Command {
  enum class Kind {
    kGive,      // this group, or parcel, is yours
    kRecall,    // give this group back unless you have started it
    kNoWork,    // nothing to start now; a group may come later (a worker may be lost)
    kStepDone,  // every group of the step is done
    kLost,      // worker number `group` was lost
    kExit,      // you were given up as lost and others have your groups: stop
    kAlive,     // answer to a heartbeat
    kTrain,     // you and enough others have nothing to roll out: train the drafter until the next
                // kGive or kStepDone
    kMove,      // give up all you have begun: another worker, with more of it, goes on
  };
  Kind kind = Kind::kAlive;
  int worker = 0;
  int64_t step = 0;
  int64_t group = -1;
  std::string parcel = {};  // of a kGive; bytes that stand behind the message

  bool operator==(const Command&) const = default;
};

constexpr int64_t kMaxMessageBytes = 256;
constexpr int64_t kMaxParcelBytes = int64_t{1} << 26;

std::string encode(const Event& event);
std::string encode(const Command& command);

// Throw Error when the text is no such message. The connection says which `worker` it is, not the
// text. A parcel stands behind the text, not in it.
Event decode_event(const std::string& text, int worker);
Command decode_command(const std::string& text, int worker);

}  // namespace tlt::cluster
