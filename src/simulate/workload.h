// Workload: how many tokens each response has.
//
// A response's length is a quantile of a distribution at a normal score; the scores of a group are
// correlated. So all kinds of distributions have correlated groups, and a length depends only on
// seed, step, prompt and sample: it is the same in every way to decode. Or the responses of a run
// are replayed, step by step and group by group; after its last step its first one follows.
//
// Threading  constant after construction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulate/recorded_tokens.h"
#include "simulate/simulate_options.h"

namespace tlt::simulate {

// A response of a run, or of verl's.
struct RecordedResponse {
  double tokens = 0;
  std::optional<double> score = {};
};

class Workload {
 public:
  // InputError: not one of the forms of SimulateOptions::lengths, or a file that cannot be used.
  explicit Workload(const SimulateOptions& options);

  // From 1 to max_response_length.
  int64_t length(int64_t step, int64_t prompt, int64_t sample) const;

  // False for a replayed group whose scores are all the same: its advantages are 0.
  bool has_gradient(int64_t step, int64_t prompt) const;

  // Whether the responses have tokens, from the file bench_suffix.
  bool has_tokens() const { return !tokens_.is_empty(); }
  // Null without.
  const ResponseTokens* tokens(int64_t step, int64_t prompt, int64_t sample) const;

 private:
  enum class Kind { kLognormal, kPareto, kTable, kReplay };
  void read_parameters(const std::string& text);
  double at(double score) const;  // the quantile at a normal score
  void read_tokens(const std::string& path);
  // A step and a response of the run: after the last step the first one follows, and groups that
  // +partial begins in addition are those of the step again.
  size_t replayed_step(int64_t step) const { return static_cast<size_t>(step) % steps_.size(); }
  size_t replayed_response(int64_t prompt, int64_t sample) const {
    return static_cast<size_t>(prompt * samples_ + sample) % steps_.front().size();
  }

  const double correlation_;
  const int64_t most_;
  const uint64_t seed_;
  const int64_t samples_;
  Kind kind_ = Kind::kTable;
  double median_ = 0, shape_ = 0;
  std::vector<double> table_;                         // quantiles at equal distances
  std::vector<std::vector<RecordedResponse>> steps_;  // replayed: of each step, by group
  RecordedTokens tokens_;
};

}  // namespace tlt::simulate
