// ModelShape: the sizes of a model that costs depend on.
//
// Threading  constant table; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tlt::simulate {

// Numbers of config.json of the published model.
struct ModelShape {
  std::string name;
  int64_t layers = 0, hidden = 0, intermediate = 0;
  int64_t query_heads = 0, kv_heads = 0, head_size = 0;
  int64_t vocabulary = 0;
  bool tied = false;  // the LM head is the embedding
  // Mixture of experts; `intermediate` is that of the dense layers.
  int64_t experts = 0, active_experts = 0, shared_experts = 0, expert_intermediate = 0;
  int64_t dense_layers = 0;  // layers without experts
  // Multi-head latent attention (DeepSeek): parameters of a layer's attention and the numbers that
  // it keeps of a token; 0: computed from the heads.
  double latent_parameters = 0;
  int64_t latent_size = 0;

  double attention_parameters() const;  // of a layer
  double parameters() const;
  // Parameters that are read, and that a row is multiplied with; without the embedding.
  double read_parameters(double rows) const;  // experts that `rows` rows reach, on average
  double row_parameters() const { return read_parameters(0); }
  double kv_bytes() const;  // of a token, bfloat16
  // Of a draft model as EAGLE's: one layer and the projection of two hidden states.
  double draft_parameters() const;
  double draft_head_parameters() const;  // the target's LM head, which it uses
};

std::span<const ModelShape> models();
// InputError with the nearest name or all names.
const ModelShape& find_model(const std::string& name);

}  // namespace tlt::simulate
