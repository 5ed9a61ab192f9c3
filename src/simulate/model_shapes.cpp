// SPDX-License-Identifier: Apache-2.0
#include "simulate/model_shapes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "simulate/devices.h"

namespace tlt::simulate {
namespace {

// q_a, q_b, kv_a, kv_b and o of DeepSeek-V3: ranks 1536 and 512, 128 heads of 128 + 64 and 128.
constexpr double kDeepSeekAttention =
    7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256 + 128.0 * 128 * 7168;

std::vector<ModelShape> make_models() {
  return {{"Qwen2.5-7B", 28, 3584, 18944, 28, 4, 128, 152064},
          {"Qwen2.5-32B", 64, 5120, 27648, 40, 8, 128, 152064},
          {"Qwen3-8B", 36, 4096, 12288, 32, 8, 128, 151936},
          {.name = "Qwen3-30B-A3B",
           .layers = 48,
           .hidden = 2048,
           .query_heads = 32,
           .kv_heads = 4,
           .head_size = 128,
           .vocabulary = 151936,
           .experts = 128,
           .active_experts = 8,
           .expert_intermediate = 768},
          {.name = "Qwen3-235B-A22B",
           .layers = 94,
           .hidden = 4096,
           .query_heads = 64,
           .kv_heads = 4,
           .head_size = 128,
           .vocabulary = 151936,
           .experts = 128,
           .active_experts = 8,
           .expert_intermediate = 1536},
          {"Llama-70B", 80, 8192, 28672, 64, 8, 128, 128256},
          {.name = "DeepSeek-V3",
           .layers = 61,
           .hidden = 7168,
           .intermediate = 18432,
           .query_heads = 128,
           .kv_heads = 128,
           .head_size = 128,
           .vocabulary = 129280,
           .experts = 256,
           .active_experts = 8,
           .shared_experts = 1,
           .expert_intermediate = 2048,
           .dense_layers = 3,
           .latent_parameters = kDeepSeekAttention,
           .latent_size = 576},
          // models/headline and models/demo of this repository: 25 and 2.4 million parameters.
          {"headline", 8, 512, 1536, 8, 4, 64, 120, true},
          {"demo", 12, 128, 384, 4, 2, 32, 120, true}};
}

double mlp(double hidden, double intermediate) { return 3 * hidden * intermediate; }

}  // namespace

double ModelShape::attention_parameters() const {
  if (latent_parameters > 0) return latent_parameters;
  return static_cast<double>(hidden * head_size) *
         static_cast<double>(2 * query_heads + 2 * kv_heads);
}

// Of E experts of which each row reaches k, r independent rows reach E (1 - (1 - k/E)^r).
double ModelShape::read_parameters(double rows) const {
  const auto h = static_cast<double>(hidden);
  const double dense = mlp(h, static_cast<double>(intermediate));
  double per_layer = dense * static_cast<double>(experts > 0 ? dense_layers : layers);
  if (experts > 0) {
    const auto all = static_cast<double>(experts), active = static_cast<double>(active_experts);
    const double reached = rows <= 1 ? active : all * (1 - std::pow(1 - active / all, rows));
    per_layer += static_cast<double>(layers - dense_layers) *
                 (mlp(h, static_cast<double>(expert_intermediate)) *
                      (reached + static_cast<double>(shared_experts)) +
                  h * all);
  }
  return per_layer + static_cast<double>(layers) * attention_parameters() + draft_head_parameters();
}

double ModelShape::parameters() const {
  return read_parameters(1e9) + (tied ? 0 : draft_head_parameters());
}

double ModelShape::kv_bytes() const {
  const int64_t size = latent_size > 0 ? latent_size : 2 * kv_heads * head_size;
  return 2.0 * static_cast<double>(layers * size);
}

double ModelShape::draft_parameters() const {
  const auto h = static_cast<double>(hidden);
  // One expert's share of a sparse model would be too small a draft model: as wide as active ones.
  const double width = static_cast<double>(
      intermediate > 0 ? intermediate : expert_intermediate * (active_experts + shared_experts));
  return attention_parameters() + mlp(h, width) + 2 * h * h;
}

double ModelShape::draft_head_parameters() const {
  return static_cast<double>(vocabulary) * static_cast<double>(hidden);
}

std::span<const ModelShape> models() {
  static const std::vector<ModelShape> all = make_models();
  return all;
}

const ModelShape& find_model(const std::string& name) {
  const auto found = std::ranges::find(models(), name, &ModelShape::name);
  std::vector<std::string> known;
  for (const ModelShape& model : models()) known.push_back(model.name);
  TLT_CHECK_INPUT(found != models().end(), unknown_name("model", name, known));
  return *found;
}

}  // namespace tlt::simulate
