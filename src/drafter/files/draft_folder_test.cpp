// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/check.h"
#include "drafter/eagle/draft_eagle.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kGoldenData = std::string(TLT_SOURCE_DIR) + "/tests/golden/";

struct Pair {
  const char* drafter;
  const char* target;
};
constexpr Pair kPairs[] = {{"llama", "llama_untied_rope_llama3"},
                           {"qwen2", "qwen2_tied"},
                           {"qwen3", "qwen3_tied_head32"},
                           {"llama_for_qwen3", "qwen3_untied"}};

json read_config(const std::string& folder) {
  return json::parse(read_file(folder + "/config.json", 1 << 20));
}

class DraftFolderTest : public ::testing::Test {
 protected:
  using Tensors = std::map<std::string, at::Tensor>;

  void SetUp() override {
    folder_ = ::testing::TempDir() + "draft_folder_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<model::PolicyModel> target(const std::string& name,
                                             at::ScalarType type = at::kFloat) const {
    return model::load_policy(kGoldenData + "models/" + name, Device::cpu(1), type);
  }

  // Writes a changed copy of golden draft model `name`.
  void write_edited(const std::string& name, const std::function<void(Tensors&)>& edit_tensors,
                    const std::function<void(json&)>& edit_config) {
    const std::string golden = kGoldenData + "drafters/" + name;
    model::SafetensorsFile file(golden + "/model.safetensors");
    Tensors tensors;
    for (const model::TensorEntry& entry : file.index().entries)
      tensors[entry.name] = file.read(entry);
    if (edit_tensors) edit_tensors(tensors);
    std::vector<model::TensorSource> sources;
    for (const auto& [tensor, values] : tensors)
      sources.push_back(model::TensorSource::of(tensor, values));
    model::write_safetensors_folder(folder_, sources);
    json config = read_config(golden);
    if (edit_config) edit_config(config);
    write_file_atomic(folder_ + "/config.json", config.dump());
  }

  // The error of load_drafter for it, or "accepted".
  std::string answer(const Pair& pair, const std::function<void(Tensors&)>& edit_tensors,
                     const std::function<void(json&)>& edit_config = nullptr) {
    write_edited(pair.drafter, edit_tensors, edit_config);
    const auto model = target(pair.target);
    try {
      load_drafter(folder_, *model);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::string folder_;
};

TEST_F(DraftFolderTest, DraftModelIsSavedAsLoaded) {
  for (const auto& [drafter, name] : kPairs) {
    const std::string golden = kGoldenData + "drafters/" + drafter;
    const auto model = target(name);
    save_drafter(*load_drafter(golden, *model), folder_);
    EXPECT_EQ(read_config(folder_), read_config(golden)) << drafter;
    model::SafetensorsFile want(golden + "/model.safetensors"), got(folder_ + "/model.safetensors");
    for (const model::TensorEntry& entry : want.index().entries)
      EXPECT_TRUE(at::equal(got.read(entry.name), want.read(entry))) << drafter << entry.name;
    // And the bias that SGLang's class would fill with random values.
    EXPECT_EQ(got.index().entries.size(), want.index().entries.size() + 1) << drafter;
    EXPECT_TRUE(at::equal(got.read("fc.bias"), at::zeros({model->config().hidden})));
  }
}

TEST_F(DraftFolderTest, NewDraftModelRoundTrips) {
  for (const model::Family family :
       {model::Family::kLlama, model::Family::kQwen2, model::Family::kQwen3}) {
    const auto model = tlt::tests::make_tiny_model(tlt::tests::tiny_config(family), at::kBFloat16);
    for (const model::Family layer : {family, model::Family::kLlama}) {
      EagleNetwork network(*model, EagleNetwork::config_for(model->config(), layer));
      network.initialize(/*seed=*/5);
      save_drafter(snapshot_drafter(network), folder_);
      const json config = read_config(folder_);
      EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
      EXPECT_EQ(config.at("num_hidden_layers"), 1);
      EXPECT_EQ(config.at("tie_word_embeddings"), false);
      EXPECT_TRUE(config.at("architectures")[0].get<std::string>().ends_with("ForCausalLMEagle"));
      const auto again = load_drafter(folder_, *model);
      const model::ModelConfig &got = again->config(), &want = network.config();
      EXPECT_EQ(got.family, layer);
      EXPECT_EQ(got.heads, want.heads);
      EXPECT_EQ(got.kv_heads, want.kv_heads);
      EXPECT_EQ(got.head_size, want.head_size);
      EXPECT_EQ(got.intermediate, want.intermediate);
      EXPECT_EQ(got.max_positions, want.max_positions);
      EXPECT_EQ(got.norm_epsilon, want.norm_epsilon);
      EXPECT_EQ(got.attention_bias, want.attention_bias);
      EXPECT_EQ(got.rope.type, want.rope.type);
      EXPECT_EQ(got.rope.theta, want.rope.theta);
      EXPECT_EQ(got.rope.factor, want.rope.factor);
      EXPECT_EQ(got.rope.original_max_positions, want.rope.original_max_positions);
      ASSERT_EQ(again->parameters().size(), network.parameters().size());
      for (size_t i = 0; i < network.parameters().size(); ++i)
        EXPECT_TRUE(at::equal(again->parameters()[i].read(model->device()),
                              network.parameters()[i].read(model->device())))
            << network.parameters()[i].name();
    }
  }
}

TEST_F(DraftFolderTest, WeightsAreRoundedToTheTargetsType) {
  const auto model = target("qwen2_tied", at::kBFloat16);
  save_drafter(*load_drafter(kGoldenData + "drafters/qwen2", *model), folder_);
  EXPECT_EQ(read_config(folder_).at("dtype"), "bfloat16");
  model::SafetensorsFile want(kGoldenData + "drafters/qwen2/model.safetensors");
  model::SafetensorsFile got(folder_ + "/model.safetensors");
  for (const model::TensorEntry& entry : want.index().entries)
    EXPECT_TRUE(at::equal(got.read(entry.name), want.read(entry).to(at::kBFloat16)));
}

TEST_F(DraftFolderTest, SnapshotIsACopy) {
  const auto model = target("qwen2_tied");
  const auto network = load_drafter(kGoldenData + "drafters/qwen2", *model);
  const DraftSnapshot snapshot = snapshot_drafter(*network);
  for (const model::Parameter& parameter : network->parameters())
    parameter.write(network->device(), at::zeros(parameter.shape()));
  save_drafter(snapshot, folder_);
  load_draft_weights(folder_, *network);
  model::SafetensorsFile want(kGoldenData + "drafters/qwen2/model.safetensors");
  for (const model::Parameter& parameter : network->parameters())
    for (const model::Parameter::Part& part : parameter.parts)
      EXPECT_TRUE(at::equal(parameter.read(network->device(), part), want.read(part.name)));
}

TEST_F(DraftFolderTest, TensorsOfOtherTrainersAreIgnored) {
  EXPECT_EQ(answer(kPairs[0],
                   [](Tensors& t) {
                     Tensors renamed;
                     for (const auto& [name, values] : t) renamed["model." + name] = values;
                     renamed["model.embed_tokens.weight"] = at::ones({320, 48});
                     renamed["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({8});
                     renamed["lm_head.weight"] = at::ones({7, 48});
                     renamed["model.fc.bias"] = at::zeros({48});
                     t = renamed;
                   }),
            "accepted");
  EXPECT_EQ(answer(kPairs[2],  // as SGLang's Qwen3 class names it
                   [](Tensors& t) {
                     t["model.eagle_fc.weight"] = t.at("fc.weight");
                     t.erase("fc.weight");
                   }),
            "accepted");
  EXPECT_EQ(answer(kPairs[1], nullptr, [](json& c) { c["tie_word_embeddings"] = true; }),
            "accepted");
}

TEST_F(DraftFolderTest, PrefixedNamesGiveTheSameDraftModel) {
  const auto model = target(kPairs[1].target);
  write_edited(
      kPairs[1].drafter,
      [](Tensors& t) {
        Tensors renamed;
        for (const auto& [name, values] : t) renamed["model." + name] = values;
        t = renamed;
      },
      nullptr);
  const auto plain = load_drafter(kGoldenData + "drafters/qwen2", *model);
  const auto prefixed = load_drafter(folder_, *model);
  for (size_t i = 0; i < plain->parameters().size(); ++i)
    EXPECT_TRUE(at::equal(plain->parameters()[i].read(model->device()),
                          prefixed->parameters()[i].read(model->device())));
}

TEST_F(DraftFolderTest, ErrorNamesTheInvalidTensor) {
  const Pair &llama = kPairs[0], &qwen2 = kPairs[1], &qwen3 = kPairs[2];
  const auto with = [&](const Pair& pair, const char* name, const at::Tensor& values) {
    return answer(pair, [&](Tensors& t) { t[name] = values; });
  };
  const auto without = [&](const Pair& pair, const char* name) {
    return answer(pair, [&](Tensors& t) { t.erase(name); });
  };
  EXPECT_THAT(without(llama, "fc.weight"),
              AllOf(HasSubstr(folder_), HasSubstr("no tensor fc.weight")));
  EXPECT_THAT(without(qwen2, "layers.0.self_attn.v_proj.bias"),
              HasSubstr("no tensor layers.0.self_attn.v_proj.bias"));
  EXPECT_THAT(without(qwen3, "layers.0.self_attn.k_norm.weight"),
              HasSubstr("no tensor layers.0.self_attn.k_norm.weight"));
  EXPECT_THAT(
      with(llama, "fc.bias", at::full({48}, 1e-3)),
      AllOf(HasSubstr("model.safetensors: tensor fc.bias is not zero"), HasSubstr("no bias")));
  EXPECT_THAT(with(llama, "layers.0.input_layernorm.weight", at::ones({48})),
              AllOf(HasSubstr("tensor layers.0.input_layernorm.weight"),
                    HasSubstr("norm before the attention")));
  EXPECT_THAT(with(llama, "model.norm.weight", at::ones({48})),
              AllOf(HasSubstr("tensor model.norm.weight"), HasSubstr("after the layer")));
  EXPECT_THAT(with(llama, "d2t", at::ones({48})), HasSubstr("EAGLE-3"));
  EXPECT_THAT(with(llama, "layers.1.mlp.up_proj.weight", at::ones({48})),
              HasSubstr("tensor layers.1.mlp.up_proj.weight is not in this draft model"));
  EXPECT_THAT(with(llama, "model.fc.weight", at::ones({48, 96})),
              HasSubstr("tensors fc.weight and model.fc.weight are the same"));
  EXPECT_THAT(with(llama, "embed_tokens.weight", at::ones({319, 48})),
              AllOf(HasSubstr("embed_tokens.weight has shape [319, 48]"), HasSubstr("[320, 48]")));
  EXPECT_THAT(with(llama, "fc.weight", at::ones({48, 48})),
              HasSubstr("tensor fc.weight has shape [48, 48] and config.json requires [48, 96]"));
  EXPECT_THAT(with(llama, "fc.weight", at::ones({48, 96}, at::kInt)), HasSubstr("has type I32"));
}

TEST_F(DraftFolderTest, ErrorNamesTheInvalidKey) {
  const auto said = [&](const char* key, const json& value) {
    return answer(kPairs[0], nullptr, [&](json& c) { c[key] = value; });
  };
  EXPECT_THAT(said("architectures", json::array({"LlamaForCausalLM"})),
              AllOf(HasSubstr("config.json: architectures is [\"LlamaForCausalLM\"]"),
                    HasSubstr("LlamaForCausalLMEagle")));
  EXPECT_THAT(said("architectures", json::array({"LlamaForCausalLMEagle3"})),
              HasSubstr("EAGLE-3 draft model reads states of three"));
  EXPECT_THAT(said("architectures", "LlamaForCausalLMEagle"),
              HasSubstr("architectures is \"Llama"));
  EXPECT_THAT(answer(kPairs[0], nullptr, [](json& c) { c.erase("architectures"); }),
              HasSubstr("architectures is missing"));
  EXPECT_THAT(said("num_hidden_layers", 2),
              AllOf(HasSubstr("config.json: num_hidden_layers is 2"), HasSubstr("is 1;")));
  EXPECT_THAT(said("hidden_size", 64), HasSubstr("hidden_size is 64 and the target's is 48"));
  EXPECT_THAT(said("vocab_size", 256), HasSubstr("vocab_size is 256 and the target's is 320"));
  EXPECT_THAT(said("intermediate_size", 112), HasSubstr("config.json requires [112, 48]"));
  EXPECT_THAT(said("intermediate_size", "big"), HasSubstr("intermediate_size is \"big\""));
  EXPECT_THAT(said("architectures", json::array({"Qwen2ForCausalLMEagle"})),
              HasSubstr("no tensor layers.0.self_attn.k_proj.bias"));
}

TEST_F(DraftFolderTest, DraftModelOfAnotherTargetIsRejected) {
  const auto model = target("qwen2_tied");
  try {
    load_drafter(kGoldenData + "drafters/llama", *model);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("llama/config.json: hidden_size is 48 and the target's is 64"));
  }
  EXPECT_THROW(load_drafter(folder_ + "/nowhere", *model), InputError);
}

}  // namespace
}  // namespace tlt::drafter
