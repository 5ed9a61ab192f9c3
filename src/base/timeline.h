// Timeline: activities of the workers over time, as Chrome trace events: open timeline.json in
// https://ui.perfetto.dev. A worker is a process, an activity (decode, train, draft …) one of its
// lanes.
//
// Owns       events that are not in the file yet.
// Threading  any thread.
// Invariant  the file is valid JSON after every flush(); all workers of a run, and a resumed run,
//            append to the same file.
//
//   Timeline timeline(folder + "/timeline.json", rank);
//   {
//     const TimelineSpan span(&timeline, "rollout", "step 12");
//     …
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/files.h"

namespace tlt {

class Timeline {
 public:
  // Limit of the events of one process; later ones are dropped, with a warning. A million spans
  // take about 100 MB.
  static constexpr int64_t kMaxEvents = 1'000'000;

  // Borrows the clock.
  Timeline(const std::string& path, int rank, const Clock& clock = steady_clock(),
           int64_t max_events = kMaxEvents);

  // Writes the remaining events.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // An activity in a lane from `start` to `end`, in seconds of the clock.
  void span(std::string_view lane, std::string_view name, double start, double end);

  // A value over time, drawn as a graph: running sequences, free pages.
  void counter(std::string_view name, double value);

  // Writes all events so far. Called automatically when enough have accumulated. If the file cannot
  // be written or is not a timeline, the timeline is dropped with a warning and the run continues.
  void flush();

  const Clock& clock() const { return clock_; }

 private:
  // All four REQUIRE: mutex_ is held.
  int lane_id(std::string_view lane);
  void add(std::string_view event);
  void flush_locked();
  void append(std::string text);  // throws where flush_locked() warns

  int64_t microseconds(double clock_seconds) const;

  const int rank_;
  const Clock& clock_;
  const int64_t to_wall_us_;  // from the clock to the time since 1970, which all hosts share
  const int64_t max_events_;

  mutable std::mutex mutex_;  // protects what follows
  FileHandle file_;
  std::string pending_;  // events, each with ",\n" before it
  std::map<std::string, int, std::less<>> lanes_;
  int64_t events_ = 0;
  bool has_failed_ = false;  // no more events are written
};

// A span from here to the end of the scope; has no effect without a timeline.
class TimelineSpan {
 public:
  TimelineSpan(Timeline* timeline, std::string lane, std::string name);
  ~TimelineSpan();
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

 private:
  Timeline* timeline_;
  std::string lane_, name_;
  double start_ = 0;
};

}  // namespace tlt
