// LengthTrace: the distribution of response lengths of a ServeGen trace: a *-dataset.json, whose
// time windows have histograms of "output_tokens", or a folder of them. Every non-empty window has
// the same weight.
//
// Threading  any thread.
//
//   const LengthTrace trace = LengthTrace::read("chunk-70-dataset.json");
//   trace.sample(random)                                   // 463 on average
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/random.h"

namespace tlt::data {

class LengthTrace {
 public:
  // InputError: not such a file, or no histogram with entries.
  static LengthTrace read(const std::string& path);
  // Parses a Python dictionary "{757: 0.25, 758: 0.75}". InputError begins with `place`.
  static std::map<int64_t, double> parse_histogram(std::string_view text, const std::string& place);

  int64_t sample(RandomStream& random) const { return quantile(random.uniform()); }
  // The length that this share of the responses does not exceed.
  int64_t quantile(double share) const;
  double mean() const;
  int64_t longest() const { return weights_.rbegin()->first; }

 private:
  void add_file(const std::string& path);

  std::map<int64_t, double> weights_;  // by length
  double total_ = 0;
};

}  // namespace tlt::data
