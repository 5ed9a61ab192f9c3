// OptimOptions: the optimizer and the learning rate schedule of a run, with verl's names.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace tlt::train {

// Most skipped optimizer steps in a row, if no option says another number.
inline constexpr int64_t kMaxSkippedSteps = 5;

struct OptimOptions {
  std::string optimizer = "AdamW";
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;  // not an option
  double weight_decay = 0.01;
  double clip_grad = 1.0;
  std::string lr_scheduler_type = "constant";
  int64_t lr_warmup_steps = -1;
  double lr_warmup_steps_ratio = 0;
  double min_lr_ratio = 0;

  void visit(auto& v) {
    v(optimizer, "optimizer", Affects::kResults,
      "AdamW, or Muon: orthogonalized momentum for the matrices of the layers, AdamW for the "
      "rest.");
    v(lr, "lr", Affects::kResults, "Learning rate.");
    v(betas, "betas", Affects::kResults, "AdamW's decay rates of the two moments.");
    v(weight_decay, "weight_decay", Affects::kResults,
      "Weight decay of matrices and embeddings; norms and biases have none.");
    v(clip_grad, "clip_grad", Affects::kResults,
      "Gradient norm above which gradients are clipped; 0: no clipping.");
    v(lr_scheduler_type, "lr_scheduler_type", Affects::kResults,
      "Schedule after the warm-up: constant, cosine or linear.");
    v(lr_warmup_steps, "lr_warmup_steps", Affects::kResults,
      "Steps of linear warm-up; -1: by lr_warmup_steps_ratio.");
    v(lr_warmup_steps_ratio, "lr_warmup_steps_ratio", Affects::kResults,
      "Steps of warm-up as a share of all steps.");
    v(min_lr_ratio, "min_lr_ratio", Affects::kResults,
      "Final learning rate of cosine and linear as a share of lr.");
  }
  void check() const;
  bool is_muon() const { return optimizer == "Muon"; }
};

// The learning rate of step `step` (from 0) of `total_steps`. In a warm-up of n steps, step i has
// (i + 1) / n of it, so the first step has an effect; in verl and transformers it has rate 0.
double learning_rate(const OptimOptions& options, int64_t step, int64_t total_steps);

}  // namespace tlt::train
