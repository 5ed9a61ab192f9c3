// A tiny decoder with random weights, for tests that need a model of any quality.
//
// Its logits differ by a few units, biases and norms are not neutral, and its vocabulary and sizes
// are not multiples of the kernels' panels: a part missing from a forward pass changes the result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "base/random.h"
#include "model/policy_model.h"
#include "tests/support/test_device.h"

namespace tlt::tests {

inline const char* name_of(model::Family family) {
  switch (family) {
    case model::Family::kQwen2:
      return "qwen2";
    case model::Family::kQwen3:
      return "qwen3";
    case model::Family::kLlama:
      break;
  }
  return "llama";
}

inline model::ModelConfig tiny_config(model::Family family) {
  model::ModelConfig config;
  config.family = family;
  config.vocabulary = 100;
  config.hidden = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 16;
  config.intermediate = 80;
  config.max_positions = 256;
  config.tied = family == model::Family::kQwen2;
  config.attention_bias = family == model::Family::kQwen2;
  config.eos_tokens = {1, 2};
  if (family == model::Family::kLlama)
    config.rope = {.theta = 10000,
                   .type = "llama3",
                   .factor = 8,
                   .low_freq_factor = 1,
                   .high_freq_factor = 4,
                   .original_max_positions = 64};
  return config;
}

inline std::unique_ptr<model::PolicyModel> make_tiny_model(const model::ModelConfig& config,
                                                           at::ScalarType type,
                                                           const Device& device = test_device(),
                                                           uint64_t seed = 11) {
  auto model = std::make_unique<model::PolicyModel>(config, device, type);
  model->initialize(seed);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const model::Parameter& parameter = model->parameters()[i];
    at::Tensor values = parameter.read(device).cpu();
    RandomStream random(seed + 1, {.prompt = static_cast<uint32_t>(i)});
    float* data = values.data_ptr<float>();
    for (int64_t j = 0; j < values.numel() && values.dim() == 1; ++j)
      data[j] += static_cast<float>(0.2 * random.normal());
    const std::string name = parameter.name();
    if (name == "lm_head.weight" || name == "model.embed_tokens.weight") values.mul_(15);
    // Otherwise a token would mostly predict itself.
    if (name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos)
      values.mul_(9);
    parameter.write(device, values.to(device.torch()));
  }
  return model;
}

}  // namespace tlt::tests
