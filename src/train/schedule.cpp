// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace tlt::train {

void OptimOptions::check() const {
  const std::string where = "optim";
  const auto check_range = [&](const char* name, double value, double low, double high) {
    TLT_CHECK_INPUT(value >= low && value <= high, where, ".", name, " is ", value,
                    "; use a number from ", low, " to ", high);
  };
  TLT_CHECK_INPUT(optimizer == "AdamW" || optimizer == "Muon", where, ".optimizer is '", optimizer,
                  "'; use AdamW or Muon");
  check_range("lr", lr, 0, 1);
  TLT_CHECK_INPUT(betas.size() == 2, where, ".betas has ", betas.size(),
                  " values; use two, such as [0.9, 0.999]");
  for (const double beta : betas)
    TLT_CHECK_INPUT(beta >= 0 && beta < 1, where, ".betas has ", beta,
                    "; use numbers from 0 to below 1");
  check_range("weight_decay", weight_decay, 0, 1e6);
  check_range("clip_grad", clip_grad, 0, 1e30);
  check_range("lr_warmup_steps_ratio", lr_warmup_steps_ratio, 0, 1);
  check_range("min_lr_ratio", min_lr_ratio, 0, 1);
  const std::string& type = lr_scheduler_type;
  TLT_CHECK_INPUT(type == "constant" || type == "cosine" || type == "linear", where,
                  ".lr_scheduler_type is '", type, "'; use constant, cosine or linear");
}

double learning_rate(const OptimOptions& o, int64_t step, int64_t total_steps) {
  const auto total = static_cast<double>(total_steps);
  const double warm = o.lr_warmup_steps >= 0 ? static_cast<double>(o.lr_warmup_steps)
                                             : std::floor(o.lr_warmup_steps_ratio * total);
  const auto position = static_cast<double>(step);
  if (position < warm) return o.lr * (position + 1) / warm;
  if (o.lr_scheduler_type == "constant") return o.lr;
  const double progress = std::min(1.0, (position - warm) / std::max(1.0, total - warm));
  const double share = o.lr_scheduler_type == "cosine"
                           ? 0.5 + 0.5 * std::cos(std::numbers::pi * progress)
                           : 1 - progress;
  return o.lr * (o.min_lr_ratio + (1 - o.min_lr_ratio) * share);
}

}  // namespace tlt::train
