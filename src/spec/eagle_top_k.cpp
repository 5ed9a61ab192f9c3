// SPDX-License-Identifier: Apache-2.0
#include "spec/eagle_top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu/kernels.h"

namespace tlt::spec {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLanes = 16;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Without a branch, so that the compiler makes vectors of it. What is not a number is passed over.
float block_top(const float* x) {
  float top[kLanes];
  std::fill_n(top, kLanes, kNothing);
  for (size_t i = 0; i < kBlock; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) top[j] = top[j + half] > top[j] ? top[j + half] : top[j];
  return top[0];
}

// The largest logits so far, in `values` in falling order, with their ids.
class Best {
 public:
  Best(std::span<int32_t> ids, std::span<float> values) : ids_(ids), values_(values) {
    std::ranges::fill(ids_, -1);
    std::ranges::fill(values_, kNothing);
  }

  float least() const { return values_.back(); }

  // REQUIRES: value > least().
  void add(int32_t id, float value) {
    size_t place = values_.size() - 1;
    for (; place > 0 && values_[place - 1] < value; --place) {
      values_[place] = values_[place - 1];
      ids_[place] = ids_[place - 1];
    }
    values_[place] = value;
    ids_[place] = id;
  }

  // Where fewer logits are finite than were asked for.
  void fill_up() {
    for (int32_t id = 0; int32_t & place : ids_) {
      if (place >= 0) continue;
      while (std::ranges::find(ids_, id) != ids_.end()) ++id;
      place = id;
    }
  }

 private:
  std::span<int32_t> ids_;
  std::span<float> values_;
};

}  // namespace

void top_k_softmax(std::span<const float> logits, std::span<int32_t> tokens,
                   std::span<float> probabilities) {
  TLT_CHECK(
      !tokens.empty() && tokens.size() == probabilities.size() && tokens.size() <= logits.size(),
      "top ", tokens.size(), " of ", logits.size());
  Best best(tokens, probabilities);
  size_t i = 0;
  const auto scan = [&](size_t end) {
    for (; i < end; ++i)
      if (logits[i] > best.least()) best.add(static_cast<int32_t>(i), logits[i]);
  };
  // After the first blocks hardly one has anything to add.
  while (logits.size() - i >= kBlock)
    block_top(&logits[i]) > best.least() ? scan(i + kBlock) : void(i += kBlock);
  scan(logits.size());
  best.fill_up();

  const ops::RowStatistic row =
      ops::cpu_kernels().row_statistic(logits.data(), std::ssize(logits),
                                       /*inverse_temperature=*/1, /*with_entropy=*/false);
  for (float& p : probabilities) p = std::exp(p - row.top - row.log_sum);
}

}  // namespace tlt::spec
