// HeadLoss: computes logprobs from hidden states, and gradients from a loss, a bounded number of
// rows at a time: the logits of a whole pack ([T, V] float32, gigabytes for a large vocabulary) are
// never allocated.
//
// Borrows    the model.
// Not here   the loss (token_loss.h).
// Threading  engine thread only.
//
//   HeadLoss head(model, temperature);
//   head.score(hidden, pack,
//              [](const TrainSample& sample, int64_t first, std::span<const float> logprobs) { …
//              });
//   const at::Tensor& d_hidden = head.backward(hidden, pack, loss, gradients, see);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "model/policy_model.h"
#include "ops/sampling.h"
#include "train/output_head.h"
#include "train/teacher_kl.h"

namespace tlt::train {

class HeadLoss final : public OutputHead {
 public:
  // REQUIRES: `model` outlives this. Temperature 0 (greedy rollouts) counts as 1.
  // `logits_bytes` bounds the logits.
  HeadLoss(const model::PolicyModel& model, double temperature,
           int64_t logits_bytes = int64_t{1} << 26);

  void score(const at::Tensor& hidden, std::span<const PackedSample> pack, const See& see) override;

  // From now on backward() gives the loss each token's divergence from the teacher.
  // REQUIRES: as many logits as the model's; outlives this.
  void set_teacher(const model::PolicyModel& teacher, const TeacherKl& kl) {
    teacher_ = &teacher;
    kl_options_ = kl;
  }
  // The teacher's hidden states [T, D'] of the next backward()'s pack.
  void show_teacher(const at::Tensor& hidden) { teacher_hidden_ = hidden; }

  void measure(const at::Tensor& hidden, std::span<const PackedSample> pack, TokenLoss& loss,
               const See& see) override;
  const at::Tensor& backward(const at::Tensor& hidden, std::span<const PackedSample> pack,
                             TokenLoss& loss, model::Gradients& gradients, const See& see) override;

 private:
  // Response tokens of one sample whose rows are in a chunk.
  struct Piece {
    const TrainSample* sample;
    int64_t first;  // response token
    int64_t count;
  };
  // Rows that go through the LM head together.
  struct Chunk {
    std::vector<Piece> pieces;
    std::vector<int64_t> rows;     // in the hidden states
    std::vector<int32_t> targets;  // the token each row predicts
  };
  std::vector<Chunk> cut(std::span<const PackedSample> pack) const;
  void preview(const at::Tensor& hidden, std::span<const PackedSample> pack, TokenLoss& loss);
  // Fills the members below.
  void forward(const at::Tensor& hidden, const Chunk& chunk);
  ops::TargetRows target_rows() {
    return {logits_, model_.config().vocabulary, targets_, temperature_};
  }
  void add_losses(const Chunk& chunk, TokenLoss& loss, const See& see);
  void forward_teacher();

  const model::PolicyModel& model_;
  const double temperature_;
  const int64_t rows_per_chunk_;

  at::Tensor rows_;                   // [R] int64
  at::Tensor targets_;                // [R] int32
  at::Tensor inputs_;                 // [R, D]
  at::Tensor buffer_;                 // [rows_per_chunk_, V] float32
  at::Tensor logits_;                 // [R, V], a view of it
  at::Tensor d_logprob_, d_entropy_;  // [R] float32, on the host
  at::Tensor d_hidden_;               // [T, D]

  const model::PolicyModel* teacher_ = nullptr;
  TeacherKl kl_options_;
  at::Tensor teacher_hidden_;     // [T, D']
  at::Tensor teacher_buffer_;     // [rows_per_chunk_, V] float32, of this chunk's rows:
  at::Tensor teacher_logits_;     // [R, V], a view of it: logits, then derivatives
  std::vector<float> kl_, d_kl_;  // [R], empty without a teacher
  ops::RowStatistics statistics_;
};

}  // namespace tlt::train
