// ReferenceLogprobs: the logprobs of both responses of each preference pair under the policy that
// the run starts from, which stand for a second model during training: computed once and kept in
// the file reference_logprobs of the run folder, with a checksum.
//
// An entry belongs to the tokens of its pair, whose hash the file has, and to the weights, which the
// checksum includes. Pairs without an entry are computed; a file that is damaged or of other weights
// is not used, with a warning.
//
// Owns       two numbers for each pair.
// Borrows    the run's options and context: the model, which must have the weights of the start.
// Threading  engine thread only. All workers call the same functions in the same order.
//
//   ReferenceLogprobs reference(options, context);
//   reference.read(run_folder);
//   if (!reference.try_add(count, pair_at)) return;  // interrupted; what was computed is kept
//   const auto [chosen, rejected] = reference.of(pair);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/preference_dataset.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::warmup {

class ReferenceLogprobs {
 public:
  // The sums over the tokens that count, of the chosen and of the rejected response.
  using Sums = std::pair<double, double>;
  // Gives pair i of those that are to be added.
  using PairAt = std::function<data::PreferencePair(int64_t i)>;

  ReferenceLogprobs(const run::RunOptions& options, const run::RunContext& context)
      : options_(options), context_(context) {}

  // What an earlier start of the run has computed. Rank 0 reads the file.
  void read(const std::string& run_folder);

  // Computes what is missing of `count` pairs and writes the file. False: interrupted; the file has
  // what was computed.
  [[nodiscard]] bool try_add(int64_t count, const PairAt& pair_at);

  // REQUIRES: the pair was added.
  Sums of(const data::PreferencePair& pair) const;

  int64_t size() const { return std::ssize(entries_); }

 private:
  struct Entry {
    uint64_t pair;  // hash of its tokens
    double chosen, rejected;
  };
  void compute(const std::vector<data::PreferencePair>& pairs);
  void add(const Entry& entry);
  void write() const;

  const run::RunOptions& options_;
  const run::RunContext& context_;
  std::string path_;
  std::string weights_;                          // their hash, on rank 0
  std::vector<Entry> entries_;                   // in the order of the file
  std::unordered_map<uint64_t, size_t> places_;  // of the pairs' entries
};

}  // namespace tlt::warmup
