// DenseModel: a second implementation of the decoder, in plain ATen and float64, over whole
// sequences: without cache, pages or kernels, sharing only the weights with model/. Slow; the
// reference for logits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "model/policy_model.h"

namespace tlt::tests {

class DenseModel {
 public:
  // Copies the weights. `trainable`: autograd records computations with them.
  explicit DenseModel(const model::PolicyModel& model, bool trainable = false)
      : config_(model.config()) {
    for (const model::Parameter& parameter : model.parameters()) {
      at::Tensor values = parameter.read(model.device()).cpu().to(at::kDouble);
      values.requires_grad_(trainable);
      parameters_[parameter.name()] = values;
      for (const model::Parameter::Part& part : parameter.parts)
        weights_[part.name] = values.narrow(0, part.first_row, part.rows);
    }
  }

  // By name, fused as in the model.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }

  // Uses other values for the weight of this name in a Hugging Face file; autograd follows their
  // origin.
  void replace(const std::string& name, const at::Tensor& values) { weights_.at(name) = values; }

  // A planted fault: the token at this position is rotated as if it were one position later.
  int64_t misplaced = -1;

  // Final hidden states [T, D] f64.
  at::Tensor hidden(const std::vector<int32_t>& tokens) const {
    at::Tensor x =
        at::embedding(weight("model.embed_tokens.weight"), at::tensor(tokens, at::kLong));
    const at::Tensor angles = rotation(x.size(0));
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      x = x + attention(norm(x, at + "input_layernorm.weight"), at + "self_attn.", angles);
      x = x + feed_forward(norm(x, at + "post_attention_layernorm.weight"), at + "mlp.");
    }
    return norm(x, "model.norm.weight");
  }

  // [T, V] f64.
  at::Tensor logits(const std::vector<int32_t>& tokens) const {
    return at::matmul(hidden(tokens),
                      weight(config_.tied ? "model.embed_tokens.weight" : "lm_head.weight").t());
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + config_.norm_epsilon) * weight(name);
  }

  at::Tensor project(const at::Tensor& x, const std::string& name) const {
    at::Tensor y = at::matmul(x, weight(name + ".weight").t());
    return weights_.contains(name + ".bias") ? y + weight(name + ".bias") : y;
  }

  at::Tensor feed_forward(const at::Tensor& x, const std::string& at) const {
    return project(at::silu(project(x, at + "gate_proj")) * project(x, at + "up_proj"),
                   at + "down_proj");
  }

  at::Tensor attention(const at::Tensor& x, const std::string& at, const at::Tensor& angles) const {
    const int64_t length = x.size(0), size = config_.head_size;
    const auto split = [&](const std::string& name, int64_t heads) {
      return project(x, at + name).view({length, heads, size});
    };
    at::Tensor q = split("q_proj", config_.heads), k = split("k_proj", config_.kv_heads);
    if (config_.qk_norm()) {
      q = norm(q, at + "q_norm.weight");
      k = norm(k, at + "k_norm.weight");
    }
    const int64_t shared = config_.heads / config_.kv_heads;
    q = rotate(q, angles).transpose(0, 1);  // [N, T, H]
    k = rotate(k, angles).transpose(0, 1).repeat_interleave(shared, 0);
    const at::Tensor v =
        split("v_proj", config_.kv_heads).transpose(0, 1).repeat_interleave(shared, 0);
    const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
    const at::Tensor scores =
        (at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(size)))
            .masked_fill(later, -std::numeric_limits<double>::infinity());
    return project(at::matmul(scores.softmax(-1), v).transpose(0, 1).reshape({length, -1}),
                   at + "o_proj");
  }

  // As in Hugging Face: x cos + (-second half, first half) sin.
  static at::Tensor rotate(const at::Tensor& x, const at::Tensor& angles) {
    const at::Tensor both = at::cat({angles, angles}, -1).unsqueeze(1);  // [T, 1, H]
    const auto halves = x.chunk(2, -1);
    return x * both.cos() + at::cat({-halves[1], halves[0]}, -1) * both.sin();
  }

  // [T, H / 2] angles.
  at::Tensor rotation(int64_t length) const {
    const model::RopeConfig& rope = config_.rope;
    std::vector<double> frequencies;
    for (int64_t i = 0; i < config_.head_size; i += 2) {
      const double plain =
          std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(config_.head_size));
      frequencies.push_back(rope.type == "llama3" ? llama3_frequency(rope, plain) : plain);
    }
    at::Tensor positions = at::arange(length, at::kDouble);
    if (misplaced >= 0 && misplaced < length) positions[misplaced] += 1;
    return at::outer(positions, at::tensor(frequencies, at::kDouble));
  }

  static double llama3_frequency(const model::RopeConfig& rope, double plain) {
    const double turns =
        static_cast<double>(rope.original_max_positions) * plain / (2 * std::numbers::pi);
    if (turns < rope.low_freq_factor) return plain / rope.factor;
    if (turns > rope.high_freq_factor) return plain;
    const double smooth =
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return (1 - smooth) * plain / rope.factor + smooth * plain;
  }

  const model::ModelConfig config_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, at::Tensor> weights_;  // by name in a Hugging Face file
};

}  // namespace tlt::tests
