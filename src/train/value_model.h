// ValueModel: the critic of PPO: a decoder with a value head in place of the LM head. The value of a
// response token is that of the tokens before it:
//
//   value_t = sum_d score_d hidden_(t-1),d        hidden: after the final norm
//
// The head begins at zero, so all values do, and the first gradients are those of the head alone
// (verl and TRL begin with small random heads, whose values are noise).
//
// Owns       the network, the head (float32).
// Not here   the optimizer, gradients (trainer.h); values to advantages (rl/advantages.h).
// Threading  engine thread only.
//
//   ValueModel critic(model::load_policy(folder, device, type));
//   critic.load_head(folder);                              // if it has one
//   Trainer trainer(critic.network(), options, comm, {.critic = &critic});
//   auto values = score_samples(critic.network(), samples, {.critic = &critic}, comm);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/policy_model.h"
#include "train/output_head.h"

namespace tlt::train {

// In the folder of a critic, next to the network's files.
inline constexpr const char* kValueHeadFile = "/value_head.safetensors";

class ValueModel {
 public:
  explicit ValueModel(std::unique_ptr<model::PolicyModel> network);
  ValueModel(const ValueModel&) = delete;  // parameters() points into the object
  ValueModel& operator=(const ValueModel&) = delete;

  const model::PolicyModel& network() const { return *network_; }
  // The network's, without an untied LM head, which is not trained; last score.weight [1, D].
  const std::vector<model::Parameter>& parameters() const { return parameters_; }
  const at::Tensor& score() const { return score_; }  // [1, D] float32, on the device

  // The gradients for a backward pass of network and ValueHead, which then adds to `gradients`, made
  // with make_gradients(parameters()). Last the head's.
  model::Gradients route(const model::Gradients& gradients) const;

  // Reads value_head.safetensors of the folder of a critic; does nothing if there is none.
  // InputError: it is of another hidden size.
  void load_head(const std::string& folder);
  // Copies the present weights. The function writes them into a folder, on any thread: a Hugging
  // Face folder, with tokenizer and configuration from `source_folder`, and the head.
  std::function<void(const std::string& folder)> snapshot(const std::string& source_folder) const;

 private:
  const std::unique_ptr<model::PolicyModel> network_;
  at::Tensor score_;
  std::vector<model::Parameter> parameters_;
  std::vector<size_t> index_of_;  // of each of parameters_ but the last: in the network's
};

class ValueHead final : public OutputHead {
 public:
  // Borrows the critic.
  explicit ValueHead(const ValueModel& critic) : critic_(critic) {}

  void score(const at::Tensor& hidden, std::span<const PackedSample> pack, const See& see) override;
  void measure(const at::Tensor& hidden, std::span<const PackedSample> pack, TokenLoss& loss,
               const See& see) override;
  const at::Tensor& backward(const at::Tensor& hidden, std::span<const PackedSample> pack,
                             TokenLoss& loss, model::Gradients& gradients, const See& see) override;

 private:
  // The rows that predict a sample's response, and their values.
  struct Rows {
    int64_t first = 0;
    at::Tensor hidden;  // [n, D] float32, on the host
    std::vector<float> values;
  };
  Rows rows_of(const at::Tensor& hidden, const PackedSample& packed) const;

  const ValueModel& critic_;
  at::Tensor d_hidden_;  // [T, D]
};

}  // namespace tlt::train
