// TrainedPolicy: the one policy of a server with training, whose weights are those of the training
// client, of a snapshot that is sampled from, or of the base model.
//
// A snapshot has the values of what is trained: A and B of an adapter, or all weights. Showing one
// writes it into the policy that the engine reads; the training client's weights are kept meanwhile
// and come back, bit for bit, before its next request.
//
// Owns       adapter, trainer, the kept weights.
// Borrows    the policy, whose weights are the base at construction.
// Not here   who may train (tinker_api.h); requests (train_request.h).
// Threading  engine thread only, while the engine is idle.
//
//   TrainedPolicy policy(model, options);
//   policy.create(LoraConfig{.rank = 8}, /*seed=*/1);
//   policy.forward(batch, /*is_backward=*/true);
//   policy.step(optim);
//   const Weights weights = policy.snapshot();
//   policy.show(weights);                        // the engine samples from them
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinker/train_request.h"
#include "train/lora.h"
#include "train/stepwise_trainer.h"

namespace tlt::tinker {

struct WeightsSnapshot {
  std::optional<train::LoraConfig> adapter;  // nullopt: all weights
  std::vector<at::Tensor> values;            // of the trained parameters, float32
};
using Weights = std::shared_ptr<const WeightsSnapshot>;  // null: the base model

class TrainedPolicy {
 public:
  struct Options {
    std::string model_folder;
    train::StepwiseTrainer::Options trainer;
  };

  TrainedPolicy(model::PolicyModel& policy, Options options);

  // Starts a training from the base: of an adapter, or of all weights. REQUIRES: there is none.
  // InputError: such an adapter is not possible.
  void create(const std::optional<train::LoraConfig>& adapter, uint64_t seed);
  // Ends it; the policy is the base.
  void unload();

  // Of the training client's weights. REQUIRES: there is a training.
  train::StepwiseTrainer::Pass forward(const TrainBatch& batch, bool is_backward);
  train::StepwiseTrainer::Step step(const train::OptimOptions& optim);
  Weights snapshot();
  void show_training();

  // Makes the policy these weights. InputError: they are of another kind than what is trained.
  void show(const Weights& weights);
  // Whether it is them.
  bool shows(const Weights& weights) const {
    return is_training_shown_ ? weights && weights == kept_ : weights == shown_;
  }

  // Counts changes of the policy's weights.
  int64_t changes() const { return changes_; }

  // A folder of the training client's weights: PEFT's adapter/ or a Hugging Face policy/, and with
  // `has_optimizer` what training resumes from. Atomic.
  void save(const std::string& folder, bool has_optimizer);
  // What such a folder trains: its adapter, nullopt: all weights. InputError: it is none.
  static std::optional<train::LoraConfig> read_kind(const std::string& folder);
  // Loads it into the training, with the optimizer's moments or with zero ones. InputError: it is of
  // another kind, or has no optimizer.
  void load(const std::string& folder, bool with_optimizer);
  // Shows its weights, and returns them.
  Weights show_folder(const std::string& folder);

 private:
  const std::vector<model::Parameter>& parameters() const;
  std::optional<train::LoraConfig> trained_kind() const;
  void check_kind(const std::optional<train::LoraConfig>& kind, const std::string& place) const;
  Weights copy_values() const;
  void keep_training();
  void write(const Weights& weights);
  void write_base();
  void take_adapter(const train::LoraConfig& config);
  void save_policy(const std::string& folder);
  void load_optimizer(const std::string& folder, bool with_moments);

  model::PolicyModel& policy_;
  const Options options_;
  std::unique_ptr<train::LoraAdapter> adapter_;  // trained, or shown without a training; or null
  std::unique_ptr<train::StepwiseTrainer> trainer_;  // or null
  Weights base_;  // all weights of the base, once others were written; null: not needed
  Weights kept_;  // those of the training; null: they have changed since the last copy
  bool is_training_shown_ = false;
  Weights shown_;  // otherwise
  int64_t changes_ = 0;
  std::string base_checksum_;  // empty: not computed yet
};

}  // namespace tlt::tinker
