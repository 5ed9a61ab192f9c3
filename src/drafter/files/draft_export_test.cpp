// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_export.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <functional>

#include "base/check.h"
#include "drafter/files/draft_folder.h"
#include "drafter/files/draft_hot_tokens.h"
#include "model/hf_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"

namespace tlt::drafter {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tlt::tests::tensors_equal;

const std::string kGoldenFolder = std::string(TLT_SOURCE_DIR) + "/tests/golden/";

std::string drafter(const std::string& name) { return kGoldenFolder + "drafters/" + name; }

struct ExportPair {
  const char* drafter;
  std::string target;
};

std::string target_of_eagle3() {
  return model::SafetensorsFile(drafter("eagle3") + "/golden.safetensors")
      .index()
      .metadata.at("target");
}

std::vector<ExportPair> pairs() {
  return {{"llama", "llama_untied_rope_llama3"},
          {"qwen2", "qwen2_tied"},
          {"qwen3", "qwen3_tied_head32"},
          {"llama_for_qwen3", "qwen3_untied"},
          {"eagle3", target_of_eagle3()}};
}

using Tensors = std::map<std::string, at::Tensor>;

Tensors tensors_in(const std::string& folder) {
  model::SafetensorsFolder file(folder);
  Tensors tensors;
  for (const std::string& name : file.names()) tensors[name] = file.read(name);
  return tensors;
}

void write_tensors(const std::string& folder, const Tensors& tensors) {
  std::vector<model::TensorSource> sources;
  for (const auto& [name, values] : tensors)
    sources.push_back(model::TensorSource::of(name, values));
  model::write_safetensors_folder(folder, sources);
}

void edit_tensors(const std::string& folder, const std::function<void(Tensors&)>& edit) {
  Tensors tensors = tensors_in(folder);
  edit(tensors);
  write_tensors(folder, tensors);
}

void edit_config(const std::string& folder, const std::function<void(json&)>& edit) {
  json config = model::read_json_object(folder + "/config.json");
  edit(config);
  write_file_atomic(folder + "/config.json", config.dump());
}

json exported(const ExportPair& pair, const std::string& folder,
              const DraftExportOptions& options) {
  const DraftExport out(drafter(pair.drafter), kGoldenFolder + "models/" + pair.target, options);
  out.write(folder);
  out.check(folder);
  return model::read_json_object(folder + "/config.json");
}

const DraftExportOptions kVllm = {
    .format = DraftFormat::kVllm, .target_name = "some/target", .speculative_tokens = 4};

class DraftExportTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  // A copy of the golden draft model that the test edits.
  std::string copy(const std::string& name) {
    const std::string to = path("copy");
    std::filesystem::remove_all(to);
    std::filesystem::copy(drafter(name), to);
    return to;
  }

 private:
  const TestFolder folder_;
};

TEST_F(DraftExportTest, SglangFolderLoadsWithEqualWeights) {
  for (const ExportPair& pair : pairs()) {
    const std::string folder = path(pair.drafter);
    exported(pair, folder, {});
    const auto target =
        model::load_policy(kGoldenFolder + "models/" + pair.target, Device::cpu(1), at::kFloat);
    const auto want = load_drafter(drafter(pair.drafter), *target);
    const auto got = load_drafter(folder, *target);
    ASSERT_EQ(got->parameters().size(), want->parameters().size());
    for (size_t i = 0; i < got->parameters().size(); ++i)
      EXPECT_TRUE(tensors_equal(got->parameters()[i].read(target->device()),
                                want->parameters()[i].read(target->device())))
          << pair.drafter << " " << got->parameters()[i].name();
    EXPECT_EQ(got->head_tokens(), want->head_tokens());
    EXPECT_EQ(got->auxiliary_layers(), want->auxiliary_layers());
    // SGLang's class would keep a random bias.
    const Tensors tensors = tensors_in(folder);
    ASSERT_EQ(tensors.contains("fc.bias"), got->algorithm() == "eagle") << pair.drafter;
    if (!tensors.contains("fc.bias")) continue;
    EXPECT_TRUE(at::equal(tensors.at("fc.bias"), at::zeros_like(tensors.at("fc.bias"))));
  }
}

// vLLM's class must find exactly its own tensors.
TEST_F(DraftExportTest, VllmEagle3IsASpeculatorsFolder) {
  const json config = exported({"eagle3", target_of_eagle3()}, path("out"), kVllm);
  const json source = model::read_json_object(drafter("eagle3") + "/config.json");
  EXPECT_EQ(config["speculators_model_type"], "eagle3");
  EXPECT_EQ(config["norm_before_residual"], false);
  EXPECT_EQ(config["draft_vocab_size"], source["draft_vocab_size"]);
  EXPECT_EQ(config["speculators_config"]["verifier"]["name_or_path"], "some/target");
  EXPECT_EQ(config["speculators_config"]["proposal_methods"][0]["speculative_tokens"], 4);
  EXPECT_EQ(config["transformer_layer_config"]["model_type"], "llama");
  EXPECT_EQ(config["transformer_layer_config"]["hidden_size"], source["hidden_size"]);
  const auto target = model::load_policy(kGoldenFolder + "models/" + target_of_eagle3(),
                                         Device::cpu(1), at::kFloat);
  EXPECT_EQ(config["eagle_aux_hidden_state_layer_ids"],
            load_drafter(drafter("eagle3"), *target)->auxiliary_layers());
  Tensors want;
  for (const auto& [source_name, values] : tensors_in(drafter("eagle3"))) {
    std::string name = source_name;
    if (name.starts_with("midlayer.")) name.replace(0, 8, "layers.0");
    if (name != "embed_tokens.weight") want[name] = values;
  }
  const Tensors got = tensors_in(path("out"));
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want)
    EXPECT_TRUE(tensors_equal(got.at(name).to(at::kDouble), values.to(at::kDouble))) << name;
}

TEST_F(DraftExportTest, VllmEagleIsALlamaLayer) {
  const json qwen2 = exported({"qwen2", "qwen2_tied"}, path("qwen2"), kVllm);
  EXPECT_EQ(qwen2["architectures"], json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(qwen2["model_type"], "llama");
  EXPECT_EQ(qwen2["qkv_bias"], true);
  EXPECT_EQ(qwen2["attention_bias"], false);  // it would add one to o_proj
  const Tensors tensors = tensors_in(path("qwen2"));
  EXPECT_TRUE(tensors.contains("layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(tensors.contains("fc.bias"));
  EXPECT_FALSE(
      exported({"llama", "llama_untied_rope_llama3"}, path("llama"), kVllm).contains("qkv_bias"));
  EXPECT_THROW(exported({"qwen3", "qwen3_tied_head32"}, path("qwen3"), kVllm), InputError);
}

TEST_F(DraftExportTest, IncompleteOrForeignDraftModelIsRejected) {
  const auto answer = [&](const std::string& folder, const std::string& target) -> std::string {
    try {
      const DraftExport out(folder, kGoldenFolder + "models/" + target, {});
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto edited = [&](const char* name, const std::function<void(Tensors&)>& edit) {
    const std::string folder = copy(name);
    edit_tensors(folder, edit);
    return folder;
  };
  const std::string target = "llama_untied_rope_llama3", name = "layers.0.mlp.up_proj.weight";
  EXPECT_EQ(answer(copy("llama"), target), "accepted");
  EXPECT_THAT(answer(edited("llama", [&](Tensors& t) { t.erase(name); }), target),
              HasSubstr("no tensor " + name));
  EXPECT_THAT(answer(edited("llama",
                            [&](Tensors& t) {
                              t[name] = at::zeros({2, 2});
                            }),
                     target),
              HasSubstr("has shape [2, 2]"));
  EXPECT_THAT(
      answer(edited("llama", [&](Tensors& t) { t["norm.weight"] = at::ones({2}); }), target),
      HasSubstr("norm.weight is not in this draft model"));
  EXPECT_THAT(answer(edited("llama", [&](Tensors& t) { t["fc.bias"] = at::ones({2}); }), target),
              HasSubstr("fc.bias"));
  EXPECT_THAT(
      answer(edited("eagle3", [&](Tensors& t) { t["d2t"] = t["d2t"].neg(); }), target_of_eagle3()),
      HasSubstr("d2t"));
  const std::string wide = copy("llama");
  edit_config(wide, [](json& config) { config["vocab_size"] = 1000; });
  EXPECT_THAT(answer(wide, target), HasSubstr("made for this target"));
}

TEST_F(DraftExportTest, CheckDetectsAnIncompleteFolder) {
  const std::string folder = path("out");
  for (const DraftExportOptions& options : {DraftExportOptions{}, kVllm}) {
    const DraftExport out(drafter("eagle3"), kGoldenFolder + "models/" + target_of_eagle3(),
                          options);
    out.write(folder);
    const Tensors tensors = tensors_in(folder);
    const json config = model::read_json_object(folder + "/config.json");
    for (const auto& [name, values] : tensors) {
      edit_tensors(folder, [&, left = name](Tensors& t) { t.erase(left); });
      EXPECT_THROW(out.check(folder), Error) << name;
      edit_tensors(folder, [&, name = name, values = values](Tensors& t) {
        t[name] = at::zeros({3}, values.options());
      });
      EXPECT_THROW(out.check(folder), Error) << name;
      write_tensors(folder, tensors);
    }
    edit_tensors(folder, [](Tensors& t) { t["more"] = at::zeros({3}); });
    EXPECT_THROW(out.check(folder), Error);
    write_tensors(folder, tensors);
    out.check(folder);
    edit_config(folder, [](json& edited) { edited.erase("draft_vocab_size"); });
    EXPECT_THROW(out.check(folder), Error);
  }
}

TEST_F(DraftExportTest, TokenMapHasTheHottestTokens) {
  const std::string folder = copy("qwen2"), target = kGoldenFolder + "models/qwen2_tied";
  write_hot_tokens(folder, std::vector<int32_t>{7, 3, 9, 1, 4});
  EXPECT_FALSE(DraftExport(folder, target, {}).has_token_map());
  const DraftExport out(folder, target, {.target_name = "", .hot_tokens = 3});
  ASSERT_TRUE(out.has_token_map());
  out.write(path("out"));
  const std::string bytes = read_file(path("out/hot_token_id.pt"), 1 << 20);
  const at::Tensor tokens =
      torch::jit::pickle_load(std::vector<char>(bytes.begin(), bytes.end())).toTensor();
  EXPECT_TRUE(at::equal(tokens, at::tensor({3, 7, 9}, at::kLong)));
}

}  // namespace
}  // namespace tlt::drafter
