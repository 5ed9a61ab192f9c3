// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tlt {
namespace {

constexpr double kTerminalSeconds = 0.1;  // between two looks of the line on a terminal

}  // namespace

std::string format_duration(double seconds) {
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02d}", whole / 60, whole % 60);
  return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(std::string what, int64_t total, double interval_seconds, const Clock& clock)
    : what_(std::move(what)),
      total_(total),
      interval_seconds_(interval_seconds),
      clock_(clock),
      start_(clock.seconds()),
      last_shown_(start_) {
  TLT_CHECK(total >= 0, what_, ": total ", total);
}

Progress::~Progress() { show_status(""); }

void Progress::advance(int64_t count, std::string_view note) {
  done_ += count;
  if (!is_due()) return;
  last_shown_ = clock_.seconds();
  if (log_is_terminal()) {
    show_status(line(note));
  } else {
    log_info("{}", line(note));
  }
}

bool Progress::is_due() const {
  const double interval = log_is_terminal() ? kTerminalSeconds : interval_seconds_;
  return interval < kTerminalOnly && clock_.seconds() - last_shown_ >= interval;
}

std::string Progress::line(std::string_view note) const {
  std::string text = fmt::format("{} {}/{}", what_, done_, total_);
  if (total_ > 0) text += fmt::format(" ({}%)", 100 * done_ / total_);
  const double seconds = clock_.seconds() - start_;
  if (seconds > 0 && done_ > before_) {
    const double rate = static_cast<double>(done_ - before_) / seconds;
    text += fmt::format(" {:.3g}/s", rate);
    if (done_ < total_) {
      text += fmt::format(", ETA {}", format_duration(static_cast<double>(total_ - done_) / rate));
    }
  }
  if (!note.empty()) text += fmt::format("; {}", note);
  return text;
}

}  // namespace tlt
