// TinkerOptions, and what the parts of TinkerApi share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tinker/sessions.h"
#include "tinker/train_request.h"
#include "train/stepwise_trainer.h"

namespace tlt::tinker {

class JobRunner;
class TrainedPolicy;

// The largest number with which a client counts its training or sampling clients.
constexpr int64_t kMaxClientNumber = 1 << 22;

struct TinkerOptions {
  std::string model_name;    // as in /v1/models
  std::string model_folder;  // tokenizer and base of adapters
  std::string save_folder;
  double lora_alpha = 16;
  uint64_t seed = 1;  // of samples and adapters whose request has none
  train::StepwiseTrainer::Options trainer;
  int64_t max_body_bytes = int64_t{4} << 20;
  int64_t max_connections = 256;
  Sessions::Options sessions = {};
};

struct TinkerParts {
  const TinkerOptions& options;
  const TokenLimits& limits;
  Sessions& sessions;
  TrainedPolicy& policy;  // engine thread while idle; the queue's thread between its jobs
  JobRunner& runner;
};

}  // namespace tlt::tinker
