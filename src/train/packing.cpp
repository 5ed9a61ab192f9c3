// SPDX-License-Identifier: Apache-2.0
#include "train/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "base/check.h"

namespace tlt::train {
namespace {

// Cost model: linear layers cost O(1) per token, attention O(prefix). Both are equal at about this
// length, within a factor of three for different models.
constexpr double kAttentionLength = 8192;

int64_t wanted_packs(std::span<const int64_t> lengths, int64_t token_budget) {
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t least = (tokens + token_budget - 1) / token_budget;
  const int64_t even = (least + kShares - 1) / kShares * kShares;
  return std::max({least, std::min(even, tokens / kSmallPack), std::min<int64_t>(tokens, 1)});
}

// The indices 0 … n-1 by descending value; equal values by index.
template <class T>
std::vector<size_t> descending(std::span<const T> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

}  // namespace

std::vector<Pack> plan_packs(std::span<const int64_t> lengths, int64_t token_budget) {
  TLT_CHECK(token_budget > 0);
  std::vector<Pack> packs(static_cast<size_t>(wanted_packs(lengths, token_budget)));
  std::vector<int64_t> tokens(packs.size());  // of each pack
  for (const size_t i : descending(lengths)) {
    TLT_CHECK(lengths[i] > 0, "sequence ", i, " is empty");
    auto pack = static_cast<size_t>(std::ranges::min_element(tokens) - tokens.begin());
    if (tokens[pack] > 0 && tokens[pack] + lengths[i] > token_budget) {
      pack = packs.size();
      packs.emplace_back();
      tokens.push_back(0);
    }
    packs[pack].push_back(static_cast<int64_t>(i));
    tokens[pack] += lengths[i];
  }
  std::erase_if(packs, [](const Pack& pack) { return pack.empty(); });
  for (Pack& pack : packs) std::sort(pack.begin(), pack.end());
  return packs;
}

double cost_of_tokens(int64_t first, int64_t end) {
  const auto from = static_cast<double>(first), to = static_cast<double>(end);
  return to - from + (to * to - from * from) / kAttentionLength;
}

std::vector<int> assign_packs(std::span<const Pack> packs, std::span<const double> costs,
                              int workers, std::vector<double> loads) {
  TLT_CHECK(workers > 0);
  loads.resize(static_cast<size_t>(workers));
  std::vector<double> of_packs;
  for (const Pack& pack : packs) {
    double cost = 0;
    for (const int64_t i : pack) cost += costs[static_cast<size_t>(i)];
    of_packs.push_back(cost);
  }
  std::vector<int> owners(packs.size());
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
      least;  // load and worker
  for (int worker = 0; worker < workers; ++worker)
    least.emplace(loads[static_cast<size_t>(worker)], worker);
  for (const size_t pack : descending<double>(of_packs)) {
    const auto [load, worker] = least.top();
    owners[pack] = worker;
    least.pop();
    least.emplace(load + of_packs[pack], worker);
  }
  return owners;
}

}  // namespace tlt::train
