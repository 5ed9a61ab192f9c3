// Statistics of scored samples: what validation and `tlt eval` report about n responses to each
// prompt, under verl's names where it has them.
//
//   mean@n    avg@n: the mean score
//   std@n     the standard deviation of a prompt's scores (divisor n), averaged over prompts
//   best@k    the expected best score of k of the n responses
//   maj@k     the expected score of the most frequent answer of k of the n responses; answers are
//             compared as strings, a response without an answer has no vote, and answers with the
//             same number of votes count equally
//   pass@k    the probability that one of k responses passes: 1 - C(n - c, k) / C(n, k) with c that
//             pass of n, the unbiased estimator of Codex
//
// "k of the n" is without replacement, so that best@k and maj@k are unbiased as well; verl draws
// with replacement, which counts some responses twice. Each statistic is a mean over prompts, so
// its interval is a bootstrap over prompts.
//
// Threading  pure functions; random numbers depend on nothing but the arguments.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tlt::reward {

// Element j: the probability that the largest of k values that are drawn from n without replacement
// is the one at j of all n in ascending order. REQUIRES: 1 <= k <= n.
std::vector<double> largest_probabilities(int64_t n, int64_t k);

// The expected largest of k of the scores. REQUIRES: 1 <= k <= scores.
double best_at_k(std::span<const double> scores, int64_t k);

// The probability that one of k of `samples` responses, of which `passed` pass, passes.
// REQUIRES: 0 <= passed <= samples, 1 <= k <= samples.
double pass_at_k(int64_t samples, int64_t passed, int64_t k);

// The expected score of the most frequent answer of k of the responses: exact where there are at
// most kMaxChoices choices of k, else the mean over as many choices drawn at random. The score of
// an answer is the mean of its responses', and without any answer that of all. An empty answer: the
// response has none. REQUIRES: as many answers as scores, 1 <= k <= scores.
inline constexpr int64_t kMaxChoices = 1000;
double majority_at_k(std::span<const double> scores, std::span<const std::string> answers,
                     int64_t k);

// A mean with its 95 % interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

// The mean of the values and the percentile bootstrap's interval, of `resamples` draws of as many
// values with replacement; 0: without an interval. REQUIRES: not empty.
Estimate bootstrap_mean(std::span<const double> values, int64_t resamples);

// The responses to one prompt: one entry each.
struct PromptScores {
  std::string source;  // data_source; empty: "unknown", as in verl
  std::vector<double> scores = {};
  std::vector<bool> passed = {};
  std::vector<std::string> answers = {};  // empty strings: no answers
};

struct EvalStatistic {
  std::string source, name;  // "openai/gsm8k", "reward/best@8/mean"
  bool is_core = false;      // val-core: mean, best, maj and pass of all n responses; else val-aux
  Estimate estimate;

  std::string metric() const;  // "val-core/openai/gsm8k/reward/best@8/mean"
};

// The statistics of each data source, in alphabetical order: mean@n and, with more than one
// response, std@n, and best@k, maj@k (if any response has an answer) and pass@k for k of 2, 4, 8 …
// and n, and pass@1. REQUIRES: every prompt has the same number of responses, at least one.
std::vector<EvalStatistic> eval_statistics(std::span<const PromptScores> prompts,
                                           int64_t resamples);

}  // namespace tlt::reward
