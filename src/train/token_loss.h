// TokenLoss: a loss that is a sum over response tokens, given as its derivatives by each token's
// logprob and entropy.
//
// A critic's loss is one by each token's value, which stands where a logprob does (value_loss.h).
//
// The denominators are those of the whole mini-batch, or stand for them until these are known
// (gradient_scale()), so the loss does not depend on how it is split into packs or over workers.
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

// Response tokens first .. first + n of a sample, with their logprobs and entropies under the
// model.
struct ResponseTokens {
  const TrainSample& sample;
  int64_t first = 0;
  std::span<const float> logprobs;         // [n]
  std::span<const float> entropies;        // [n]
  std::span<const float> teacher_kl = {};  // [n] teacher_kl.h; empty: there is no teacher
};

// Derivatives of the loss by a token's logprob, entropy and divergence from the teacher.
struct TokenDerivatives {
  std::span<float> d_logprob;          // [n]
  std::span<float> d_entropy;          // [n]
  std::span<float> d_teacher_kl = {};  // [n] as the divergences
};

class TokenLoss {
 public:
  virtual ~TokenLoss() = default;

  // True if a token's derivative depends on the whole mini-batch: then see_batch() is called before
  // anything else, with every response token's logprob under the model, by sample, and the number of
  // optimizer steps before this one.
  virtual bool wants_batch() const { return false; }
  virtual void see_batch(std::span<const TrainSample>,
                         std::span<const std::vector<float>> /*logprobs*/, int64_t /*steps*/) {}

  // False if this sample's derivatives are 0 for any model output: its forward pass is only for the
  // metrics.
  virtual bool learns_from(const TrainSample& sample) const = 0;

  // True if a token's derivative depends on the whole response: then preview() is called for all
  // tokens of a pack before add() is called for any.
  virtual bool wants_preview() const { return false; }
  virtual void preview(const TrainSample&, int64_t /*first*/, std::span<const float> /*logprobs*/) {
  }

  // Computes the derivatives of these tokens, and adds to the sums.
  virtual void add(const ResponseTokens& tokens, const TokenDerivatives& out) = 0;

  // The mini-batch is complete: its denominators are known.
  virtual void complete(std::span<const TrainSample> /*batch*/) {}
  // What the derivatives are to be multiplied by, after complete().
  virtual double gradient_scale() const { return 1; }

  // The sums since the last call. Add those of all packs, then call metrics().
  virtual std::vector<double> take_sums() = 0;
  // (name, value) with verl's names ("actor/pg_loss" …), from the sums of all packs.
  virtual std::vector<std::pair<std::string, double>> metrics(
      std::span<const double> sums) const = 0;
};

}  // namespace tlt::train
