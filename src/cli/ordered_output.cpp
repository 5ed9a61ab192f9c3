// SPDX-License-Identifier: Apache-2.0
#include "cli/ordered_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/sentence.h"
#include "cli/rows.h"

namespace tlt::cli {
namespace {

using nlohmann::json;

constexpr const char* kHeader = "partial";
constexpr size_t kCopyBytes = 1 << 20;

std::string partial_of(const std::string& path) { return is_stream(path) ? "" : path + ".partial"; }

// Whether the file has more than the header.
bool has_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  for (int whole = 0; std::getline(file, line) && !file.eof();)
    if (++whole == 2) return true;
  return false;
}

json parse_line(const std::string& text, const std::string& where) {
  check_json_depth(text, where);
  json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(line.is_object(), where,
                  ": not a JSON object, the file is damaged; delete the line, or the file to start "
                  "again");
  return line;
}

std::string shown(const json& value) {
  return one_sentence(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

void OrderedOutput::check(const std::string& path, bool resume) {
  const std::string partial = partial_of(path);
  TLT_CHECK_INPUT(!resume || !partial.empty(), "--resume needs an --output that is a file; ", path,
                  " is not one");
  TLT_CHECK_INPUT(partial.empty() || !is_stream(partial), partial,
                  " is a FIFO or a device; delete it, or give another --output");
  TLT_CHECK_INPUT(resume || partial.empty() || !has_lines(partial), partial,
                  " exists from an interrupted run; add --resume to finish it, or delete the "
                  "file to start again");
}

OrderedOutput::OrderedOutput(Setup setup, const PlaceOf& place_of)
    : setup_(std::move(setup)),
      partial_path_(partial_of(setup_.path)),
      places_(static_cast<size_t>(setup_.lines)) {
  check(setup_.path, setup_.resume);
  if (partial_path_.empty()) {
    stream_.emplace(setup_.path);
    return;
  }
  AtomicFile is_writable(setup_.path);  // reports an invalid path before the computation
  open_partial();
  if (setup_.resume && partial_.size_bytes() > 0) read_partial(place_of);
  if (end_ > 0) {
    log_info("{}: {} of {} {}s are done", partial_path_, done_, setup_.lines, setup_.noun);
    return;
  }
  const std::string header = to_line({{kHeader, setup_.settings}});
  partial_.truncate(0);
  partial_.write_at(0, header);
  end_ = std::ssize(header);
}

OrderedOutput::~OrderedOutput() {
  if (is_committed_) return;
  if (stream_) {
    log_warning("{} of {} {}s were written", written_, setup_.lines, setup_.noun);
  } else if (done_ > 0) {
    log_warning("{} of {} {}s are kept in {}; resume with: {}", done_, setup_.lines, setup_.noun,
                partial_path_, setup_.resume_command);
  } else if (partial_.is_open()) {
    ::unlink(partial_path_.c_str());
  }
}

void OrderedOutput::open_partial() {
  partial_ = FileHandle(partial_path_, O_RDWR | O_CREAT);
  TLT_CHECK_INPUT(partial_.try_lock(), partial_path_,
                  ": another process writes this file; wait for it or give another --output");
}

// Reads complete lines; an incomplete last line is removed.
void OrderedOutput::read_partial(const PlaceOf& place_of) {
  std::ifstream file(partial_path_, std::ios::binary);
  std::string text;
  for (int64_t number = -1; std::getline(file, text) && !file.eof(); ++number) {
    const std::string where = partial_path_ + ":" + std::to_string(number + 2);
    const json line = parse_line(text, where);
    const int64_t bytes = std::ssize(text) + 1;
    if (number < 0) {
      check_settings(line);
      end_ += bytes;
    } else {
      const int64_t place = place_of(line, number, where);
      TLT_CHECK_INPUT(place >= 0 && place < setup_.lines && !has(place), where, ": this ",
                      setup_.noun, " is duplicated or not in the input; delete the line");
      keep(place, bytes);
    }
  }
  partial_.truncate(end_);
}

void OrderedOutput::check_settings(const json& header) const {
  TLT_CHECK_INPUT(header.contains(kHeader) && header[kHeader].is_object(), partial_path_,
                  ": not a file of an interrupted run; move it away to start again");
  const json &before = header[kHeader], now = setup_.settings;
  json names = before;
  names.update(now);  // a setting that only one of them has differs too
  for (const auto& [name, value] : names.items()) {
    const json was = before.value(name, json()), is = now.value(name, json());
    TLT_CHECK_INPUT(was == is, partial_path_, ": started with ", name, " ", shown(was),
                    ", and this command has ", shown(is),
                    "; give the same value, or delete the file to start again");
  }
}

void OrderedOutput::keep(int64_t place, int64_t bytes) {
  places_[static_cast<size_t>(place)] = {end_, bytes};
  end_ += bytes;
  ++done_;
}

void OrderedOutput::add(int64_t place, std::string_view line) {
  TLT_CHECK(place >= 0 && place < setup_.lines && !has(place) && line.ends_with('\n'), "line ",
            place, " of ", setup_.lines);
  if (!stream_) partial_.write_at(end_, line);
  keep(place, std::ssize(line));
  if (stream_) write_stream(place, line);
}

void OrderedOutput::write_stream(int64_t place, std::string_view line) {
  waiting_.emplace(place, line);
  for (; !waiting_.empty() && waiting_.begin()->first == written_; ++written_) {
    show_status("");  // the stream may be the same terminal
    stream_->append(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
}

void OrderedOutput::commit() {
  TLT_CHECK(done_ == setup_.lines, done_, " of ", setup_.lines, " lines");
  if (stream_) {
    stream_->commit();
  } else {
    write_ordered();
    ::unlink(partial_path_.c_str());
  }
  is_committed_ = true;
}

void OrderedOutput::write_ordered() {
  AtomicFile file(setup_.path);
  std::string buffer;
  for (const Place& place : places_) {
    const size_t before = buffer.size();
    buffer.resize(before + static_cast<size_t>(place.bytes));
    const size_t got =
        partial_.read_at(place.begin, buffer.data() + before, static_cast<size_t>(place.bytes));
    TLT_CHECK(static_cast<int64_t>(got) == place.bytes, partial_path_, " became shorter");
    if (buffer.size() < kCopyBytes) continue;
    file.append(buffer);
    buffer.clear();
  }
  file.append(buffer);
  file.commit();
}

}  // namespace tlt::cli
