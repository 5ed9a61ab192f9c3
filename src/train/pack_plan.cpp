// SPDX-License-Identifier: Apache-2.0
#include "train/pack_plan.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace tlt::train {

std::vector<std::span<const TrainSample>> groups_of(std::span<const TrainSample> samples) {
  std::vector<std::span<const TrainSample>> groups;
  std::set<int64_t> known;
  for (size_t first = 0, end = 0; first < samples.size(); first = end) {
    while (end < samples.size() && samples[end].group == samples[first].group) ++end;
    groups.push_back(samples.subspan(first, end - first));
    TLT_CHECK(known.insert(samples[first].group).second, "samples of group ", samples[first].group,
              " in two places");
  }
  return groups;
}

PackPlan::PackPlan(std::span<const TrainSample> samples, const std::vector<bool>& learns,
                   int64_t max_tokens, bool is_on_policy)
    : samples_(samples), is_on_policy_(is_on_policy) {
  TLT_CHECK(learns.size() == samples.size());
  int64_t i = 0;
  for (const std::span<const TrainSample> group : groups_of(samples)) {
    std::vector<int64_t> learned, measured;
    for (size_t k = 0; k < group.size(); ++k, ++i)
      (learns[static_cast<size_t>(i)] ? learned : measured).push_back(i);
    plan(group.front().group, learned, true, max_tokens);
    plan(group.front().group, measured, false, max_tokens);
  }
}

bool PackPlan::are_known(const PlannedPack& pack) const {
  return std::ranges::all_of(pack.members, [&](const PrefixGroup& group) {
    return std::ranges::all_of(group.samples, [&](int64_t i) {
      return !samples_[static_cast<size_t>(i)].rollout_entropies.empty();
    });
  });
}

void PackPlan::plan(int64_t group, const std::vector<int64_t>& members, bool learns,
                    int64_t max_tokens) {
  const std::vector<PrefixGroup> groups = plan_prefix_groups(samples_, members, max_tokens);
  std::vector<int64_t> lengths;
  for (const PrefixGroup& one : groups) lengths.push_back(one.tokens);
  for (const Pack& indices : plan_packs(lengths, max_tokens)) {
    const bool is_first = packs_.empty() || packs_.back().group != group;
    const size_t index = is_first ? 0 : packs_.back().index + 1;
    PlannedPack& pack =
        packs_.emplace_back(PlannedPack{.group = group, .index = index, .learns = learns});
    for (const int64_t i : indices) {
      pack.members.push_back(groups[static_cast<size_t>(i)]);
      pack.cost += pack.members.back().cost * (learns ? 1 : kForwardShare);
    }
    pack.is_known = is_on_policy_ && !learns && are_known(pack);
    if (pack.is_known) pack.cost = 0;
  }
}

std::vector<size_t> PackPlan::share(const std::vector<bool>& is_done, const cluster::Comm& comm,
                                    std::vector<double> loads) const {
  TLT_CHECK(is_done.size() == packs_.size());
  std::vector<Pack> left;
  std::vector<double> costs;
  for (size_t i = 0; i < packs_.size(); ++i) {
    costs.push_back(packs_[i].cost);
    if (!is_done[i]) left.push_back({static_cast<int64_t>(i)});
  }
  const std::vector<int> owners = assign_packs(left, costs, comm.size(), std::move(loads));
  std::vector<size_t> mine;
  for (size_t i = 0; i < left.size(); ++i)
    if (owners[i] == comm.rank()) mine.push_back(static_cast<size_t>(left[i].front()));
  return mine;
}

std::vector<PackedSample> PackPlan::load(const PlannedPack& pack, model::Tape& tape) const {
  const auto sample_of = [&](int64_t i) -> const TrainSample& {
    return samples_[static_cast<size_t>(i)];
  };
  tape.clear();
  std::vector<PackedSample> packed;
  for (const PrefixGroup& group : pack.members) {
    const auto prefix = static_cast<int32_t>(group.prefix);
    if (prefix > 0) tape.add_sequence(sample_of(group.samples.front()).tokens.data(), prefix);
    for (const int64_t i : group.samples) {
      const TrainSample& sample = sample_of(i);
      const auto size = static_cast<int32_t>(sample.tokens.size());
      packed.push_back({&sample, tape.batch().rows() - prefix});
      if (prefix > 0)
        tape.add_suffix(sample.tokens.data() + prefix, size - prefix);
      else
        tape.add_sequence(sample.tokens.data(), size);
    }
  }
  return packed;
}

}  // namespace tlt::train
