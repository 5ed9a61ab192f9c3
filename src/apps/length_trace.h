// LengthTrace: how long responses are, from a trace: one of ServeGen's *-dataset.json, whose time
// windows each have a histogram of "output_tokens", or a folder of them. Every window that has one
// counts the same.
//
// Threading  any thread.
//
//   const LengthTrace trace = LengthTrace::read("chunk-70-dataset.json");
//   trace.draw(random)                                     // 463 on average
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/random.h"

namespace tlt::apps {

class LengthTrace {
 public:
  // InputError when the file is none, or has no histogram that is not empty.
  static LengthTrace read(const std::string& path);
  // "{757: 0.25, 758: 0.75}", Python's spelling. InputError names `place`.
  static std::map<int64_t, double> parse_histogram(std::string_view text, const std::string& place);

  int64_t draw(RandomStream& random) const;
  double mean() const;
  int64_t longest() const { return weights_.rbegin()->first; }

 private:
  void add_file(const std::string& path);

  std::map<int64_t, double> weights_;  // by length
  double total_ = 0;
};

}  // namespace tlt::apps
