// SPDX-License-Identifier: Apache-2.0
#include "train/bundles.h"

#include <algorithm>

#include "base/check.h"
#include "ops/batch.h"
#include "train/packing.h"

namespace tlt::train {
namespace {

// Whole pages of the prompt but for its last token, whose row predicts the response's first.
int64_t stem_of(const TrainSample& sample) {
  return (sample.response_begin - 1) / ops::kPageSlots * ops::kPageSlots;
}

bool begin_alike(const TrainSample& a, const TrainSample& b) {
  const int64_t stem = stem_of(a);
  return stem > 0 && stem == stem_of(b) &&
         std::equal(a.tokens.begin(), a.tokens.begin() + stem, b.tokens.begin());
}

void add(Bundle& bundle, int64_t index, const TrainSample& sample) {
  const auto size = static_cast<int64_t>(sample.tokens.size());
  TLT_CHECK(sample.response_begin >= 1 && size >= sample.response_begin, "sample ", sample.id,
            " has ", size, " tokens, its response begins at ", sample.response_begin);
  if (bundle.samples.size() == 1) bundle.stem = stem_of(sample);  // no longer alone
  bundle.samples.push_back(index);
  bundle.tokens += size - bundle.stem;
  bundle.cost += cost_of_tokens(bundle.stem, size);
}

std::vector<Bundle> bundles_up_to(std::span<const TrainSample> samples,
                                  std::span<const int64_t> members, int64_t most_tokens) {
  std::vector<Bundle> bundles;
  for (const int64_t i : members) {
    const TrainSample& sample = samples[static_cast<size_t>(i)];
    const auto more = static_cast<int64_t>(sample.tokens.size()) - stem_of(sample);
    const bool joins =
        !bundles.empty() && bundles.back().tokens + more <= most_tokens &&
        begin_alike(sample, samples[static_cast<size_t>(bundles.back().samples.front())]);
    if (!joins) bundles.emplace_back();
    add(bundles.back(), i, sample);
  }
  return bundles;
}

}  // namespace

std::vector<Bundle> plan_bundles(std::span<const TrainSample> samples,
                                 std::span<const int64_t> members, int64_t token_budget) {
  std::vector<Bundle> bundles = bundles_up_to(samples, members, token_budget);
  int64_t tokens = 0, largest = 0;
  for (const Bundle& bundle : bundles) {
    tokens += bundle.tokens;
    largest = std::max(largest, bundle.tokens);
  }
  const int64_t share = std::max((tokens + kShares - 1) / kShares, kSmallPack);
  if (largest <= share) return bundles;
  return bundles_up_to(samples, members, std::min(token_budget, share));
}

}  // namespace tlt::train
