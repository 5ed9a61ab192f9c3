// LeftOut: says what a reader of a run folder skipped, because it is damaged or beyond a limit.
// A folder of a run that is still being written, or that a power failure damaged, is read as far as
// it goes.
//
// Threading  thread-compatible.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tlt::run {

class LeftOut {
 public:
  static constexpr size_t kMaxSentences = 20;

  void add(std::string sentence) {
    if (sentences_.size() < kMaxSentences)
      sentences_.push_back(std::move(sentence));
    else
      ++more_;
  }

  bool is_empty() const { return sentences_.empty(); }
  // The first ones, and how many more there were.
  const std::vector<std::string>& sentences() const { return sentences_; }
  int64_t more() const { return more_; }

 private:
  std::vector<std::string> sentences_;
  int64_t more_ = 0;
};

// Calls `use` for each row of a JSON lines file until it returns false. A line that is damaged, or
// that makes `use` throw a JSON exception, is added to `left_out` and skipped; after a line longer
// than `max_line_bytes` the file is not read further. Throws InputError if the file cannot be read.
void for_each_row(const std::string& path, int64_t max_line_bytes, LeftOut& left_out,
                  const std::function<bool(nlohmann::json& row)>& use);

}  // namespace tlt::run
