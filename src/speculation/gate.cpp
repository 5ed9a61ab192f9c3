// SPDX-License-Identifier: Apache-2.0
#include "speculation/gate.h"

namespace tlt::speculation {

SpeculationGate::SpeculationGate(const SpeculationOptions& options)
    : kind_(options.gate == "paper"     ? Kind::kPaper
            : options.gate == "release" ? Kind::kRelease
                                        : Kind::kLearned),
      threshold_(options.bs_threshold) {}

bool SpeculationGate::opens(int64_t batch) {
  if (kind_ == Kind::kLearned) return true;
  if (kind_ == Kind::kPaper) return batch <= threshold_;
  if (low_steps_ < kReleaseSteps) low_steps_ = batch <= threshold_ ? low_steps_ + 1 : 0;
  return low_steps_ == kReleaseSteps;
}

}  // namespace tlt::speculation
