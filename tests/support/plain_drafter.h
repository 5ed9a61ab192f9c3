// PlainDrafter: defaults for a drafter of a test, which then only proposes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drafter/drafter.h"

namespace tlt::tests {

class PlainDrafter : public drafter::Drafter {
 public:
  int64_t memory_bytes() const override { return 0; }
};

}  // namespace tlt::tests
