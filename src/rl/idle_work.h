// IdleWork: what a worker does while it has nothing to roll out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::rl {

class IdleWork {
 public:
  virtual ~IdleWork() = default;

  // Works for a bounded time, some tens of milliseconds. False: there is nothing to do.
  [[nodiscard]] virtual bool try_slice() = 0;
  // Two workers that have at most so many unfinished responses together shall have them on one of
  // them, so that the other one has more time for this; 0: they stay where they are; -1: as many as
  // hardly slow that one down.
  virtual int64_t consolidate_below() const { return 0; }
  // There is something to roll out again; what was begun waits.
  virtual void pause() = 0;
};

}  // namespace tlt::rl
