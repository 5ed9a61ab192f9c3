// The adapters of tests/golden/lora are PEFT's (tests/tools/make_lora_goldens.py).
//
// SPDX-License-Identifier: Apache-2.0
#include "train/lora_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "model/tape.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"

namespace tlt::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::tensors_equal;
using tests::tensors_near;
using Json = nlohmann::json;

constexpr std::pair<const char*, const char*> kAdapters[] = {
    {"short_names", "qwen2_tied"}, {"all_linear", "qwen3_untied"}, {"rslora_bf16", "llama_tied"}};

std::string golden_folder(const std::string& name) { return kGolden + "lora/" + name; }

// A copy of a golden adapter's folder that the test changes.
class AdapterCopy {
 public:
  explicit AdapterCopy(const std::string& name = "short_names") {
    std::filesystem::copy(golden_folder(name), folder_.path(),
                          std::filesystem::copy_options::recursive);
  }
  const std::string& path() const { return folder_.path(); }
  void set(const std::string& key, const Json& value) {
    const std::string path = folder_ / "adapter_config.json";
    Json config = Json::parse(read_file(path, 1 << 20));
    config[key] = value;
    write_file_atomic(path, config.dump());
  }
  // Writes the tensors again after calling `change` on them.
  void change_tensors(const std::function<void(std::vector<model::TensorSource>&)>& change) {
    const std::string path = folder_ / "adapter_model.safetensors";
    std::vector<model::TensorSource> tensors;
    {
      model::SafetensorsFile file(path);
      for (const model::TensorEntry& entry : file.index().entries)
        tensors.push_back(model::TensorSource::of(entry.name, file.read(entry)));
    }
    change(tensors);
    model::write_safetensors(path, tensors);
  }
  std::string refusal(const std::string& base = "qwen2_tied") const {
    return thrown_message<InputError>([&] {
      const auto model = golden_model(base);
      LoraAdapter adapter(*model, read_lora_config(path()), 1);
      load_lora(path(), adapter);
    });
  }

 private:
  TestFolder folder_;
};

TEST(LoraFolderTest, MergedWeightsAndLogitsMatchPeft) {
  const std::vector<int32_t> tokens = {5, 17, 99, 4, 250, 31, 77, 8, 8, 140};
  for (const auto& [name, base] : kAdapters) {
    const auto model = golden_model(base);
    LoraAdapter adapter(*model, read_lora_config(golden_folder(name)), 1);
    load_lora(golden_folder(name), adapter);
    model::SafetensorsFile golden(golden_folder(name) + "/golden.safetensors");
    size_t seen = 0;
    for (const model::Parameter& parameter : model->parameters())
      for (const model::Parameter::Part& part : parameter.parts)
        if (golden.index().find(part.name)) {
          ++seen;
          EXPECT_TRUE(
              tensors_near(parameter.read(model->device(), part), golden.read(part.name), 1e-6))
              << name << " " << part.name;
        }
    EXPECT_EQ(2 * seen, adapter.parameters().size()) << name;
    EXPECT_EQ(seen + 1, golden.index().entries.size()) << name;

    model::Tape tape(*model, /*recompute=*/false);
    tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
    const at::Tensor hidden = model->forward(tape).clone();
    at::Tensor logits = at::empty({std::ssize(tokens), model->config().vocabulary}, at::kFloat);
    model->logits(hidden, logits);
    EXPECT_TRUE(tensors_near(logits, golden.read("logits"), 2e-5)) << name;
  }
}

TEST(LoraFolderTest, SavedAdapterRoundTripsBitForBit) {
  for (const auto& [name, base] : kAdapters) {
    const auto model = golden_model(base), again = golden_model(base);
    LoraAdapter adapter(*model, read_lora_config(golden_folder(name)), 1);
    load_lora(golden_folder(name), adapter);
    const TestFolder folder;
    save_lora(snapshot_lora(adapter, "somewhere", adapter.base_checksum()), folder.path());

    const LoraConfig config = read_lora_config(folder.path());
    EXPECT_EQ(config.rank, adapter.config().rank);
    EXPECT_EQ(config.alpha, adapter.config().alpha);
    EXPECT_EQ(config.use_rslora, adapter.config().use_rslora);
    LoraAdapter copy(*again, config, 2);
    load_lora(folder.path(), copy);
    ASSERT_EQ(copy.parameters().size(), adapter.parameters().size());
    for (size_t i = 0; i < copy.parameters().size(); ++i) {
      EXPECT_EQ(copy.parameters()[i].name(), adapter.parameters()[i].name());
      EXPECT_TRUE(at::equal(*copy.parameters()[i].tensor, *adapter.parameters()[i].tensor));
    }
    for (size_t i = 0; i < model->parameters().size(); ++i)
      EXPECT_TRUE(tensors_equal(again->parameters()[i].read(again->device()),
                                model->parameters()[i].read(model->device())));
    const Json written = Json::parse(read_file(folder / "adapter_config.json", 1 << 20));
    EXPECT_TRUE(written.at("lora_alpha").is_number_integer()) << "PEFT's type";
    EXPECT_EQ(written.at("base_model_name_or_path"), "somewhere");
    EXPECT_TRUE(written.at("target_modules").is_array());
  }
}

// Copying such a value overflowed the stack.
TEST(LoraFolderTest, DeeplyNestedConfigIsRejected) {
  const AdapterCopy copy;
  write_file_atomic(
      copy.path() + "/adapter_config.json",
      "{\"target_modules\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_THAT(copy.refusal(), HasSubstr("nested more than 500 deep"));
}

TEST(LoraFolderTest, UnsupportedKeyIsRejectedByName) {
  EXPECT_EQ(AdapterCopy().refusal(), "");
  const std::pair<const char*, Json> kOther[] = {{"use_dora", true},
                                                 {"modules_to_save", {"lm_head"}},
                                                 {"bias", "all"},
                                                 {"rank_pattern", {{"q_proj", 8}}},
                                                 {"alpha_pattern", {{"q_proj", 8}}},
                                                 {"layers_to_transform", {1}},
                                                 {"fan_in_fan_out", true},
                                                 {"init_lora_weights", "pissa"},
                                                 {"lora_bias", true},
                                                 {"trainable_token_indices", {1, 2}},
                                                 {"task_type", "SEQ_CLS"},
                                                 {"peft_type", "LOHA"},
                                                 {"a_key_of_tomorrow", 3},
                                                 {"exclude_modules", {"k_proj"}}};
  for (const auto& [key, value] : kOther) {
    AdapterCopy copy;
    copy.set(key, value);
    EXPECT_THAT(copy.refusal(), HasSubstr("adapter_config.json: " + std::string(key) + " is "));
  }
  for (const Json& start : {Json(false), Json("gaussian"), Json(nullptr)}) {
    AdapterCopy copy;
    copy.set("init_lora_weights", start);
    EXPECT_EQ(copy.refusal(), "");
  }
  AdapterCopy pattern, text, head;
  pattern.set("target_modules", ".*q_proj");
  EXPECT_THAT(pattern.refusal(), HasSubstr("target_modules is \".*q_proj\"; it must be a list"));
  text.set("r", "three");
  EXPECT_THAT(text.refusal(), HasSubstr("r is \"three\", not of its type"));
  head.set("target_modules", {"q_proj", "lm_head"});
  EXPECT_THAT(head.refusal(), HasSubstr("target_modules has 'lm_head'"));
}

TEST(LoraFolderTest, MismatchedTensorsAreRejected) {
  const std::string first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  AdapterCopy rank, fewer, more, gone, other;
  rank.set("r", 4);
  EXPECT_THAT(rank.refusal(), AllOf(HasSubstr("adapter_config.json: r is 4 and tensor base_model."
                                              "model.model.layers.0.mlp.down_proj.lora_A.weight"),
                                    HasSubstr("has 3 rows")));
  // Memory for it was taken first: an error of the allocator.
  rank.set("r", int64_t{1} << 40);
  EXPECT_THAT(rank.refusal(), HasSubstr("r is 1099511627776 and tensor"));
  EXPECT_THAT(AdapterCopy().refusal("qwen3_untied"), HasSubstr("is it of another base model?"));
  fewer.change_tensors([](auto& tensors) { tensors.pop_back(); });
  EXPECT_THAT(fewer.refusal(), HasSubstr("no tensor base_model.model.model.layers."));
  more.change_tensors([&](auto& tensors) {
    tensors.push_back(model::TensorSource::of("lm_head.weight", at::zeros({2, 2})));
  });
  EXPECT_THAT(more.refusal(), HasSubstr("tensor lm_head.weight does not belong"));
  other.set("target_modules", {"q_proj", "v_proj"});
  EXPECT_THAT(other.refusal(), HasSubstr("down_proj.lora_A.weight does not belong"));
  std::filesystem::remove(gone.path() + "/adapter_model.safetensors");
  EXPECT_THAT(gone.refusal(), HasSubstr("no adapter_model.safetensors"));
}

TEST(LoraFolderTest, AdapterOnAnotherBaseIsRejected) {
  const TestFolder folder;
  {
    const auto model = golden_model("qwen2_tied");
    LoraAdapter adapter(*model, {.rank = 2}, 1);
    save_lora(snapshot_lora(adapter, "qwen2_tied", adapter.base_checksum()), folder.path());
  }
  const auto model = golden_model("qwen2_tied");
  const model::Parameter& norm = model::find(model->parameters(), "model.norm.weight");
  norm.write(model->device(), norm.read(model->device()) + 1e-3);
  LoraAdapter adapter(*model, read_lora_config(folder.path()), 1);
  EXPECT_THAT(thrown_message<InputError>([&] { load_lora(folder.path(), adapter); }),
              HasSubstr("trained on other weights"));
}

}  // namespace
}  // namespace tlt::train
