// Aggregation: how the losses of a mini-batch's tokens become one (actor.loss_agg_mode).
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "train/loss_options.h"
#include "train/sample.h"

namespace tlt::train {

// What the means of a mini-batch are divided by.
struct Denominators {
  double tokens = 0;     // weight of all response tokens
  double sequences = 0;  // responses with a token that counts

  // Sums over a whole mini-batch. Throws Error if a sample's weights are not one per response token,
  // or no token counts.
  explicit Denominators(std::span<const TrainSample> batch);
  // The same; also throws Error if a sample has no rollout logprobs or advantages, or no reference
  // logprobs for the KL loss.
  Denominators(const LossOptions& options, std::span<const TrainSample> batch);
  Denominators(double tokens, double sequences) : tokens(tokens), sequences(sequences) {}
};

class Aggregation {
 public:
  Aggregation(const LossOptions& options, const Denominators& denominators);

  // The factor of a token of weight 1 of this sample in the loss.
  double token_weight(const TrainSample& sample) const;
  // The loss with the denominators `whole` over the one with those of the constructor.
  double scale_to(const Denominators& whole) const;

 private:
  enum class Mode { kTokenMean, kTokenSum, kSequenceMean, kScaledSum };

  Mode mode_ = Mode::kTokenMean;
  double scale_factor_ = 1;  // of kScaledSum
  Denominators denominators_;
};

}  // namespace tlt::train
