// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/check.h"

namespace tlt::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kModels = std::string(TLT_SOURCE_DIR) + "/tests/golden/models/";

json base_config() {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 96},
          {"max_position_embeddings", 512},
          {"torch_dtype", "bfloat16"}};
}

class ModelConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "model_config_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ModelConfig read(const json& config, const json& generation = nullptr) {
    std::ofstream(folder_ + "/config.json") << config.dump();
    std::filesystem::remove(folder_ + "/generation_config.json");
    if (!generation.is_null())
      std::ofstream(folder_ + "/generation_config.json") << generation.dump();
    return ModelConfig::read(folder_);
  }
  ModelConfig with(const json& patch) {
    json config = base_config();
    config.update(patch);
    return read(config);
  }
  std::string refusal(const json& patch) {
    try {
      with(patch);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::string folder_;
};

TEST_F(ModelConfigTest, FormatsOfTransformers4And5AreRead) {
  const ModelConfig old = ModelConfig::read(kModels + "llama_transformers4");
  EXPECT_EQ(old.family, Family::kLlama);
  EXPECT_EQ(old.head_size, 16);
  EXPECT_EQ(old.rope.type, "llama3");
  EXPECT_EQ(old.rope.theta, 10000.0);
  EXPECT_EQ(old.rope.factor, 8.0);
  EXPECT_EQ(old.rope.original_max_positions, 64);
  EXPECT_EQ(old.type_name, "float32");
  EXPECT_TRUE(old.tied);

  const ModelConfig current = ModelConfig::read(kModels + "qwen3_tied_head32");
  EXPECT_EQ(current.family, Family::kQwen3);
  EXPECT_EQ(current.head_size, 32);
  EXPECT_FALSE(current.attention_bias);
  EXPECT_TRUE(current.qk_norm());
  EXPECT_EQ(current.eos_tokens, std::vector<int32_t>{2});

  const ModelConfig qwen2 = ModelConfig::read(kModels + "qwen2_tied");
  EXPECT_EQ(qwen2.rope.theta, 1e6);
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_EQ(ModelConfig::read(kModels + "qwen2_bf16").type_name, "bfloat16");
}

TEST_F(ModelConfigTest, NumberOfParametersMatchesTransformers) {
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const json golden = json::parse(std::ifstream(entry.path() / "golden.json"));
    EXPECT_EQ(ModelConfig::read(entry.path()).parameters(), golden.at("parameters"))
        << entry.path();
  }
}

TEST_F(ModelConfigTest, MissingKeyHasTheDefaultOfItsFamily) {
  const ModelConfig qwen2 = read(base_config());
  EXPECT_FALSE(qwen2.tied);
  EXPECT_EQ(qwen2.head_size, 16);
  EXPECT_EQ(qwen2.norm_epsilon, 1e-6);
  EXPECT_EQ(qwen2.rope.theta, 10000.0);
  EXPECT_EQ(qwen2.rope.type, "default");
  EXPECT_TRUE(qwen2.eos_tokens.empty());
  EXPECT_EQ(qwen2.type_name, "bfloat16");
  EXPECT_EQ(with({{"architectures", {"Qwen3ForCausalLM"}}}).head_size, 128);
  EXPECT_EQ(
      with({{"architectures", {"LlamaForCausalLM"}}, {"num_key_value_heads", nullptr}}).kv_heads,
      4);
  EXPECT_EQ(with({{"architectures", nullptr}, {"model_type", "llama"}}).family, Family::kLlama);
}

TEST_F(ModelConfigTest, GenerationConfigOverridesEosTokens) {
  json config = base_config();
  config["eos_token_id"] = 7;
  EXPECT_EQ(read(config).eos_tokens, std::vector<int32_t>{7});
  EXPECT_EQ(read(config, json{{"eos_token_id", {5, 6}}}).eos_tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(read(config, json{{"temperature", 0.7}}).eos_tokens, std::vector<int32_t>{7});
  EXPECT_THROW(read(config, json{{"eos_token_id", {5, 320}}}), InputError);
}

TEST_F(ModelConfigTest, UnusedSlidingWindowIsAccepted) {
  EXPECT_EQ(refusal({{"sliding_window", 128}, {"use_sliding_window", false}}), "accepted");
  EXPECT_EQ(
      refusal({{"sliding_window", 128}, {"use_sliding_window", true}, {"max_window_layers", 2}}),
      "accepted");
  EXPECT_EQ(
      refusal({{"sliding_window", 512}, {"use_sliding_window", true}, {"max_window_layers", 1}}),
      "accepted");
  EXPECT_THAT(
      refusal({{"sliding_window", 128}, {"use_sliding_window", true}, {"max_window_layers", 1}}),
      HasSubstr("use_sliding_window"));
  EXPECT_THAT(refusal({{"sliding_window", 128},
                       {"use_sliding_window", true},
                       {"layer_types", {"full_attention", "sliding_attention"}}}),
              HasSubstr("use_sliding_window"));
}

TEST_F(ModelConfigTest, ErrorNamesTheUnsupportedKey) {
  EXPECT_THAT(refusal({{"architectures", {"MistralForCausalLM"}}}),
              HasSubstr("'MistralForCausalLM'"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}}),
              HasSubstr("rope_type 'dynamic'"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "yarn"}}}}), HasSubstr("factor is missing"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", 0.5}}}}),
              HasSubstr("beta_fast 0.5 must be above beta_slow 1"));
  EXPECT_THAT(refusal({{"rope_parameters", {{"rope_type", "linear"}}}}),
              HasSubstr("factor is missing"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}),
              HasSubstr("low_freq_factor is missing"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(refusal({{"hidden_act", "gelu"}}), HasSubstr("hidden_act 'gelu'"));
  EXPECT_THAT(refusal({{"mlp_bias", true}}), HasSubstr("mlp_bias"));
  EXPECT_THAT(refusal({{"architectures", {"LlamaForCausalLM"}}, {"attention_bias", true}}),
              HasSubstr("attention_bias"));
  EXPECT_THAT(refusal({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
  EXPECT_THAT(refusal({{"hidden_size", nullptr}}), HasSubstr("hidden_size is missing"));
  EXPECT_THAT(refusal({{"hidden_size", "64"}}), HasSubstr("hidden_size is \"64\""));
  EXPECT_THAT(refusal({{"hidden_size", 72}}), HasSubstr("multiple of 16"));
  EXPECT_THAT(refusal({{"head_dim", 112}}), HasSubstr("head_dim 112"));
  EXPECT_THAT(refusal({{"num_key_value_heads", 3}}), HasSubstr("multiple of num_key_value_heads"));
  EXPECT_THAT(refusal({{"num_hidden_layers", 0}}), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal({{"vocab_size", 1e30}}), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal({{"vocab_size", 1 << 29}}), HasSubstr("at most 16777216"));
  EXPECT_THAT(refusal({{"num_hidden_layers", 1 << 29}}), HasSubstr("at most 16384"));
  EXPECT_THAT(refusal({{"eos_token_id", std::vector<int>(1001, 3)}}),
              HasSubstr("eos_token_id has 1001 tokens; at most 1000"));
}

TEST_F(ModelConfigTest, ErrorNamesMissingOrMalformedFile) {
  EXPECT_THROW(ModelConfig::read(folder_ + "/nowhere"), InputError);
  std::ofstream(folder_ + "/config.json") << "{\"a\": ";
  EXPECT_THROW(ModelConfig::read(folder_), InputError);
}

}  // namespace
}  // namespace tlt::model
