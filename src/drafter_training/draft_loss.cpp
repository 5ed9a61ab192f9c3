// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kMinRows = 16, kMaxRows = 4096;
// Values per task of a thread: large enough that the overhead of small operations is negligible.
constexpr int64_t kPieceNumbers = 1 << 16;

// The values that DraftSums adds up, per row.
struct RowValues {
  at::Tensor hidden, logits, rank, acceptance;  // [R] double

  explicit RowValues(int64_t rows)
      : hidden(at::zeros({rows}, at::kDouble)),
        logits(at::zeros({rows}, at::kDouble)),
        rank(at::zeros({rows}, at::kDouble)),
        acceptance(at::zeros({rows}, at::kDouble)) {}
};

// Calls body(first, count) for pieces of the rows of `values`, on the device's threads; on a GPU
// once for all.
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

// The tokens that a draft model's LM head has; undefined: all.
struct Head {
  const at::Tensor& tokens;        // [R] int64
  const at::Tensor& row_of_token;  // [V] int64
};

// How many tokens the draft model ranks above the one of row `best` [n, 1]; 0: it is its best.
at::Tensor rank_of(const at::Tensor& best, const at::Tensor& drafted) {
  const at::Tensor value = drafted.gather(-1, best);
  const at::Tensor earlier = at::arange(drafted.size(-1), best.options()) < best;
  return (drafted > value).logical_or_((drafted == value).logical_and_(earlier)).sum(-1);
}

struct LogitRows {
  at::Tensor wanted, drafted;  // [n, V], [n, R]
  int64_t first = 0;           // of them, in RowValues
};

// Fills the rows' values from the logits of target and draft model; with a scale, `drafted` becomes
// scale (q - p). Only uses operations whose result for a row does not depend on other rows.
void compare_logits(const LogitRows& logits, const Head& head, double scale, RowValues& values) {
  const auto& [wanted, drafted, first] = logits;
  const int64_t rows = drafted.size(0);
  at::Tensor p = at::softmax(wanted, -1), best = wanted.argmax(-1, /*keepdim=*/true);
  at::Tensor drafted_token = drafted.argmax(-1, /*keepdim=*/true), is_there;
  if (head.tokens.defined()) drafted_token = head.tokens.index({drafted_token});
  values.acceptance.narrow(0, first, rows).copy_(p.gather(-1, drafted_token).squeeze(-1));
  if (head.tokens.defined()) {
    best = head.row_of_token.index({best});
    is_there = best >= 0;
    best = best.clamp_min(0);
    p = at::softmax(wanted.index_select(-1, head.tokens), -1);
  }
  at::Tensor rank = rank_of(best, drafted), loss = (p * at::log_softmax(drafted, -1)).sum(-1).neg();
  if (is_there.defined()) {
    rank = rank.where(is_there.squeeze(-1), drafted.size(-1));
    loss = loss.mul(is_there.squeeze(-1));
  }
  values.rank.narrow(0, first, rows).copy_(rank);
  values.logits.narrow(0, first, rows).copy_(loss);
  if (scale == 0) return;
  const at::Tensor q = at::softmax(drafted, -1);
  drafted.copy_(q.sub_(p).mul_(scale));
  if (is_there.defined()) drafted.mul_(is_there);
}

// SmoothL1 of each row; returns its slope with respect to the draft model's states.
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

DraftLoss::DraftLoss(const drafter::DraftNetwork& network, const DraftLossWeights& weights,
                     int64_t logits_bytes)
    : network_(network),
      compares_states_(network.auxiliary_layers().empty()),
      weights_(compares_states_ ? weights : DraftLossWeights{.hidden = 0, .logits = 1}),
      rows_per_chunk_(
          std::clamp(logits_bytes / (4 * network.config().vocabulary), kMinRows, kMaxRows)) {
  const int64_t vocabulary = network.config().vocabulary, rows = network.head_rows();
  if (rows == vocabulary) return;
  head_tokens_ = at::tensor(network.head_tokens(), at::kLong);
  row_of_token_ = at::full({vocabulary}, -1, at::kLong);
  row_of_token_.index_copy_(0, head_tokens_, at::arange(rows));
  for (at::Tensor* tensor : {&head_tokens_, &row_of_token_})
    *tensor = tensor->to(network.device().torch());
}

at::Tensor DraftLoss::buffer(at::Tensor& memory, int64_t rows, int64_t columns) const {
  if (!memory.defined()) memory = network_.device().empty({rows_per_chunk_, columns}, at::kFloat);
  return memory.narrow(0, 0, rows);
}

template <class Body>
void DraftLoss::for_chunks(const DraftRows& rows, const Body& body) const {
  const auto step = static_cast<size_t>(rows_per_chunk_);
  for (size_t first = 0; first < rows.rows.size(); first += step)
    body(DraftRows{rows.read, rows.wanted,
                   rows.rows.subspan(first, std::min(step, rows.rows.size() - first))});
}

DraftLoss::Chunk DraftLoss::forward(const DraftRows& rows, double scale, DraftSums& sums) {
  const auto count = std::ssize(rows.rows);
  const Device& device = network_.device();
  Chunk chunk;
  chunk.rows = at::tensor(at::IntArrayRef(rows.rows.data(), rows.rows.size()), at::kLong)
                   .to(rows.read.device());
  chunk.read = rows.read.index_select(0, chunk.rows);
  const at::Tensor states = rows.wanted.index_select(0, chunk.rows);
  chunk.logits = buffer(drafted_, count, network_.head_rows());
  at::Tensor target_logits = buffer(wanted_, count, network_.config().vocabulary);
  network_.head(chunk.read, chunk.logits);
  network_.target().logits(states, target_logits);
  RowValues values(count);
  const Head head{head_tokens_, row_of_token_};
  for_rows(device, target_logits, [&](int64_t first, int64_t piece) {
    compare_logits(
        {target_logits.narrow(0, first, piece), chunk.logits.narrow(0, first, piece), first}, head,
        scale * weights_.logits, values);
  });
  if (compares_states_) {
    chunk.slopes = at::empty(chunk.read.sizes(), chunk.logits.options());
    for_rows(device, chunk.read, [&](int64_t first, int64_t piece) {
      chunk.slopes.narrow(0, first, piece)
          .copy_(compare_states(states.narrow(0, first, piece), chunk.read.narrow(0, first, piece),
                                first, values));
    });
  }
  sums.rows += static_cast<double>(count);
  sums.hidden += values.hidden.sum().item<double>();
  sums.logits += values.logits.sum().item<double>();
  sums.acceptance += values.acceptance.sum().item<double>();
  for (size_t k = 0; k < sums.top.size(); ++k)
    sums.top[k] += (values.rank <= static_cast<double>(k)).sum().item<double>();
  return chunk;
}

void DraftLoss::measure(const DraftRows& rows, DraftSums& sums) {
  for_chunks(rows, [&](const DraftRows& some) { forward(some, /*scale=*/0, sums); });
}

const at::Tensor& DraftLoss::backward(const DraftRows& rows, double scale,
                                      model::Gradients& gradients, DraftSums& sums) {
  gradient_ = at::zeros_like(rows.read);
  for_chunks(rows, [&](const DraftRows& some) {
    const Chunk chunk = forward(some, scale, sums);
    at::Tensor d = at::empty(chunk.read.sizes(), chunk.read.options());
    network_.head_backward(chunk.read, chunk.logits, d, gradients);
    if (chunk.slopes.defined())
      d = (d.to(at::kFloat) + chunk.slopes.mul(scale * weights_.hidden)).to(d.scalar_type());
    gradient_.index_copy_(0, chunk.rows, d);
  });
  return gradient_;
}

}  // namespace tlt::drafter_training
