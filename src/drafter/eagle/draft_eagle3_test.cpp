// The golden draft model is made of transformers' modules under PyTorch's autograd in float64
// (tests/tools/make_draft_goldens.py).
//
// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/draft_eagle3.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/check.h"
#include "drafter/eagle/draft_tape.h"
#include "drafter/files/draft_eagle3_folder.h"
#include "drafter/files/draft_folder.h"
#include "model/activations.h"
#include "model/tape.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"
#include "tests/support/ttt.h"

namespace tlt::drafter {
namespace {

using ::testing::HasSubstr;
using tlt::tests::near_of_largest;
using tlt::tests::tensors_equal;
using tlt::tests::tensors_near;

const std::string kEagle3Models = std::string(TLT_SOURCE_DIR) + "/tests/golden/models/";
const std::string kDrafter = std::string(TLT_SOURCE_DIR) + "/tests/golden/drafters/eagle3";

class Eagle3Test : public ::testing::Test {
 protected:
  Eagle3Test()
      : golden_(kDrafter + "/golden.safetensors"),
        target_(model::load_policy(kEagle3Models + golden_.index().metadata.at("target"),
                                   Device::cpu(1), at::kFloat)),
        network_(load_eagle3(kDrafter, *target_)),
        folder_(::testing::TempDir() + "draft_eagle3_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Eagle3Test() override { std::filesystem::remove_all(folder_); }

  // Calls add(tokens, count) for each sequence of the golden tensor `name`.
  void for_sequences(const std::string& name,
                     const std::function<void(const int32_t*, int32_t)>& add) {
    const at::Tensor tokens = golden_.read(name), lengths = golden_.read("lengths");
    const int32_t* token = tokens.data_ptr<int32_t>();
    for (int64_t i = 0; i < lengths.size(0); ++i) {
      const int32_t length = lengths.data_ptr<int32_t>()[i];
      add(token, length);
      token += length;
    }
  }
  void fill(DraftTape& tape) {
    for_sequences("tokens", [&](const int32_t* first, int32_t n) { tape.add_sequence(first, n); });
  }
  int64_t rows() const { return network_->head_rows(); }

  // The error of load_eagle3 for an edited copy, or "accepted".
  std::string answer(const std::function<void(std::map<std::string, at::Tensor>&)>& edit_tensors,
                     const std::function<void(nlohmann::json&)>& edit_config = nullptr) {
    model::SafetensorsFile file(kDrafter + "/model.safetensors");
    std::map<std::string, at::Tensor> tensors;
    for (const model::TensorEntry& entry : file.index().entries)
      tensors[entry.name] = file.read(entry);
    if (edit_tensors) edit_tensors(tensors);
    std::vector<model::TensorSource> sources;
    for (const auto& [name, values] : tensors)
      sources.push_back(model::TensorSource::of(name, values));
    model::write_safetensors_folder(folder_, sources);
    auto config = model::read_json_object(kDrafter + "/config.json");
    if (edit_config) edit_config(config);
    write_file_atomic(folder_ + "/config.json", config.dump());
    try {
      load_eagle3(folder_, *target_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }

  model::SafetensorsFile golden_;
  std::unique_ptr<model::PolicyModel> target_;
  std::unique_ptr<Eagle3Network> network_;
  std::string folder_;
};

TEST_F(Eagle3Test, CapturedStatesAreInputsOfTheLayers) {
  const std::vector<int64_t>& layers = network_->auxiliary_layers();
  EXPECT_EQ(layers, (std::vector<int64_t>{0, 1, 2}));
  kv::KvCache cache(target_->device(), target_->kv_shape(), /*pages=*/7);
  std::vector<ops::PageId> pages = {0, 1, 2, 3, 4, 5, 6};
  ops::Batch batch;
  model::Tape tape(*target_, /*recompute=*/false);
  const ops::PageId* next = pages.data();
  for_sequences("target_tokens", [&](const int32_t* first, int32_t n) {
    batch.add(first, n, 0, next);
    next += (n + ops::kPageSlots - 1) / ops::kPageSlots;
    tape.add_sequence(first, n);
  });
  model::Activations activations(*target_, /*max_rows=*/8);
  activations.capture(layers);
  target_->forward(batch, cache, activations);
  EXPECT_TRUE(tensors_near(activations.captured(), golden_.read("captured"), 1e-5));
  target_->forward(tape);
  at::Tensor captured = at::empty_like(golden_.read("captured"));
  tape.captured(layers, captured);
  EXPECT_TRUE(tensors_equal(captured, activations.captured()));
}

TEST_F(Eagle3Test, ForwardAndGradientsMatchPyTorch) {
  DraftTape tape;
  fill(tape);
  const at::Tensor& normed = network_->forward(tape, golden_.read("captured"));
  at::Tensor logits = at::empty({normed.size(0), rows()}, at::kFloat);
  network_->head(normed, logits);
  EXPECT_TRUE(tensors_near(logits, golden_.read("logits"), 1e-5));

  model::Gradients gradients = network_->make_gradients();
  at::Tensor d_normed = at::empty_like(normed);
  network_->head_backward(normed, golden_.read("d_logits"), d_normed, gradients);
  network_->backward(tape, d_normed, gradients);
  size_t compared = 0, known = 0;
  for (size_t i = 0; i < network_->parameters().size(); ++i)
    for (const model::Parameter::Part& part : network_->parameters()[i].parts) {
      EXPECT_TRUE(near_of_largest(gradients.tensors[i].narrow(0, part.first_row, part.rows),
                                  golden_.read("d/" + part.name), 1e-4))
          << part.name;
      ++compared;
    }
  for (const model::TensorEntry& entry : golden_.index().entries)
    known += entry.name.starts_with("d/");
  EXPECT_EQ(compared, known);
}

TEST_F(Eagle3Test, TttPassesAndGradientsMatchPyTorch) {
  model::SafetensorsFile ttt(kDrafter + "/unrolled.safetensors");
  DraftTape tape;
  fill(tape);
  tlt::tests::expect_ttt_passes(*network_, tape, golden_.read("captured"), ttt);
}

TEST_F(Eagle3Test, RowByRowEqualsThePackedPass) {
  DraftTape tape;
  fill(tape);
  const at::Tensor captured = golden_.read("captured");
  const at::Tensor& normed = network_->forward(tape, captured);
  at::Tensor want = at::empty({normed.size(0), rows()}, at::kFloat);
  network_->head(normed, want);
  DraftActivations whole(*network_, /*max_rows=*/1);
  const at::Tensor features = network_->features(captured, whole).clone();

  int64_t row = 0;
  DraftActivations activations(*network_, /*max_rows=*/1);
  at::Tensor logits = at::empty({1, rows()}, at::kFloat);
  for_sequences("tokens", [&](const int32_t* first, int32_t n) {
    kv::KvCache cache(network_->device(), network_->kv_shape(), /*pages=*/3);
    const ops::PageId pages[] = {2, 0, 1};
    for (int32_t i = 0; i < n; ++i, ++row) {
      ops::Batch batch;
      batch.add(first + i, 1, i, pages);
      const at::Tensor& next =
          network_->forward(batch, features.narrow(0, row, 1), cache, activations);
      EXPECT_TRUE(tensors_near(next, golden_.read("next").narrow(0, row, 1), 1e-5));
      network_->logits(next, activations, logits);
      EXPECT_TRUE(tensors_equal(logits, want.narrow(0, row, 1))) << "row " << row;
    }
  });
}

TEST_F(Eagle3Test, FeaturesMayBeTheLastOutput) {
  const at::Tensor start = tlt::tests::random_tensor({1, 64}, at::kFloat, /*name=*/2);
  const int32_t tokens[] = {5, 9};
  const ops::PageId page = 0;
  const auto second = [&](bool copy) {
    kv::KvCache cache(network_->device(), network_->kv_shape(), /*pages=*/1);
    DraftActivations activations(*network_, /*max_rows=*/1);
    ops::Batch batch;
    batch.add(&tokens[0], 1, 0, &page);
    const at::Tensor& first = network_->forward(batch, start, cache, activations);
    batch.clear();
    batch.add(&tokens[1], 1, 1, &page);
    return network_->forward(batch, copy ? first.clone() : first, cache, activations).clone();
  };
  EXPECT_TRUE(tensors_equal(second(/*copy=*/false), second(/*copy=*/true)));
}

TEST_F(Eagle3Test, DraftModelIsSavedAsLoaded) {
  save_drafter(*network_, folder_);
  EXPECT_EQ(model::read_json_object(folder_ + "/config.json"),
            model::read_json_object(kDrafter + "/config.json"));
  model::SafetensorsFile want(kDrafter + "/model.safetensors"), got(folder_ + "/model.safetensors");
  EXPECT_EQ(got.index().entries.size(), want.index().entries.size());
  for (const model::TensorEntry& entry : want.index().entries)
    EXPECT_TRUE(at::equal(got.read(entry.name), want.read(entry))) << entry.name;
}

TEST_F(Eagle3Test, NewDraftModelRoundTrips) {
  Eagle3Network network(*target_, Eagle3Config::make(target_->config(), /*head_rows=*/7));
  network.set_head_tokens({0, 3, 4, 100, 101, 300, 511});
  network.initialize(/*seed=*/3);
  save_drafter(network, folder_);
  const auto again = load_eagle3(folder_, *target_);
  EXPECT_EQ(again->head_tokens(), network.head_tokens());
  EXPECT_EQ(again->auxiliary_layers(), network.auxiliary_layers());
  for (size_t i = 0; i < network.parameters().size(); ++i)
    EXPECT_TRUE(tensors_equal(again->parameters()[i].read(target_->device()),
                              network.parameters()[i].read(target_->device())));
  // The LM head's rows are the target's rows of these tokens.
  const at::Tensor head = network.parameters().back().read(target_->device());
  EXPECT_TRUE(tensors_equal(head[3], target_->parameters()[0].read(target_->device())[100]));
}

TEST_F(Eagle3Test, ErrorNamesTheInvalidTensorOrKey) {
  using Tensors = std::map<std::string, at::Tensor>;
  EXPECT_EQ(answer([](Tensors& t) {
              t["model.layers.0.hidden_norm.weight"] = t.at("midlayer.hidden_norm.weight");
              t.erase("midlayer.hidden_norm.weight");
              t["embed_tokens.weight"] = at::ones({512, 64});
              t["fc.bias"] = at::zeros({64});
            }),
            "accepted");
  EXPECT_THAT(answer([](Tensors& t) { t.erase("midlayer.hidden_norm.weight"); }),
              HasSubstr("no tensor midlayer.hidden_norm.weight"));
  EXPECT_THAT(answer([](Tensors& t) { t.erase("d2t"); }), HasSubstr("no tensor d2t"));
  EXPECT_THAT(answer([](Tensors& t) { t["d2t"] = -at::arange(200); }),
              HasSubstr("row 1 is token 0 after token 0"));
  EXPECT_THAT(answer([](Tensors& t) { t["d2t"] = t["d2t"] + 400; }), HasSubstr("vocab_size 512"));
  EXPECT_THAT(answer([](Tensors& t) { t["d2t"] = at::zeros({3}, at::kLong); }),
              HasSubstr("tensor d2t must be 200 integers"));
  EXPECT_THAT(answer([](Tensors& t) { t["t2d"] = at::ones({512}, at::kBool); }),
              HasSubstr("tensor t2d does not mark"));
  EXPECT_THAT(answer([](Tensors& t) { t["fc.bias"] = at::ones({64}); }),
              HasSubstr("tensor fc.bias is not zero"));
  EXPECT_THAT(answer([](Tensors& t) { t["midlayer.self_attn.q_proj.bias"] = at::ones({64}); }),
              HasSubstr("midlayer.self_attn.q_proj.bias is not in an EAGLE-3 draft model"));
  EXPECT_THAT(answer([](Tensors& t) {
                t["fc.weight"] = at::ones({64, 128});
              }),
              HasSubstr("[64, 128] and config.json requires [64, 192]"));
  const auto said = [&](const char* key, const nlohmann::json& value) {
    return answer(nullptr, [&](nlohmann::json& c) { c[key] = value; });
  };
  EXPECT_THAT(said("architectures", {"Qwen2ForCausalLMEagle"}),
              HasSubstr("LlamaForCausalLMEagle3"));
  EXPECT_THAT(said("draft_vocab_size", 600), HasSubstr("draft_vocab_size is 600"));
  EXPECT_THAT(said("target_hidden_size", 128), HasSubstr("target_hidden_size is 128"));
  EXPECT_THAT(said("vocab_size", 128), HasSubstr("vocab_size is 128 and the target's is 512"));
  const auto with_layers = [&](const nlohmann::json& ids) {
    return said("eagle_config", {{"eagle_aux_hidden_state_layer_ids", ids}});
  };
  EXPECT_THAT(with_layers({-1, 0, 2}), HasSubstr("three ascending layers from -1 to 1"));
  EXPECT_THAT(with_layers({0, -1, 1}), HasSubstr("ascending"));
  EXPECT_THAT(with_layers({-1, 0, INT64_MAX}), HasSubstr("three ascending layers from -1 to 1"));
  EXPECT_THAT(with_layers("all"), HasSubstr("eagle_aux_hidden_state_layer_ids is \"all\""));
}

TEST(Eagle3ConfigTest, LayersMatchSGLang) {
  model::ModelConfig target = tlt::tests::tiny_config(model::Family::kQwen3);
  target.layers = 28;
  const Eagle3Config config = Eagle3Config::make(target, 50);
  EXPECT_EQ(config.layers, (std::vector<int64_t>{2, 14, 25}));
  EXPECT_EQ(config.layer.source.at("eagle_config").at("eagle_aux_hidden_state_layer_ids"),
            nlohmann::json({1, 13, 24}));
  target.layers = 4;
  EXPECT_EQ(Eagle3Config::make(target, 50).layers, (std::vector<int64_t>{1, 2, 3}));
  target.layers = 2;
  EXPECT_THROW(Eagle3Config::make(target, 50), InputError);
}

}  // namespace
}  // namespace tlt::drafter
