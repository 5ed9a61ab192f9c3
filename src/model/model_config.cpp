// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"

namespace tlt::model {
namespace {

using nlohmann::json;

// The keys of one JSON object; null counts as absent, as in transformers.
class Keys {
 public:
  Keys(const json& object, const std::string& path) : object_(object), path_(path) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const json& at(const char* key) const {
    TLT_CHECK_INPUT(has(key), path_, ": ", key, " is missing; add it as transformers writes it");
    return object_.at(key);
  }

  int64_t size(const char* key) const {
    const json& value = at(key);
    TLT_CHECK_INPUT(value.is_number_integer() && value >= 1 && value <= kMaxSize, path_, ": ", key,
                    " is ", value.dump(), "; it must be an integer from 1 to ", kMaxSize);
    return value.get<int64_t>();
  }
  int64_t size(const char* key, int64_t missing) const { return has(key) ? size(key) : missing; }

  double positive(const char* key) const {
    const json& value = at(key);
    TLT_CHECK_INPUT(value.is_number() && value > 0 && value < 1e12, path_, ": ", key, " is ",
                    value.dump(), "; it must be a number above 0");
    return value.get<double>();
  }
  double positive(const char* key, double missing) const {
    return has(key) ? positive(key) : missing;
  }

  bool flag(const char* key, bool missing) const {
    if (!has(key)) return missing;
    TLT_CHECK_INPUT(at(key).is_boolean(), path_, ": ", key, " is ", at(key).dump(),
                    "; it must be true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& missing) const {
    if (!has(key)) return missing;
    TLT_CHECK_INPUT(at(key).is_string(), path_, ": ", key, " is ", at(key).dump(),
                    "; it must be a string");
    return at(key).get<std::string>();
  }

  const std::string& path() const { return path_; }

 private:
  static constexpr int64_t kMaxSize = 1 << 30;
  const json& object_;
  const std::string& path_;
};

Family read_family(const Keys& keys) {
  std::string name = keys.text("model_type", "");
  if (keys.has("architectures")) {
    const json& list = keys.at("architectures");
    TLT_CHECK_INPUT(list.is_array() && !list.empty() && list[0].is_string(), keys.path(),
                    ": architectures is ", list.dump(), "; it must be a list with one name");
    name = list[0].get<std::string>();
  }
  if (name == "Qwen2ForCausalLM" || name == "qwen2") return Family::kQwen2;
  if (name == "Qwen3ForCausalLM" || name == "qwen3") return Family::kQwen3;
  if (name == "LlamaForCausalLM" || name == "llama") return Family::kLlama;
  throw InputError(keys.path() + ": the model is '" + name +
                   "'; Qwen2ForCausalLM, Qwen3ForCausalLM and LlamaForCausalLM are supported");
}

void read_yarn(const Keys& keys, const Keys& inner, RopeConfig& rope) {
  rope.factor = inner.positive("factor");
  rope.original_max_positions = inner.has("original_max_position_embeddings")
                                    ? inner.size("original_max_position_embeddings")
                                    : keys.size("max_position_embeddings");
  rope.beta_fast = inner.positive("beta_fast", 32);
  rope.beta_slow = inner.positive("beta_slow", 1);
  rope.truncate = inner.flag("truncate", true);
  const auto scale = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1;
  };
  rope.attention_factor =
      inner.has("mscale") && inner.has("mscale_all_dim")
          ? scale(inner.positive("mscale")) / scale(inner.positive("mscale_all_dim"))
          : scale(1);
  rope.attention_factor = inner.positive("attention_factor", rope.attention_factor);
  TLT_CHECK_INPUT(rope.beta_fast > rope.beta_slow, inner.path(), ": beta_fast ", rope.beta_fast,
                  " must be above beta_slow ", rope.beta_slow);
}

// transformers 5 writes rope_parameters with rope_theta inside, transformers 4 writes rope_theta
// and, unless the type is default, rope_scaling.
RopeConfig read_rope(const Keys& keys) {
  RopeConfig rope;
  rope.theta = keys.positive("rope_theta", rope.theta);
  const char* key = keys.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  double rotated = keys.positive("partial_rotary_factor", 1.0);
  if (keys.has(key)) {
    const json& object = keys.at(key);
    const std::string where = keys.path() + ": " + key;
    TLT_CHECK_INPUT(object.is_object(), where, " is ", object.dump(),
                    "; it must be an object with rope_type");
    const Keys inner(object, where);
    rope.theta = inner.positive("rope_theta", rope.theta);
    rope.type = inner.text("rope_type", inner.text("type", "default"));
    rotated = inner.positive("partial_rotary_factor", rotated);
    if (rope.type == "llama3") {
      rope.factor = inner.positive("factor");
      rope.low_freq_factor = inner.positive("low_freq_factor");
      rope.high_freq_factor = inner.positive("high_freq_factor");
      rope.original_max_positions = inner.size("original_max_position_embeddings");
      TLT_CHECK_INPUT(rope.high_freq_factor > rope.low_freq_factor, where, ": high_freq_factor ",
                      rope.high_freq_factor, " must be above low_freq_factor ",
                      rope.low_freq_factor);
    }
    if (rope.type == "linear") rope.factor = inner.positive("factor");
    if (rope.type == "yarn") read_yarn(keys, inner, rope);
    const bool is_known = rope.type == "default" || rope.type == "linear" ||
                          rope.type == "llama3" || rope.type == "yarn";
    TLT_CHECK_INPUT(is_known, where, ": rope_type '", rope.type,
                    "' is not supported; default, linear, llama3 and yarn are");
  }
  TLT_CHECK_INPUT(rotated == 1.0, keys.path(), ": partial_rotary_factor ", rotated,
                  " is not supported; only 1 is");
  return rope;
}

// A sliding window matters only if a layer uses it and if it is shorter than the model's limit.
void refuse_sliding_window(const Keys& keys, const ModelConfig& config) {
  if (config.family == Family::kLlama || !keys.flag("use_sliding_window", false) ||
      !keys.has("sliding_window"))
    return;
  if (keys.size("sliding_window") >= config.max_positions) return;
  bool used = keys.size("max_window_layers", 28) < config.layers;
  if (keys.has("layer_types")) {
    const json& types = keys.at("layer_types");
    used = std::find(types.begin(), types.end(), "sliding_attention") != types.end();
  }
  TLT_CHECK_INPUT(!used, keys.path(),
                  ": use_sliding_window is true and sliding attention is not supported; ",
                  "set use_sliding_window to false if the model was trained without it");
}

void refuse_unsupported(const Keys& keys, const ModelConfig& config) {
  const std::string activation = keys.text("hidden_act", "silu");
  TLT_CHECK_INPUT(activation == "silu" || activation == "swish", keys.path(), ": hidden_act '",
                  activation, "' is not supported; silu is");
  TLT_CHECK_INPUT(!keys.flag("mlp_bias", false), keys.path(),
                  ": mlp_bias is true; biases of the feed-forward are not supported");
  TLT_CHECK_INPUT(config.family == Family::kQwen2 || !keys.flag("attention_bias", false),
                  keys.path(),
                  ": attention_bias is true, which adds a bias to o_proj; that is not supported");
  TLT_CHECK_INPUT(!keys.has("quantization_config"), keys.path(),
                  ": quantized weights (quantization_config) are not supported; give the float32 "
                  "or bfloat16 model");
  refuse_sliding_window(keys, config);
}

constexpr size_t kMaxEosTokens = 1000;

std::vector<int32_t> read_eos(const Keys& keys, int64_t vocabulary) {
  if (!keys.has("eos_token_id")) return {};
  const json& value = keys.at("eos_token_id");
  std::vector<int32_t> tokens;
  for (const json& token : value.is_array() ? value : json::array({value})) {
    TLT_CHECK_INPUT(token.is_number_integer() && token >= 0 && token < vocabulary, keys.path(),
                    ": eos_token_id is ", value.dump(),
                    "; it must be a token, or a list of tokens, below vocab_size ", vocabulary);
    tokens.push_back(token.get<int32_t>());
  }
  // Every sampled token is compared with each of them.
  TLT_CHECK_INPUT(tokens.size() <= kMaxEosTokens, keys.path(), ": eos_token_id has ", tokens.size(),
                  " tokens; at most ", kMaxEosTokens, " are supported");
  return tokens;
}

}  // namespace

json read_json_object(const std::string& path) {
  const std::string text = read_file(path, /*max_bytes=*/1 << 24);
  check_json_depth(text, path);
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(value.is_object(), path, ": not a JSON object; copy the file again");
  return value;
}

ModelConfig ModelConfig::parse(const json& source, const std::string& path) {
  ModelConfig config;
  config.source = source;
  const Keys keys(config.source, path);
  config.family = read_family(keys);
  config.vocabulary = keys.size("vocab_size");
  config.hidden = keys.size("hidden_size");
  config.layers = keys.size("num_hidden_layers");
  config.heads = keys.size("num_attention_heads");
  config.kv_heads = keys.size("num_key_value_heads", config.heads);
  config.intermediate = keys.size("intermediate_size");
  config.max_positions = keys.size("max_position_embeddings");
  // Qwen2's attention has no head_dim of its own; Qwen3's class has 128 if the file has none.
  const int64_t even_share = config.hidden / config.heads;
  config.head_size = keys.size("head_dim", config.family == Family::kQwen3 ? 128 : even_share);
  TLT_CHECK_INPUT(
      keys.has("head_dim") || config.hidden % config.heads == 0 || config.family == Family::kQwen3,
      path, ": hidden_size ", config.hidden, " is not a multiple of num_attention_heads ",
      config.heads, "; add head_dim");
  config.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
  config.tied =
      keys.flag("tie_word_embeddings", false);  // false in the classes of all three families
  config.attention_bias = config.family == Family::kQwen2;
  config.rope = read_rope(keys);
  config.type_name = keys.text("dtype", keys.text("torch_dtype", "float32"));
  refuse_unsupported(keys, config);
  config.check(path);

  config.eos_tokens = read_eos(keys, config.vocabulary);
  return config;
}

ModelConfig ModelConfig::read(const std::string& folder) {
  const std::string path = folder + "/config.json";
  ModelConfig config = parse(read_json_object(path), path);
  const std::string generation_path = folder + "/generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const json generation = read_json_object(generation_path);
    const Keys generation_keys(generation, generation_path);
    if (generation_keys.has("eos_token_id"))
      config.eos_tokens = read_eos(generation_keys, config.vocabulary);
  }
  return config;
}

void ModelConfig::check(const std::string& where) const {
  const auto check_size = [&](const char* key, int64_t value, int64_t multiple, int64_t most) {
    TLT_CHECK_INPUT(value > 0 && value % multiple == 0 && value <= most, where, ": ", key, " is ",
                    value, "; it must be a multiple of ", multiple, ", at most ", most);
  };
  // Larger than any model, and small enough that products of them do not overflow.
  constexpr int64_t kManyLayers = 1 << 14, kManyHeads = 1 << 16, kWide = 1 << 20,
                    kManyTokens = 1 << 24;
  check_size("vocab_size", vocabulary, 1, kManyTokens);
  check_size("num_hidden_layers", layers, 1, kManyLayers);
  check_size("num_attention_heads", heads, 1, kManyHeads);
  check_size("num_key_value_heads", kv_heads, 1, kManyHeads);
  check_size("max_position_embeddings", max_positions, 1, int64_t{1} << 30);
  // Multiples: the vector sizes of the CPU kernels.
  check_size("hidden_size", hidden, 16, kWide);
  check_size("intermediate_size", intermediate, 16, kWide);
  check_size("head_dim", head_size, 16, kWide);
  TLT_CHECK_INPUT(head_size <= 96 || head_size == 128 || head_size == 256, where, ": head_dim ",
                  head_size, " is not supported; multiples of 16 up to 96, 128 and 256 are");
  TLT_CHECK_INPUT(heads % kv_heads == 0, where, ": num_attention_heads is ", heads,
                  "; it must be a multiple of num_key_value_heads ", kv_heads);
}

int64_t ModelConfig::parameters() const {
  const int64_t query = heads * head_size, key = kv_heads * head_size;
  int64_t layer = 2 * hidden * query + 2 * hidden * key + 3 * hidden * intermediate + 2 * hidden;
  if (attention_bias) layer += query + 2 * key;
  if (qk_norm()) layer += 2 * head_size;
  return (tied ? 1 : 2) * vocabulary * hidden + layers * layer + hidden;
}

}  // namespace tlt::model
