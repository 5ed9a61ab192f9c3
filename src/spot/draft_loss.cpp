// SPDX-License-Identifier: Apache-2.0
#include "spot/draft_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace tlt::spot {
namespace {

constexpr int64_t kMinRows = 16, kMaxRows = 4096;
// What a thread takes at a time: enough that calls of small operations do not count.
constexpr int64_t kPieceNumbers = 1 << 16;

// For each row what DraftSums adds up.
struct RowValues {
  at::Tensor hidden, logits, rank, acceptance;  // [R] double

  explicit RowValues(int64_t rows)
      : hidden(at::zeros({rows}, at::kDouble)),
        logits(at::zeros({rows}, at::kDouble)),
        rank(at::zeros({rows}, at::kDouble)),
        acceptance(at::zeros({rows}, at::kDouble)) {}
};

// body(first, count): pieces of the rows of `values`, on the device's threads; on a GPU all at
// once.
template <class Body>
void for_rows(const Device& device, const at::Tensor& values, const Body& body) {
  const int64_t rows = values.size(0);
  if (!device.is_cpu()) return body(int64_t{0}, rows);
  const int64_t piece_rows = std::max<int64_t>(1, kPieceNumbers / values.size(1));
  device.pool().run((rows + piece_rows - 1) / piece_rows, [&](int64_t piece) {
    const int64_t first = piece * piece_rows;
    body(first, std::min(piece_rows, rows - first));
  });
}

// How many tokens the drafter prefers to the target's best one: 0 when both agree.
at::Tensor rank_of_best(const at::Tensor& wanted, const at::Tensor& drafted) {
  const at::Tensor best = wanted.argmax(-1, /*keepdim=*/true);
  const at::Tensor value = drafted.gather(-1, best);
  const at::Tensor earlier = at::arange(drafted.size(-1), best.options()) < best;
  return (drafted > value).logical_or_((drafted == value).logical_and_(earlier)).sum(-1);
}

// Logits of target and drafter -> the rows' values; with a scale, `drafted` becomes scale (q - p).
// Only operations whose result for a row does not depend on the rows beside it.
void compare_logits(const at::Tensor& wanted, at::Tensor drafted, double scale, int64_t first,
                    RowValues& values) {
  const int64_t rows = drafted.size(0);
  const at::Tensor p = at::softmax(wanted, -1), log_q = at::log_softmax(drafted, -1);
  const at::Tensor best = drafted.argmax(-1, /*keepdim=*/true);
  values.acceptance.narrow(0, first, rows).copy_(p.gather(-1, best).squeeze(-1));
  values.rank.narrow(0, first, rows).copy_(rank_of_best(wanted, drafted));
  values.logits.narrow(0, first, rows).copy_((p * log_q).sum(-1).neg());
  if (scale == 0) return;
  const at::Tensor q = at::softmax(drafted, -1);
  drafted.copy_(q.sub_(p).mul_(scale));
}

// SmoothL1 of each row; its slope with respect to the drafter's states is returned.
at::Tensor compare_states(const at::Tensor& wanted, const at::Tensor& drafted, int64_t first,
                          RowValues& values) {
  const at::Tensor difference = drafted.to(at::kFloat) - wanted.to(at::kFloat);
  const at::Tensor size = difference.abs();
  const at::Tensor loss = at::where(size < 1, difference.square().mul(0.5), size - 0.5);
  values.hidden.narrow(0, first, drafted.size(0)).copy_(loss.mean(-1));
  return difference.clamp(-1, 1).div_(static_cast<double>(drafted.size(-1)));
}

}  // namespace

std::vector<double> DraftSums::values() const {
  return {rows, hidden, logits, top[0], top[1], top[2], acceptance};
}

DraftSums DraftSums::of(std::span<const double> v) {
  TLT_CHECK(v.size() == 7, v.size());
  return {v[0], v[1], v[2], {v[3], v[4], v[5]}, v[6]};
}

std::vector<std::pair<std::string, double>> DraftSums::metrics(const DraftLossWeights& weights,
                                                               const std::string& prefix) const {
  TLT_CHECK(rows > 0);
  return {{prefix + "loss", (weights.hidden * hidden + weights.logits * logits) / rows},
          {prefix + "vloss", hidden / rows},
          {prefix + "ploss", logits / rows},
          {prefix + "top1_accuracy", top[0] / rows},
          {prefix + "top2_accuracy", top[1] / rows},
          {prefix + "top3_accuracy", top[2] / rows},
          {prefix + "expected_acceptance", acceptance / rows}};
}

DraftLoss::DraftLoss(const model::PolicyModel& target, const DraftLossWeights& weights,
                     int64_t logits_bytes)
    : target_(target),
      weights_(weights),
      rows_per_chunk_(
          std::clamp(logits_bytes / (4 * target.config().vocabulary), kMinRows, kMaxRows)) {}

at::Tensor DraftLoss::buffer(at::Tensor& memory, int64_t rows) const {
  if (!memory.defined())
    memory = target_.device().empty({rows_per_chunk_, target_.config().vocabulary}, at::kFloat);
  return memory.narrow(0, 0, rows);
}

DraftLoss::Chunk DraftLoss::forward(const at::Tensor& predicted, const at::Tensor& wanted,
                                    std::span<const int64_t> rows, double scale, DraftSums& sums) {
  const auto count = static_cast<int64_t>(rows.size());
  Chunk chunk;
  chunk.rows =
      at::tensor(at::IntArrayRef(rows.data(), rows.size()), at::kLong).to(predicted.device());
  const at::Tensor drafted = predicted.index_select(0, chunk.rows),
                   states = wanted.index_select(0, chunk.rows);
  chunk.logits = buffer(drafted_, count);
  at::Tensor target_logits = buffer(wanted_, count);
  target_.logits(drafted, chunk.logits);
  target_.logits(states, target_logits);
  RowValues values(count);
  for_rows(target_.device(), chunk.logits, [&](int64_t first, int64_t piece) {
    compare_logits(target_logits.narrow(0, first, piece), chunk.logits.narrow(0, first, piece),
                   scale * weights_.logits, first, values);
  });
  chunk.slopes = at::empty(drafted.sizes(), chunk.logits.options());
  for_rows(target_.device(), drafted, [&](int64_t first, int64_t piece) {
    chunk.slopes.narrow(0, first, piece)
        .copy_(compare_states(states.narrow(0, first, piece), drafted.narrow(0, first, piece),
                              first, values));
  });
  sums.rows += static_cast<double>(count);
  sums.hidden += values.hidden.sum().item<double>();
  sums.logits += values.logits.sum().item<double>();
  sums.acceptance += values.acceptance.sum().item<double>();
  for (size_t k = 0; k < sums.top.size(); ++k)
    sums.top[k] += (values.rank <= static_cast<double>(k)).sum().item<double>();
  return chunk;
}

void DraftLoss::measure(const at::Tensor& predicted, const at::Tensor& wanted,
                        std::span<const int64_t> rows, DraftSums& sums) {
  const auto step = static_cast<size_t>(rows_per_chunk_);
  for (size_t first = 0; first < rows.size(); first += step)
    forward(predicted, wanted, rows.subspan(first, std::min(step, rows.size() - first)),
            /*scale=*/0, sums);
}

const at::Tensor& DraftLoss::backward(const at::Tensor& predicted, const at::Tensor& wanted,
                                      std::span<const int64_t> rows, int64_t counted_in_step,
                                      DraftSums& sums) {
  TLT_CHECK(counted_in_step >= static_cast<int64_t>(rows.size()), rows.size(), " rows of ",
            counted_in_step);
  const double scale = 1.0 / static_cast<double>(counted_in_step);
  gradient_ = at::zeros_like(predicted);
  const auto step = static_cast<size_t>(rows_per_chunk_);
  for (size_t first = 0; first < rows.size(); first += step) {
    const Chunk chunk = forward(
        predicted, wanted, rows.subspan(first, std::min(step, rows.size() - first)), scale, sums);
    at::Tensor d = at::empty(chunk.slopes.sizes(), predicted.options());
    target_.logits_backward_input(chunk.logits, d);
    d = (d.to(at::kFloat) + chunk.slopes.mul(scale * weights_.hidden)).to(predicted.scalar_type());
    gradient_.index_copy_(0, chunk.rows, d);
  }
  return gradient_;
}

}  // namespace tlt::spot
