// SPDX-License-Identifier: Apache-2.0
#include "model/hf_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"

namespace tlt::model {
namespace {

using testing::HasSubstr;

const std::string kModelFolders = std::string(TLT_SOURCE_DIR) + "/tests/golden/models/";

class HfFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "hf_folder_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A copy of golden model `name` with its tensors changed by `edit`.
  template <class Edit>
  std::string edited(const std::string& name, const Edit& edit) {
    SafetensorsFolder golden(kModelFolders + name);
    std::map<std::string, at::Tensor> tensors;
    for (const std::string& tensor : golden.names()) tensors[tensor] = golden.read(tensor);
    edit(tensors);
    std::vector<TensorSource> sources;
    for (const auto& [tensor, values] : tensors)
      sources.push_back(TensorSource::of(tensor, values));
    write_safetensors_folder(folder_, sources);
    write_file_atomic(folder_ + "/config.json",
                      read_file(kModelFolders + name + "/config.json", 1 << 20));
    return folder_;
  }
  std::string refusal(const std::string& folder) {
    try {
      load_policy(folder, device_, at::kFloat);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }

  Device device_ = Device::cpu(1);
  std::string folder_;
};

TEST_F(HfFolderTest, EveryFamilyIsSavedAsLoaded) {
  for (const auto& entry : std::filesystem::directory_iterator(kModelFolders)) {
    const std::string golden = entry.path();
    const auto config = nlohmann::json::parse(read_file(golden + "/config.json", 1 << 20));
    const bool is_bf16 = config.value("dtype", "") == "bfloat16";
    save_policy(*load_policy(golden, device_, is_bf16 ? at::kBFloat16 : at::kFloat), folder_,
                golden);
    EXPECT_EQ(nlohmann::json::parse(read_file(folder_ + "/config.json", 1 << 20)), config)
        << golden;
    EXPECT_EQ(read_file(folder_ + "/generation_config.json", 1 << 20),
              read_file(golden + "/generation_config.json", 1 << 20));
    SafetensorsFolder want(golden), got(folder_);
    EXPECT_EQ(got.names().size(), want.names().size()) << golden;
    for (const std::string& name : want.names())
      EXPECT_TRUE(at::equal(got.read(name), want.read(name))) << golden << " " << name;
  }
}

TEST_F(HfFolderTest, ChatTemplatesAreCopied) {
  const std::string source = edited("qwen2_tied", [](auto&) {}), saved = folder_ + "/saved";
  std::filesystem::create_directories(source + "/additional_chat_templates");
  std::filesystem::create_directories(saved);
  for (const char* file : {"/chat_template.jinja", "/additional_chat_templates/tool_use.jinja"})
    write_file_atomic(source + file, file);
  save_policy(*load_policy(source, device_, at::kFloat), saved, source);
  for (const char* file : {"/chat_template.jinja", "/additional_chat_templates/tool_use.jinja"})
    EXPECT_EQ(read_file(saved + file, 1 << 10), file);
}

TEST_F(HfFolderTest, AnotherTypeRoundsWeightsAndIsSaved) {
  const std::string golden = kModelFolders + "llama_transformers4";
  save_policy(*load_policy(golden, device_, at::kBFloat16), folder_, golden);
  const auto config = nlohmann::json::parse(read_file(folder_ + "/config.json", 1 << 20));
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  EXPECT_FALSE(config.contains("dtype"));
  SafetensorsFolder want(golden), got(folder_);
  for (const std::string& name : want.names())
    EXPECT_TRUE(at::equal(got.read(name), want.read(name).to(at::kBFloat16))) << name;
}

TEST_F(HfFolderTest, Float16WeightsAreRoundedToThePolicysType) {
  for (const char* name : {"qwen3_untied", "llama_untied_rope_llama3"}) {
    SafetensorsFolder golden(kModelFolders + name);
    const std::string folder = edited(name, [](auto& tensors) {
      for (auto& [tensor, values] : tensors) values = values.to(at::kHalf);
    });
    ASSERT_EQ(SafetensorsFolder(folder).find(golden.names()[0])->type, DataType::kF16);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const PolicySnapshot snapshot = snapshot_policy(*load_policy(folder, device_, type));
      ASSERT_EQ(snapshot.tensors.size(), golden.names().size()) << name;
      for (const TensorSource& source : snapshot.tensors) {
        const at::Tensor want = golden.read(source.name).to(at::kHalf).to(at::kFloat).to(type);
        EXPECT_TRUE(at::equal(source.values(), want)) << name << " " << source.name;
        if (type == at::kFloat) {
          EXPECT_FALSE(at::equal(want, golden.read(source.name)))
              << "rounding to half changed nothing";
        }
      }
    }
  }
}

TEST_F(HfFolderTest, SnapshotIsACopy) {
  const std::string golden = kModelFolders + "qwen2_untied";
  const auto model = load_policy(golden, device_, at::kFloat);
  const PolicySnapshot snapshot = snapshot_policy(*model);
  for (const Parameter& parameter : model->parameters())
    parameter.write(device_, at::zeros(parameter.shape()));
  save_policy(snapshot, folder_, "");
  SafetensorsFolder want(golden), got(folder_);
  for (const std::string& name : want.names())
    EXPECT_TRUE(at::equal(got.read(name), want.read(name))) << name;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/generation_config.json"));
}

TEST_F(HfFolderTest, RedundantTensorsAreIgnored) {
  EXPECT_EQ(refusal(edited("llama_tied",
                           [](auto& tensors) {
                             tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1;
                             tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] =
                                 at::ones({8});
                           })),
            "accepted");
}

TEST_F(HfFolderTest, ErrorNamesTheInvalidTensor) {
  EXPECT_THAT(refusal(edited("qwen2_tied",
                             [](auto& t) { t.erase("model.layers.1.self_attn.k_proj.bias"); })),
              HasSubstr("no tensor model.layers.1.self_attn.k_proj.bias"));
  EXPECT_THAT(refusal(edited("qwen2_untied", [](auto& t) { t.erase("lm_head.weight"); })),
              HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(
      refusal(edited("llama_tied",
                     [](auto& t) { t["model.layers.2.mlp.up_proj.weight"] = at::ones({2}); })),
      HasSubstr("tensor model.layers.2.mlp.up_proj.weight is not in this model"));
  EXPECT_THAT(
      refusal(edited("llama_tied", [](auto& t) { t["model.norm.weight"] = at::ones({47}); })),
      HasSubstr("tensor model.norm.weight has shape [47] and config.json requires [48]"));
  EXPECT_THAT(refusal(edited("llama_tied",
                             [](auto& t) { t["model.norm.weight"] = at::ones({48}, at::kInt); })),
              HasSubstr("has type I32"));
  EXPECT_THAT(refusal(folder_ + "/nowhere"), HasSubstr("nowhere"));
  // The error comes before memory is allocated for 16,000 layers.
  const std::string folder = edited("qwen2_tied", [](auto&) {});
  auto config = nlohmann::json::parse(read_file(folder + "/config.json", 1 << 20));
  config["num_hidden_layers"] = 16'000;
  write_file_atomic(folder + "/config.json", config.dump());
  EXPECT_THAT(refusal(folder), HasSubstr("parameters and the weights have"));
}

}  // namespace
}  // namespace tlt::model
