// SPDX-License-Identifier: Apache-2.0
#include "base/timeline.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tlt {
namespace {

constexpr size_t kFlushBytes = 1 << 16;
constexpr std::string_view kBegin = "[\n";
constexpr std::string_view kEnd = "\n]\n";

// Locks the file against other workers.
class FileLock {
 public:
  explicit FileLock(const FileHandle& file) : file_(file) {
    while (::flock(file.descriptor(), LOCK_EX) != 0) {
      if (errno != EINTR) throw_file_error(file.path(), "lock", errno);
    }
  }
  ~FileLock() { ::flock(file_.descriptor(), LOCK_UN); }

 private:
  const FileHandle& file_;
};

// Offset of the next event: before the closing bracket. A worker that was killed while writing may
// have left half an event and no bracket; the next event is then written after the last one that is
// followed by another.
int64_t end_of_events(FileHandle& file) {
  const int64_t size = file.size_bytes();
  std::string tail(static_cast<size_t>(std::min<int64_t>(size, int64_t{2} * kFlushBytes)), '\0');
  const int64_t tail_offset = size - static_cast<int64_t>(tail.size());
  tail.resize(file.read_at(tail_offset, tail.data(), tail.size()));
  if (tail.ends_with(kEnd)) return size - static_cast<int64_t>(kEnd.size());
  const size_t whole_event = tail.rfind("},\n");
  if (whole_event != std::string::npos) return tail_offset + static_cast<int64_t>(whole_event) + 1;
  TLT_CHECK_INPUT(tail.substr(0, kBegin.size()) == kBegin.substr(0, tail.size()), file.path(),
                  ": not a timeline of this program; move it aside to get one");
  return 0;
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Timeline::Timeline(const std::string& path, int rank, const Clock& clock, int64_t max_events)
    : rank_(rank),
      clock_(clock),
      to_wall_us_(std::llround((wall_seconds() - clock.seconds()) * 1e6)),
      max_events_(max_events),
      file_(path, O_RDWR | O_CREAT) {
  add(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"worker {}"}}}})",
                  rank, rank));
}

Timeline::~Timeline() { flush(); }

void Timeline::span(std::string_view lane, std::string_view name, double start, double end) {
  const std::lock_guard lock(mutex_);
  const int lane_number = lane_id(lane);
  add(fmt::format(R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{},"dur":{}}})", json_string(name),
                  rank_, lane_number, microseconds(start),
                  microseconds(end) - microseconds(start)));
}

void Timeline::counter(std::string_view name, double value) {
  if (!std::isfinite(value)) return;  // JSON has no such number, and a graph no point for it
  const std::lock_guard lock(mutex_);
  add(fmt::format(R"({{"name":{},"ph":"C","pid":{},"ts":{},"args":{{"value":{}}}}})",
                  json_string(name), rank_, microseconds(clock_.seconds()), value));
}

// Integers, so that consecutive spans share the number: viewers drop spans that overlap. The offset
// to wall time is an integer too, since doubles of the seconds since 1970 are a quarter of a
// microsecond apart.
int64_t Timeline::microseconds(double clock_seconds) const {
  return std::llround(clock_seconds * 1e6) + to_wall_us_;
}

void Timeline::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

int Timeline::lane_id(std::string_view lane) {
  const auto found = lanes_.find(lane);
  if (found != lanes_.end()) return found->second;
  const int id = static_cast<int>(lanes_.size()) + 1;
  lanes_.emplace(lane, id);
  add(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                  rank_, id, json_string(lane)));
  return id;
}

void Timeline::add(std::string_view event) {
  if (has_failed_) return;
  if (events_ >= max_events_) {
    warn_once("timeline_full", "{}: {} events are written; later ones are dropped", file_.path(),
              max_events_);
    return;
  }
  ++events_;
  pending_ += ",\n";
  pending_ += event;
  if (pending_.size() >= kFlushBytes) flush_locked();
}

void Timeline::flush_locked() {
  if (pending_.empty()) return;
  try {
    append(std::exchange(pending_, {}));
  } catch (const Error& error) {
    has_failed_ = true;
    log_warning("the timeline is incomplete: {}", error.what());
  }
}

void Timeline::append(std::string text) {
  const FileLock lock(file_);
  const int64_t offset = end_of_events(file_);
  if (offset == 0) text.replace(0, 2, kBegin);  // no comma before the first event
  text += kEnd;
  file_.write_at(offset, text);
  file_.truncate(offset + static_cast<int64_t>(text.size()));
}

TimelineSpan::TimelineSpan(Timeline* timeline, std::string lane, std::string name)
    : timeline_(timeline), lane_(std::move(lane)), name_(std::move(name)) {
  if (timeline_) start_ = timeline_->clock().seconds();
}

TimelineSpan::~TimelineSpan() {
  if (timeline_) timeline_->span(lane_, name_, start_, timeline_->clock().seconds());
}

}  // namespace tlt
