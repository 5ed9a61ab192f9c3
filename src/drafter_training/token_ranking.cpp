// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/token_ranking.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace tlt::drafter_training {

std::vector<int32_t> rank_tokens(std::span<const DraftSample> samples,
                                 std::span<const int32_t> always, int64_t vocabulary) {
  std::vector<int64_t> counts(static_cast<size_t>(vocabulary));
  for (const DraftSample& sample : samples)
    for (size_t i = static_cast<size_t>(sample.response_begin); i < sample.tokens.size(); ++i)
      ++counts[static_cast<size_t>(sample.tokens[i])];
  for (const int32_t token : always) {
    TLT_CHECK(token >= 0 && token < vocabulary, "token ", token, " of ", vocabulary);
    counts[static_cast<size_t>(token)] = std::numeric_limits<int64_t>::max();
  }
  std::vector<int32_t> ranked(counts.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::ranges::stable_sort(ranked, std::greater<>(),
                           [&](int32_t token) { return counts[static_cast<size_t>(token)]; });
  return ranked;
}

}  // namespace tlt::drafter_training
