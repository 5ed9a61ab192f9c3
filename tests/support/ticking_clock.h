// TickingClock: advances by a millisecond per call, so that time-dependent behaviour is
// deterministic.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"

namespace tlt::tests {

// Threading: one thread.
class TickingClock final : public Clock {
 public:
  double seconds() const override { return now_ += 0.001; }

 private:
  mutable double now_ = 0;
};

}  // namespace tlt::tests
