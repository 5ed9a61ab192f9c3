// TokenLoss: a loss that is a sum over response tokens, given as its slope in each token's logprob
// and entropy.
//
// The denominators belong to the whole mini-batch, so the loss does not depend on how it is cut
// into packs or spread over workers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/sample.h"

namespace tlt::train {

class TokenLoss {
 public:
  virtual ~TokenLoss() = default;

  // False when this sample's slopes are 0 whatever the model says: its forward pass is for the
  // metrics alone.
  virtual bool learns_from(const TrainSample& sample) const = 0;

  // True where a token's slope depends on the whole response: then preview() is called for all
  // tokens of a pack before add() is for any.
  virtual bool wants_preview() const { return false; }
  virtual void preview(const TrainSample&, int64_t /*first*/, std::span<const float> /*logprobs*/) {
  }

  // Response tokens first .. first + n of a sample: their logprobs and entropies under the model (n
  // each) give d loss / d logprob and d loss / d entropy (n each). Adds to the sums.
  virtual void add(const TrainSample& sample, int64_t first, std::span<const float> logprobs,
                   std::span<const float> entropies, std::span<float> d_logprob,
                   std::span<float> d_entropy) = 0;

  // What was added up so far, to be summed over workers: add the sums of all, then read metrics().
  virtual std::vector<double> sums() const = 0;
  // (name, value) under verl's names ("actor/pg_loss" …) from sums() of all workers.
  virtual std::vector<std::pair<std::string, double>> metrics(
      std::span<const double> sums) const = 0;
};

}  // namespace tlt::train
