// LoraAdapter: low-rank additions to matrices W of a policy, trained instead of W (LoRA, Hu et al.
// 2021):
//
//   W = round(base + s B A),   s = alpha / rank        W [N, K], A [R, K], B [N, R]
//
// W is computed again after each optimizer step, in the same tensors that engine and trainer read:
// a forward pass has no additional cost, and both still compute the same bits. The gradient of W is
// never computed: from dW = dy^T x follow dB = s dy^T (x A^T) and dA = s (dy B)^T x.
// All other parameters are frozen: no gradient, no master weights, no moments.
//
// Owns       A and B, float32; the targets' base values in the compute type.
// Borrows    the policy, whose targets merge() writes.
// Not here   PEFT's files (lora_folder.h); the optimizer (optimizer.h).
// Threading  engine thread only. The result is the same, bit for bit, for any
//            number of threads.
//
//   LoraAdapter adapter(model, {.rank = 8, .alpha = 16}, seed);      // B = 0: W = base
//   model::Gradients ours = make_gradients(device, adapter.parameters());
//   model::Gradients routed = adapter.route(ours);
//   model.backward(tape, d_hidden, routed);                          // adds to `ours`
//   … a step on adapter.parameters() …
//   adapter.merge();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/policy_model.h"

namespace tlt::train {

// The projections that an adapter can change, in the order of a layer.
inline constexpr const char* kLoraProjections[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                   "gate_proj", "up_proj", "down_proj"};

// The configuration, with PEFT's names.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16;
  bool use_rslora = false;  // s = alpha / sqrt(rank)
  // Suffixes of module names: "q_proj" is that of all layers, "layers.0.self_attn.q_proj" one; or
  // all-linear.
  std::vector<std::string> targets = {"all-linear"};

  double scale() const;
  bool is_all_linear() const { return targets == std::vector<std::string>{"all-linear"}; }
  // Throws InputError whose message begins with `where`.
  void check(const std::string& where) const;
};

class LoraAdapter {
 public:
  // Initializes B with zero and A uniformly in ±1 / sqrt(K), as PEFT. Throws InputError for a
  // target that the model does not have. REQUIRES: `model` outlives this, and its weights are the
  // base.
  LoraAdapter(const model::PolicyModel& model, const LoraConfig& config, uint64_t seed);
  ~LoraAdapter();
  LoraAdapter(const LoraAdapter&) = delete;  // parameters() points into the object
  LoraAdapter& operator=(const LoraAdapter&) = delete;

  const LoraConfig& config() const { return config_; }
  const Device& device() const { return model_.device(); }
  // A and B of each target, with PEFT's names:
  // base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight. After writing to them (load,
  // optimizer) call merge().
  const std::vector<model::Parameter>& parameters() const { return parameters_; }

  // The gradients for a backward pass of the policy, which then adds to `gradients`, made with
  // make_gradients(parameters()). REQUIRES: one at a time; `gradients` lives as long as this.
  model::Gradients route(const model::Gradients& gradients);

  // Writes the targets' weights from base, A and B. If B is zero they equal the base bit for bit.
  void merge();

  // SHA-256 of the base: names and values, in the compute type, of all parameters.
  std::string base_checksum() const;
  // The compute type: "float32" or "bfloat16".
  const char* base_type() const;

 private:
  class Target;

  const model::PolicyModel& model_;
  const LoraConfig config_;
  std::vector<std::unique_ptr<Target>> targets_;  // by the model's parameters; null: frozen
  std::vector<model::Parameter> parameters_;
};

}  // namespace tlt::train
