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
  // If two workers together have at most this many unfinished sequences, those of one migrate to
  // the other, so that it becomes idle earlier. 0: never; -1: as many as hardly slow the other down,
  // by the prediction of the cost model.
  virtual int64_t consolidate_below() const { return 0; }
  // Rollouts resume; an unfinished slice is suspended.
  virtual void pause() = 0;
};

}  // namespace tlt::rl
