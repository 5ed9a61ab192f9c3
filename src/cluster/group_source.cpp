// SPDX-License-Identifier: Apache-2.0
#include "cluster/group_source.h"

#include "base/check.h"

namespace tlt::cluster {

void LocalGroups::begin_step(int64_t step, int64_t groups) {
  TLT_CHECK(step_done() && step > step_ && groups >= 0, "step ", step, " of ", groups,
            " groups after step ", step_);
  step_ = step;
  next_ = 0;
  groups_ = groups;
  running_.clear();
  is_interrupted_ = was_stopped_ = false;
}

void LocalGroups::stop() {
  was_stopped_ = was_stopped_ || !step_done();
  is_interrupted_ = true;
}

std::optional<int64_t> LocalGroups::try_take() {
  if (step_done() || next_ == groups_) return std::nullopt;
  running_.insert(next_);
  return next_++;
}

void LocalGroups::done(int64_t group) {
  TLT_CHECK(running_.erase(group) == 1, "group ", group, " is done but does not run here");
}

}  // namespace tlt::cluster
