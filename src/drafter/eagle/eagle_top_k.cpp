// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_top_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu.h"

namespace tlt::drafter {

float inverse_temperature_of(const TopK& top) {
  return static_cast<float>(1 / top.draws.rule.logprob_temperature());
}

namespace {

constexpr int64_t kPart = 4096;           // logits: 16 KB
constexpr int64_t kSharedLogits = 16384;  // from here on several threads are faster
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The largest logits so far: `values` in falling order, and their ids; equal values in the order of
// being added.
class Largest {
 public:
  Largest(std::span<int32_t> ids, std::span<float> values) : ids_(ids), values_(values) {
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

 private:
  std::span<int32_t> ids_;
  std::span<float> values_;
};

// Replaces missing ids (-1) when fewer logits are finite than requested.
void fill_up(std::span<int32_t> ids) {
  for (int32_t id = 0; int32_t & place : ids) {
    if (place >= 0) continue;
    while (std::ranges::find(ids, id) != ids.end()) ++id;
    place = id;
  }
}

// Number of tokens to find in a row.
size_t count_of(const TopK& top, int64_t columns) {
  return top.draws.empty()
             ? top.tokens.size()
             : std::clamp(TopK::kConsidered, top.tokens.size(), static_cast<size_t>(columns));
}

}  // namespace

void TopKSoftmax::choose(const Device& device, std::span<const float> logits,
                         std::span<const TopK> top) {
  const auto rows = std::ssize(top), columns = std::ssize(logits) / std::max<int64_t>(rows, 1);
  parts_ = (columns + kPart - 1) / kPart;
  most_ = static_cast<size_t>(most_of(top, columns));
  const auto tasks = static_cast<size_t>(rows * parts_);
  parts_of_rows_.resize(tasks);
  ids_.resize(tasks * most_);
  values_.resize(tasks * most_);
  const auto row_of = [&](int64_t row) {
    return logits.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns));
  };
  const auto find_part = [&](int64_t task) {
    const int64_t row = task / parts_, first = task % parts_ * kPart;
    find(row_of(row).subspan(static_cast<size_t>(first),
                             static_cast<size_t>(std::min(kPart, columns - first))),
         static_cast<int32_t>(first), inverse_temperature_of(top[static_cast<size_t>(row)]),
         static_cast<size_t>(task));
  };
  if (rows * columns >= kSharedLogits)
    device.pool().run(rows * parts_, find_part);
  else
    for (int64_t task = 0; task < rows * parts_; ++task) find_part(task);
  for (int64_t row = 0; row < rows; ++row) merge(row_of(row), row, top[static_cast<size_t>(row)]);
}

int64_t TopKSoftmax::most_of(std::span<const TopK> top, int64_t columns) {
  size_t most = 0;
  for (const TopK& row : top) {
    TLT_CHECK(!row.tokens.empty() && row.tokens.size() == row.probabilities.size() &&
                  std::ssize(row.tokens) <= columns,
              "top ", row.tokens.size(), " of ", columns);
    most = std::max(most, count_of(row, columns));
  }
  return static_cast<int64_t>(most);
}

void TopKSoftmax::choose(std::span<const ops::TopToken> found, std::span<const TopK> top) {
  const size_t most = found.size() / std::max<size_t>(top.size(), 1);
  for (size_t row = 0; row < top.size(); ++row) {
    const auto its = found.subspan(row * most, count_of(top[row], static_cast<int64_t>(most)));
    largest_ids_.clear();
    for (const ops::TopToken& one : its) largest_ids_.push_back(one.token);
    fill_up(largest_ids_);
    considered_.clear();
    for (size_t i = 0; i < its.size(); ++i)
      considered_.push_back({.token = largest_ids_[i],
                             .before = its[i].before,
                             .probability = its[i].probability,
                             .untruncated = its[i].probability});
    const SharedUniforms& draws = top[row].draws;
    if (!draws.empty() && draws.rule.truncates()) truncate(draws.rule, considered_);
    write(top[row]);
  }
}

void TopKSoftmax::find(std::span<const float> part, int32_t first_id, float inverse_temperature,
                       size_t task) {
  const size_t place = task * most_;
  Largest largest({&ids_[place], most_}, {&values_[place], most_});
  std::array<float, kPart / ops::kLogitsBlock> tops;
  const float top = ops::largest_of_blocks(part, tops);
  // After the first blocks hardly one has anything to add.
  constexpr auto kBlock = static_cast<size_t>(ops::kLogitsBlock);
  for (size_t first = 0; first < part.size(); first += kBlock)
    if (tops[first / kBlock] > largest.least())
      for (size_t i = first; i < std::min(first + kBlock, part.size()); ++i)
        if (part[i] > largest.least()) largest.add(first_id + static_cast<int32_t>(i), part[i]);
  parts_of_rows_[task] = {top, ops::sum_of_exp(part, top, inverse_temperature)};
}

void TopKSoftmax::merge(std::span<const float> logits, int64_t row, const TopK& top) {
  largest_ids_.resize(count_of(top, std::ssize(logits)));
  largest_.resize(largest_ids_.size());
  Largest largest(largest_ids_, largest_);
  const float inverse_temperature = inverse_temperature_of(top);
  const auto first = static_cast<size_t>(row * parts_), end = first + static_cast<size_t>(parts_);
  float highest = kNothing, sum = 0;
  for (size_t part = first; part < end; ++part) {
    highest = std::max(highest, parts_of_rows_[part].top);
    for (size_t i = part * most_; i < (part + 1) * most_ && values_[i] > largest.least(); ++i)
      largest.add(ids_[i], values_[i]);
  }
  fill_up(largest_ids_);
  for (size_t part = first; part < end; ++part)
    sum += std::exp((parts_of_rows_[part].top - highest) * inverse_temperature) *
           parts_of_rows_[part].sum;
  const float log_sum = highest * inverse_temperature + std::log(sum);
  considered_.clear();
  for (size_t i = 0; i < largest_.size(); ++i) {
    const double probability = std::exp(largest_[i] * inverse_temperature - log_sum);
    considered_.push_back(
        {.token = largest_ids_[i], .probability = probability, .untruncated = probability});
  }
  if (!top.draws.empty()) {
    if (top.draws.rule.truncates())
      truncate(top.draws.rule, considered_);
    else
      add_up(logits, std::span(parts_of_rows_).subspan(first, static_cast<size_t>(parts_)), log_sum,
             inverse_temperature);
  }
  write(top);
}

void TopKSoftmax::write(const TopK& top) {
  if (!top.draws.empty()) use_uniform(top.draws.numbers.front(), considered_);
  for (size_t i = 0; i < top.tokens.size(); ++i) {
    top.tokens[i] = considered_[i].token;
    top.probabilities[i] = static_cast<float>(considered_[i].probability);
  }
}

// Adds the known sums of whole parts, and within a part the sums between considered tokens.
void TopKSoftmax::add_up(std::span<const float> logits, std::span<const Part> parts, float log_sum,
                         float inverse_temperature) {
  const auto share = [&](const Part& part, float sum) {
    return static_cast<double>(std::exp(part.top * inverse_temperature - log_sum) * sum);
  };
  std::ranges::sort(considered_, {}, &Considered::token);
  double before = 0;      // of the tokens before `reached`
  double part_begin = 0;  // of its part
  int64_t reached = 0;
  for (Considered& one : considered_) {
    for (; one.token / kPart > reached / kPart; reached = (reached / kPart + 1) * kPart) {
      const Part& part = parts[static_cast<size_t>(reached / kPart)];
      before = part_begin += share(part, part.sum);
    }
    const Part& part = parts[static_cast<size_t>(reached / kPart)];
    before += share(part, ops::sum_of_exp(logits.subspan(static_cast<size_t>(reached),
                                                         static_cast<size_t>(one.token - reached)),
                                          part.top, inverse_temperature));
    one.before = before;
    reached = one.token;
  }
}

}  // namespace tlt::drafter
