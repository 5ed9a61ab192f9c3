// ModelConfig: the shape of a decoder, read from a Hugging Face config.json (of transformers 4 or
// 5).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tlt::model {

enum class Family { kQwen2, kQwen3, kLlama };

struct RopeConfig {
  double theta = 10000.0;
  // "default", "linear", "llama3" or "yarn"; other types are rejected.
  std::string type = "default";
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_positions = 8192;
  double beta_fast = 32.0, beta_slow = 1.0;  // yarn: turns within the original length
  bool truncate = true;                      // yarn: round to integer frequency indices
  double attention_factor = 1.0;             // factor of the rotated queries and keys
};

struct ModelConfig {
  Family family = Family::kQwen2;
  int64_t vocabulary = 0;    // V: rows of the embedding
  int64_t hidden = 0;        // D
  int64_t layers = 0;        // L
  int64_t heads = 0;         // N
  int64_t kv_heads = 0;      // K
  int64_t head_size = 0;     // H
  int64_t intermediate = 0;  // F
  int64_t max_positions = 0;
  double norm_epsilon = 1e-6;
  bool tied = false;            // the LM head is the embedding
  bool attention_bias = false;  // q, k, v biases (Qwen2: always)
  RopeConfig rope;
  std::vector<int32_t> eos_tokens;  // config.json; generation_config.json overrides it
  std::string type_name;            // the file's torch_dtype / dtype: "float32", "bfloat16"
  nlohmann::json source;            // the file as read, written back with what changed

  bool qk_norm() const { return family == Family::kQwen3; }
  int64_t parameters() const;

  // Reads config.json. Throws InputError that names the file, the key and what is accepted.
  static ModelConfig read(const std::string& folder);
  // The same for the object in the file `path`; for files other than a policy's.
  static ModelConfig parse(const nlohmann::json& source, const std::string& path);
  // Checks that the sizes fit each other (even head size, heads divisible by kv_heads, multiples of
  // 16 …). `where` names the file in the error.
  void check(const std::string& where) const;
};

// Reads the object in a JSON file. Throws InputError if there is none.
nlohmann::json read_json_object(const std::string& path);

}  // namespace tlt::model
