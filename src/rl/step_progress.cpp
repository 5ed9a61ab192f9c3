// SPDX-License-Identifier: Apache-2.0
#include "rl/step_progress.h"

#include <fmt/format.h>

#include <utility>

namespace tlt::rl {

PhaseWatch::PhaseWatch(Timeline* timeline, PhaseName name, const std::string& label)
    : timeline_(timeline), name_(std::move(name)) {
  if (!label.empty()) progress_.emplace(label, /*total=*/0, Progress::kTerminalOnly);
}

void PhaseWatch::set_busy(bool is_busy) {
  if (!timeline_ || is_busy == busy_since_.has_value()) return;
  const double now = timeline_->clock().seconds();
  if (is_busy) {
    busy_since_ = now;
  } else {
    timeline_->span(name_.lane, name_.span, *busy_since_, now);
    busy_since_.reset();
  }
}

void PhaseWatch::show(const State& state) {
  progress_->expect(state.expected);
  progress_->advance(
      state.done - progress_->done(),
      fmt::format("{:.0f} tok/s, {} running", static_cast<double>(state.tokens) / watch_.seconds(),
                  state.running));
}

void UpdateProgress::operator()(int64_t done, int64_t packs) {
  if (!progress_) progress_.emplace("update, packs", packs, Progress::kTerminalOnly);
  progress_->advance(1);
  if (done == packs) progress_.reset();
}

}  // namespace tlt::rl
