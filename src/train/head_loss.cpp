// SPDX-License-Identifier: Apache-2.0
#include "train/head_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace tlt::train {
namespace {

constexpr int64_t kMinRows = 16, kMaxRows = 4096;

std::span<const float> floats(const at::Tensor& values, int64_t first, int64_t count) {
  return {values.data_ptr<float>() + first, static_cast<size_t>(count)};
}

std::span<float> mutable_floats(at::Tensor& values, int64_t first, int64_t count) {
  return {values.data_ptr<float>() + first, static_cast<size_t>(count)};
}

}  // namespace

HeadLoss::HeadLoss(const model::PolicyModel& model, double temperature, int64_t logits_bytes)
    : model_(model),
      temperature_(temperature > 0 ? temperature : 1.0),
      rows_per_chunk_(
          std::clamp(logits_bytes / (4 * model.config().vocabulary), kMinRows, kMaxRows)) {}

std::vector<HeadLoss::Chunk> HeadLoss::cut(std::span<const PackedSample> pack) const {
  std::vector<Chunk> chunks;
  for (const auto& [sample, first_row] : pack) {
    TLT_CHECK(sample->response_begin >= 1, "response_begin ", sample->response_begin, " of ",
              sample->tokens.size(), " tokens");
    for (int64_t token = 0; token < sample->response_size(); ++token) {
      if (chunks.empty() || std::ssize(chunks.back().rows) == rows_per_chunk_)
        chunks.emplace_back();
      Chunk& chunk = chunks.back();
      if (chunk.pieces.empty() || chunk.pieces.back().sample != sample)
        chunk.pieces.push_back({sample, token, 0});
      ++chunk.pieces.back().count;
      const int64_t position = sample->response_begin + token;
      chunk.rows.push_back(first_row + position - 1);  // a row predicts the next token
      chunk.targets.push_back(sample->tokens[static_cast<size_t>(position)]);
    }
  }
  return chunks;
}

void HeadLoss::forward(const at::Tensor& hidden, const Chunk& chunk) {
  if (!buffer_.defined())
    buffer_ = model_.device().empty({rows_per_chunk_, model_.config().vocabulary}, at::kFloat);
  rows_ = at::tensor(chunk.rows, at::kLong).to(hidden.device());
  targets_ = at::tensor(chunk.targets, at::kInt).to(hidden.device());
  inputs_ = hidden.index_select(0, rows_);
  logits_ = buffer_.narrow(0, 0, rows_.size(0));
  model_.logits(inputs_, logits_);
  ops::row_statistics(model_.device(), target_rows(), statistics_);
}

// Of the rows of forward().
void HeadLoss::forward_teacher() {
  if (!teacher_buffer_.defined())
    teacher_buffer_ =
        model_.device().empty({rows_per_chunk_, model_.config().vocabulary}, at::kFloat);
  teacher_logits_ = teacher_buffer_.narrow(0, 0, rows_.size(0));
  teacher_->logits(teacher_hidden_.index_select(0, rows_), teacher_logits_);
  kl_ = teacher_kl({model_.device(), logits_, temperature_, kl_options_}, teacher_logits_);
  d_kl_.resize(kl_.size());
}

void HeadLoss::score(const at::Tensor& hidden, std::span<const PackedSample> pack, const See& see) {
  for (const Chunk& chunk : cut(pack)) {
    forward(hidden, chunk);
    const at::Tensor logprobs = statistics_.logprob.cpu();
    int64_t at = 0;
    for (const Piece& piece : chunk.pieces) {
      see(*piece.sample, piece.first, floats(logprobs, at, piece.count));
      at += piece.count;
    }
  }
}

void HeadLoss::add_losses(const Chunk& chunk, TokenLoss& loss, const See& see) {
  const at::Tensor logprobs = statistics_.logprob.cpu(), entropies = statistics_.entropy.cpu();
  d_logprob_ = at::empty_like(logprobs);
  d_entropy_ = at::empty_like(entropies);
  const auto part = [](auto& values, int64_t first, int64_t count) {
    return values.empty()
               ? std::span<float>()
               : std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  };
  int64_t at = 0;
  for (const Piece& piece : chunk.pieces) {
    see(*piece.sample, piece.first, floats(logprobs, at, piece.count));
    loss.add({.sample = *piece.sample,
              .first = piece.first,
              .logprobs = floats(logprobs, at, piece.count),
              .entropies = floats(entropies, at, piece.count),
              .teacher_kl = part(kl_, at, piece.count)},
             {.d_logprob = mutable_floats(d_logprob_, at, piece.count),
              .d_entropy = mutable_floats(d_entropy_, at, piece.count),
              .d_teacher_kl = part(d_kl_, at, piece.count)});
    at += piece.count;
  }
}

void HeadLoss::preview(const at::Tensor& hidden, std::span<const PackedSample> pack,
                       TokenLoss& loss) {
  if (!loss.wants_preview()) return;
  score(hidden, pack, [&](const TrainSample& sample, int64_t first, auto logprobs) {
    loss.preview(sample, first, logprobs);
  });
}

void HeadLoss::measure(const at::Tensor& hidden, std::span<const PackedSample> pack,
                       TokenLoss& loss, const See& see) {
  preview(hidden, pack, loss);
  kl_.clear();
  d_kl_.clear();
  for (const Chunk& chunk : cut(pack)) {
    forward(hidden, chunk);
    add_losses(chunk, loss, see);
  }
}

const at::Tensor& HeadLoss::backward(const at::Tensor& hidden, std::span<const PackedSample> pack,
                                     TokenLoss& loss, model::Gradients& gradients, const See& see) {
  preview(hidden, pack, loss);
  d_hidden_ = at::zeros_like(hidden);
  for (const Chunk& chunk : cut(pack)) {
    forward(hidden, chunk);
    if (teacher_) forward_teacher();
    add_losses(chunk, loss, see);
    if (teacher_) scale_rows(d_kl_, teacher_logits_);
    ops::logits_backward(model_.device(), target_rows(), statistics_, d_logprob_, d_entropy_);
    if (teacher_) logits_.add_(teacher_logits_);
    at::Tensor d_inputs = at::empty_like(inputs_);
    model_.logits_backward(inputs_, logits_, d_inputs, gradients);
    d_hidden_.index_copy_(0, rows_, d_inputs);
  }
  return d_hidden_;
}

}  // namespace tlt::train
