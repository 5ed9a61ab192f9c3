// IdleWork: what a worker does while it has nothing to roll out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::rl {

class IdleWork {
 public:
  virtual ~IdleWork() = default;

  // Works for a bounded time, some tens of milliseconds. False: there is nothing to do.
  [[nodiscard]] virtual bool try_slice() = 0;
  // There is something to roll out again; what was begun waits.
  virtual void pause() = 0;
};

}  // namespace tlt::rl
