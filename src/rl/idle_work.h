// IdleWork: interface of the work that a worker does while it has nothing to roll out, such as
// training the draft model.
//
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::rl {

class IdleWork {
 public:
  virtual ~IdleWork() = default;

  // Works for one slice of some tens of milliseconds. False: there is nothing to do.
  [[nodiscard]] virtual bool try_slice() = 0;
  // Two workers whose unfinished sequences together are at most this many merge them on one worker,
  // which leaves the other one idle. 0: never migrate; -1: as many as the cost model predicts to
  // hardly slow that worker down.
  virtual int64_t consolidate_below() const { return 0; }
  // Rollouts resume; an unfinished slice is suspended.
  virtual void pause() = 0;
};

}  // namespace tlt::rl
