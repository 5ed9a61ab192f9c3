// TrainRequest: the body of a forward_backward request of the Tinker API, and the samples and the
// loss that it means.
//
// A datum has N input tokens and, for each of them, the token to predict (target_tokens): the next
// input token, or any other. Losses are sums over tokens, with lp the logprob of a target:
//
//   cross_entropy        -weights lp
//   importance_sampling  -advantages exp(lp - logprobs)
//   ppo                  -min(advantages ratio, advantages clamp(ratio, low, high))
//   cispo                -advantages stop(clamp(ratio, low, high)) lp
//   dro                  -(advantages lp - beta / 2 (lp - logprobs)^2)
//
// Weights, which the last four may have too, are factors of a token's loss.
//
// Threading  any thread; no shared state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/sample.h"
#include "train/stepwise_trainer.h"

namespace tlt::tinker {

struct Datum {
  std::vector<int32_t> tokens;
  std::vector<int64_t> targets;
  std::map<std::string, std::vector<float>> values;  // weights, logprobs, advantages …
};

struct TrainRequest {
  std::string model_id;
  int64_t seq_id = 0;
  bool forward_only = false;
  std::string loss_fn;
  std::map<std::string, double> config;
  std::vector<Datum> data;

  // Reads the protocol buffer tinker_public.ForwardBackwardRequest. InputError names the datum.
  static TrainRequest read(std::string_view body);
};

// What a datum's tokens are checked against.
struct TokenLimits {
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
};

struct TrainBatch {
  std::vector<train::TrainSample> samples;    // one per datum, in order
  std::vector<std::vector<int32_t>> targets;  // by sample; empty: its next tokens
  train::StepwiseTrainer::Loss loss;
};

// InputError names the datum, or the loss, and what is accepted. Neighbouring data with the same
// tokens before the first one that counts are a group, as the responses to a prompt are in `tlt
// train`; with cross_entropy all data are one, as in `tlt sft`.
TrainBatch make_batch(const TrainRequest& request, const TokenLimits& limits);

// The protocol buffer tinker_public.ForwardBackwardOutput.
std::string write_output(double loss, const std::vector<std::vector<float>>& logprobs);

}  // namespace tlt::tinker
