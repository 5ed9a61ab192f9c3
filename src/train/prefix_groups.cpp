// SPDX-License-Identifier: Apache-2.0
#include "train/prefix_groups.h"

#include <algorithm>

#include "base/check.h"
#include "ops/batch.h"
#include "train/packing.h"

namespace tlt::train {
namespace {

// Whole pages of the prompt without its last token, whose row predicts the response's first.
int64_t prefix_of(const TrainSample& sample) {
  return (sample.response_begin - 1) / ops::kPageSlots * ops::kPageSlots;
}

bool begin_alike(const TrainSample& a, const TrainSample& b) {
  const int64_t prefix = prefix_of(a);
  return prefix > 0 && prefix == prefix_of(b) &&
         std::equal(a.tokens.begin(), a.tokens.begin() + prefix, b.tokens.begin());
}

void add(PrefixGroup& group, int64_t index, const TrainSample& sample) {
  const auto size = static_cast<int64_t>(sample.tokens.size());
  TLT_CHECK(sample.response_begin >= 1 && size >= sample.response_begin, "sample ", sample.id,
            " has ", size, " tokens, its response begins at ", sample.response_begin);
  if (group.samples.size() == 1) group.prefix = prefix_of(sample);  // no longer a single sample
  group.samples.push_back(index);
  group.tokens += size - group.prefix;
  group.cost += cost_of_tokens(group.prefix, size);
}

std::vector<PrefixGroup> prefix_groups_up_to(std::span<const TrainSample> samples,
                                             std::span<const int64_t> members,
                                             int64_t most_tokens) {
  std::vector<PrefixGroup> groups;
  for (const int64_t i : members) {
    const TrainSample& sample = samples[static_cast<size_t>(i)];
    const auto more = static_cast<int64_t>(sample.tokens.size()) - prefix_of(sample);
    const bool joins =
        !groups.empty() && groups.back().tokens + more <= most_tokens &&
        begin_alike(sample, samples[static_cast<size_t>(groups.back().samples.front())]);
    if (!joins) groups.emplace_back();
    add(groups.back(), i, sample);
  }
  return groups;
}

}  // namespace

std::vector<PrefixGroup> plan_prefix_groups(std::span<const TrainSample> samples,
                                            std::span<const int64_t> members,
                                            int64_t token_budget) {
  std::vector<PrefixGroup> groups = prefix_groups_up_to(samples, members, token_budget);
  int64_t tokens = 0, largest = 0, longest_prefix = 0;
  for (const PrefixGroup& group : groups) {
    tokens += group.tokens;
    longest_prefix = std::max(longest_prefix, group.prefix);
    largest = std::max(largest, group.tokens);
  }
  // A shared prefix, which every part computes, is at most an eighth of it.
  const int64_t share =
      std::max({(tokens + kShares - 1) / kShares, kSmallPack, kShares * longest_prefix});
  if (largest <= share) return groups;
  return prefix_groups_up_to(samples, members, std::min(token_budget, share));
}

}  // namespace tlt::train
