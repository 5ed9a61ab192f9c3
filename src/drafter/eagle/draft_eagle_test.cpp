// The golden draft models are transformers' layers under PyTorch's autograd in float64
// (tests/tools/make_draft_goldens.py).
//
// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/draft_eagle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/draft_tape.h"
#include "drafter/files/draft_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"
#include "tests/support/ttt.h"

namespace tlt::drafter {
namespace {

using tlt::tests::expect_ttt_passes;
using tlt::tests::near_of_largest;
using tlt::tests::random_tensor;
using tlt::tests::tensors_equal;
using tlt::tests::tensors_near;
using tlt::tests::tiny_config;

const std::string kGolden = std::string(TLT_SOURCE_DIR) + "/tests/golden/";

// Sequences of tokens x_{t+1}, and features for all of them.
struct Pairs {
  std::vector<std::vector<int32_t>> tokens;
  at::Tensor features;  // [T, D]

  int64_t first_row(size_t sequence) const {
    int64_t row = 0;
    for (size_t i = 0; i < sequence; ++i) row += std::ssize(tokens[i]);
    return row;
  }
  at::Tensor features_of(size_t sequence) const {
    return features.narrow(0, first_row(sequence), std::ssize(tokens[sequence]));
  }
  void add_to(DraftTape& tape) const {
    for (const auto& sequence : tokens)
      tape.add_sequence(sequence.data(), static_cast<int32_t>(sequence.size()));
  }
};

Pairs random_pairs(const DraftNetwork& network, std::initializer_list<int> lengths) {
  Pairs pairs;
  RandomStream random(/*seed=*/3, {});
  for (const int length : lengths) {
    pairs.tokens.emplace_back();
    for (int i = 0; i < length; ++i)
      pairs.tokens.back().push_back(static_cast<int32_t>(
          random.uniform() * static_cast<double>(network.config().vocabulary)));
  }
  pairs.features = random_tensor({pairs.first_row(pairs.tokens.size()), network.config().hidden},
                                 network.type(), /*name=*/5);
  return pairs;
}

struct Golden {
  Golden(const std::string& name, at::ScalarType type)
      : file(kGolden + "drafters/" + name + "/golden.safetensors"),
        target(model::load_policy(kGolden + "models/" + file.index().metadata.at("target"),
                                  Device::cpu(1), type)),
        network(load_drafter(kGolden + "drafters/" + name, *target)) {
    const at::Tensor all = file.read("tokens"), lengths = file.read("lengths");
    const int32_t* token = all.data_ptr<int32_t>();
    for (int64_t i = 0; i < lengths.size(0); ++i) {
      const int32_t length = lengths.data_ptr<int32_t>()[i];
      pairs.tokens.emplace_back(token, token + length);
      token += length;
    }
    pairs.features = file.read("features").to(type);
  }

  at::Tensor logits(const at::Tensor& hidden) const {
    at::Tensor out = at::empty({hidden.size(0), target->config().vocabulary}, at::kFloat);
    target->logits(hidden, out);
    return out;
  }

  model::SafetensorsFile file;
  std::unique_ptr<model::PolicyModel> target;
  std::unique_ptr<DraftNetwork> network;
  Pairs pairs;
};

class DraftGoldenTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, DraftGoldenTest,
                         ::testing::Values("llama", "qwen2", "qwen3", "llama_for_qwen3"));

TEST_P(DraftGoldenTest, ForwardMatchesPyTorch) {
  Golden golden(GetParam(), at::kFloat);
  DraftTape tape;
  golden.pairs.add_to(tape);
  const at::Tensor& next = golden.network->forward(tape, golden.pairs.features);
  EXPECT_TRUE(tensors_near(next, golden.file.read("next"), 1e-5));
  EXPECT_TRUE(tensors_near(golden.logits(next), golden.file.read("logits"), 1e-5));
}

TEST_P(DraftGoldenTest, GradientsMatchPyTorch) {
  Golden golden(GetParam(), at::kFloat);
  const DraftNetwork& network = *golden.network;
  DraftTape tape;
  golden.pairs.add_to(tape);
  const at::Tensor& next = network.forward(tape, golden.pairs.features);
  at::Tensor d_next = at::empty_like(next), d_features = at::empty_like(next);
  golden.target->logits_backward_input(golden.file.read("d_logits"), d_next);
  d_next.add_(golden.file.read("d_next"));
  model::Gradients gradients = network.make_gradients();
  network.backward(tape, d_next, gradients, &d_features);

  EXPECT_TRUE(near_of_largest(d_features, golden.file.read("d_features"), 1e-5));
  size_t compared = 0;
  for (size_t i = 0; i < network.parameters().size(); ++i)
    for (const model::Parameter::Part& part : network.parameters()[i].parts) {
      const at::Tensor got = gradients.tensors[i].narrow(0, part.first_row, part.rows);
      EXPECT_TRUE(near_of_largest(got, golden.file.read("d/" + part.name), 1e-4)) << part.name;
      ++compared;
    }
  size_t known = 0;
  for (const model::TensorEntry& entry : golden.file.index().entries)
    known += entry.name.starts_with("d/");
  EXPECT_EQ(compared, known);
}

TEST_P(DraftGoldenTest, TttPassesAndGradientsMatchPyTorch) {
  Golden golden(GetParam(), at::kFloat);
  model::SafetensorsFile ttt(kGolden + "drafters/" + GetParam() + "/unrolled.safetensors");
  DraftTape tape;
  golden.pairs.add_to(tape);
  expect_ttt_passes(*golden.network, tape, golden.pairs.features, ttt);
}

TEST_P(DraftGoldenTest, BFloat16IsCloseToFloat32) {
  Golden golden(GetParam(), at::kBFloat16);
  DraftTape tape;
  golden.pairs.add_to(tape);
  const at::Tensor& next = golden.network->forward(tape, golden.pairs.features);
  EXPECT_EQ(next.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(near_of_largest(next.to(at::kFloat), golden.file.read("next"), 2e-2));
  model::Gradients gradients = golden.network->make_gradients();
  at::Tensor d_next = at::empty_like(next);
  golden.target->logits_backward_input(golden.file.read("d_logits"), d_next);
  d_next.add_(golden.file.read("d_next").to(at::kBFloat16));
  golden.network->backward(tape, d_next, gradients);
  const at::Tensor want = golden.file.read("d/fc.weight");
  const double cosine =
      (at::sum(gradients.tensors[0] * want) / (gradients.tensors[0].norm() * want.norm()))
          .item<double>();
  EXPECT_GT(cosine, 0.999);
}

// --- random draft models of each family ---

class EagleNetworkTest
    : public ::testing::TestWithParam<std::tuple<model::Family, at::ScalarType>> {
 protected:
  EagleNetworkTest()
      : target_(tlt::tests::make_tiny_model(tiny_config(std::get<0>(GetParam())),
                                            std::get<1>(GetParam()))),
        network_(*target_, EagleNetwork::config_for(target_->config())) {
    network_.initialize(/*seed=*/21);
  }

  std::unique_ptr<model::PolicyModel> target_;
  EagleNetwork network_;
};

INSTANTIATE_TEST_SUITE_P(All, EagleNetworkTest,
                         ::testing::Combine(::testing::Values(model::Family::kLlama,
                                                              model::Family::kQwen2,
                                                              model::Family::kQwen3),
                                            ::testing::Values(at::kFloat, at::kBFloat16)),
                         [](const auto& info) {
                           return std::string(tlt::tests::name_of(std::get<0>(info.param))) + "_" +
                                  c10::toString(std::get<1>(info.param));
                         });

TEST_P(EagleNetworkTest, PackedSequenceIsComputedAsAlone) {
  const Pairs pairs = random_pairs(network_, {1, 20, 3, 16, 37});
  DraftTape tape, alone;
  pairs.add_to(tape);
  const at::Tensor& packed = network_.forward(tape, pairs.features);
  const at::Tensor d_next = random_tensor(packed.sizes(), network_.type(), /*name=*/6);
  at::Tensor d_features = at::empty_like(packed);
  model::Gradients gradients = network_.make_gradients();
  network_.backward(tape, d_next, gradients, &d_features);
  for (size_t i = 0; i < pairs.tokens.size(); ++i) {
    const int64_t first = pairs.first_row(i), rows = std::ssize(pairs.tokens[i]);
    alone.clear();
    alone.add_sequence(pairs.tokens[i].data(), static_cast<int32_t>(rows));
    const at::Tensor& next = network_.forward(alone, pairs.features_of(i));
    EXPECT_TRUE(tensors_equal(packed.narrow(0, first, rows), next)) << "sequence " << i;
    at::Tensor d_alone = at::empty_like(next);
    network_.backward(alone, d_next.narrow(0, first, rows).clone(), gradients, &d_alone);
    EXPECT_TRUE(tensors_equal(d_features.narrow(0, first, rows), d_alone)) << "sequence " << i;
  }
}

TEST_P(EagleNetworkTest, RowByRowEqualsThePackedPass) {
  const Pairs pairs = random_pairs(network_, {19, 35});
  DraftTape tape;
  pairs.add_to(tape);
  const at::Tensor whole = network_.forward(tape, pairs.features).clone();

  kv::KvCache cache(network_.device(), network_.kv_shape(), /*pages=*/5);
  const std::vector<std::vector<ops::PageId>> pages = {{3, 0}, {4, 1, 2}};
  DraftActivations activations(network_, /*max_rows=*/4);
  ops::Batch batch;
  const auto check = [&](size_t sequence, int32_t first, int32_t count) {
    batch.clear();
    batch.add(pairs.tokens[sequence].data() + first, count, first, pages[sequence].data());
    const at::Tensor& next = network_.forward(
        batch, pairs.features_of(sequence).narrow(0, first, count), cache, activations);
    EXPECT_TRUE(tensors_equal(next, whole.narrow(0, pairs.first_row(sequence) + first, count)))
        << "sequence " << sequence << " row " << first;
  };
  check(1, 0, 6);  // a first chunk, then row by row, the two sequences interleaved
  for (int32_t row = 0; row < 19; ++row) {
    check(0, row, 1);
    check(1, 6 + row, 1);
  }
  check(1, 25, 10);
}

// Rows of a tree: 0 -> {1 -> 2, 3 -> 4}, after nine pairs.
TEST_P(EagleNetworkTest, PathOfATreeIsComputedAsASequence) {
  const Pairs pairs = random_pairs(network_, {9 + 5});
  const std::vector<int32_t>& tokens = pairs.tokens[0];
  kv::KvCache cache(network_.device(), network_.kv_shape(), /*pages=*/1);
  const ops::PageId page = 0;
  DraftActivations activations(network_, /*max_rows=*/16);
  ops::Batch batch;
  batch.add(tokens.data(), 9, 0, &page);
  network_.forward(batch, pairs.features.narrow(0, 0, 9), cache, activations);
  batch.clear();
  batch.add_tree(tokens[9], 9, &page);
  const int32_t depths[] = {1, 2, 1, 2};
  for (int32_t i = 0; i < 4; ++i) batch.add_node(tokens[static_cast<size_t>(10 + i)], depths[i]);
  const at::Tensor tree =
      network_.forward(batch, pairs.features.narrow(0, 9, 5), cache, activations).clone();

  for (const std::vector<int64_t>& path : {std::vector<int64_t>{9, 10, 11}, {9, 12, 13}}) {
    std::vector<int64_t> rows(9);
    std::iota(rows.begin(), rows.end(), 0);
    rows.insert(rows.end(), path.begin(), path.end());
    std::vector<int32_t> line;
    for (const int64_t row : rows) line.push_back(tokens[static_cast<size_t>(row)]);
    DraftTape tape;
    tape.add_sequence(line.data(), static_cast<int32_t>(line.size()));
    const at::Tensor& next =
        network_.forward(tape, pairs.features.index_select(0, at::tensor(rows, at::kLong)));
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(tensors_equal(tree[path[static_cast<size_t>(i)] - 9], next[9 + i]))
          << "row " << path[static_cast<size_t>(i)];
  }
}

TEST_P(EagleNetworkTest, FeaturesMayBeTheLastOutput) {
  const Pairs pairs = random_pairs(network_, {2});
  const ops::PageId page = 0;
  const auto second = [&](bool copy) {
    kv::KvCache cache(network_.device(), network_.kv_shape(), /*pages=*/1);
    DraftActivations activations(network_, /*max_rows=*/1);
    ops::Batch batch;
    batch.add(&pairs.tokens[0][0], 1, 0, &page);
    const at::Tensor& first =
        network_.forward(batch, pairs.features.narrow(0, 0, 1), cache, activations);
    batch.clear();
    batch.add(&pairs.tokens[0][1], 1, 1, &page);
    return network_.forward(batch, copy ? first.clone() : first, cache, activations).clone();
  };
  EXPECT_TRUE(tensors_equal(second(/*copy=*/false), second(/*copy=*/true)));
}

TEST_P(EagleNetworkTest, BackwardAddsToTheGradients) {
  const Pairs pairs = random_pairs(network_, {20});
  DraftTape tape;
  pairs.add_to(tape);
  const at::Tensor& next = network_.forward(tape, pairs.features);
  const at::Tensor d_next = random_tensor(next.sizes(), network_.type(), /*name=*/6);
  model::Gradients once = network_.make_gradients(), twice = network_.make_gradients();
  network_.backward(tape, d_next, once);
  network_.backward(tape, d_next, twice);
  network_.backward(tape, d_next, twice);
  for (size_t i = 0; i < once.tensors.size(); ++i)
    EXPECT_TRUE(near_of_largest(twice.tensors[i], 2 * once.tensors[i], 1e-5))
        << network_.parameters()[i].name();
}

TEST_P(EagleNetworkTest, SecondPassReusesMemory) {
  const Pairs pairs = random_pairs(network_, {7});
  kv::KvCache cache(network_.device(), network_.kv_shape(), /*pages=*/1);
  const ops::PageId page = 0;
  DraftActivations activations(network_, /*max_rows=*/7);
  ops::Batch batch;
  std::vector<void*> places;
  for (const int32_t count : {7, 3, 7}) {
    batch.clear();
    batch.add(pairs.tokens[0].data(), count, 0, &page);
    places.push_back(
        network_.forward(batch, pairs.features.narrow(0, 0, count), cache, activations).data_ptr());
  }
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[0], places[2]);
}

TEST_P(EagleNetworkTest, StartsFromTheTargetsLastLayer) {
  network_.initialize_from_target(/*seed=*/4);
  const int64_t size = network_.config().hidden;
  const at::Tensor fc = network_.parameters()[0].read(network_.device());
  EXPECT_TRUE(tensors_equal(fc.narrow(1, size, size), at::eye(size)));
  EXPECT_GT(fc.narrow(1, 0, size).abs().max().item<float>(), 0.1);
  for (const model::Parameter& parameter : network_.parameters())
    for (const model::Parameter& source : target_->parameters())
      if (source.name() == "model.layers.1." + parameter.name().substr(9)) {
        EXPECT_TRUE(
            tensors_equal(parameter.read(network_.device()), source.read(network_.device())))
            << parameter.name();
      }
  EagleNetwork again(*target_, network_.config());
  again.initialize_from_target(/*seed=*/4);
  EXPECT_TRUE(tensors_equal(again.parameters()[0].read(network_.device()), fc));
}

TEST_P(EagleNetworkTest, TargetIsNeverWritten) {
  std::vector<at::Tensor> before;
  for (const model::Parameter& parameter : target_->parameters())
    before.push_back(parameter.read(target_->device()));
  network_.initialize_from_target(/*seed=*/4);
  for (const model::Parameter& parameter : network_.parameters())
    parameter.write(network_.device(), at::ones(parameter.shape()));
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(tensors_equal(target_->parameters()[i].read(target_->device()), before[i]))
        << target_->parameters()[i].name();
}

// --- rejected input ---

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EagleNetworkInputTest, DraftModelOfAnotherShapeIsRejected) {
  const auto target = tlt::tests::make_tiny_model(tiny_config(model::Family::kLlama), at::kFloat);
  const model::ModelConfig fitting = EagleNetwork::config_for(target->config());
  const auto make = [&](auto edit) {
    return refusal([&] {
      model::ModelConfig config = fitting;
      edit(config);
      EagleNetwork network(*target, config);
    });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(make([](auto&) {}), "accepted");
  EXPECT_THAT(make([](auto& c) { c.hidden = 64; }),
              HasSubstr("drafter: hidden_size is 64 and the target's is 48"));
  EXPECT_THAT(make([](auto& c) { c.vocabulary = 101; }),
              HasSubstr("drafter: vocab_size is 101 and the target's is 100"));
  EXPECT_THAT(make([](auto& c) { c.layers = 2; }), HasSubstr("num_hidden_layers is 2"));
  EXPECT_THAT(make([](auto& c) { c.hidden = 0; }), HasSubstr("hidden_size is 0"));
  EXPECT_THAT(make([](auto& c) { c.heads = 3; }), HasSubstr("num_attention_heads is 3"));
}

TEST(EagleNetworkInputTest, InitializeFromTargetNeedsAnEqualLayer) {
  const auto target = tlt::tests::make_tiny_model(tiny_config(model::Family::kQwen3), at::kFloat);
  EagleNetwork other(*target, EagleNetwork::config_for(target->config(), model::Family::kLlama));
  EXPECT_THAT(refusal([&] { other.initialize_from_target(1); }), ::testing::HasSubstr("family"));
  model::ModelConfig narrow = EagleNetwork::config_for(target->config());
  narrow.intermediate = 16;
  EagleNetwork small(*target, narrow);
  EXPECT_THAT(refusal([&] { small.initialize_from_target(1); }),
              ::testing::HasSubstr("the draft model's layers.0.mlp.gate_proj.weight is [32, 48]"));
}

TEST(EagleNetworkInputTest, FeaturesOfAnotherShapeAreAnError) {
  const auto target = tlt::tests::make_tiny_model(tiny_config(model::Family::kQwen2), at::kFloat);
  const EagleNetwork network(*target, EagleNetwork::config_for(target->config()));
  const std::vector<int32_t> tokens = {3, 4};
  DraftTape tape;
  tape.add_sequence(tokens.data(), 2);
  EXPECT_THROW(network.forward(tape, at::zeros({3, 48})), Error);
  EXPECT_THROW(network.forward(tape, at::zeros({2, 96})), Error);
}

}  // namespace
}  // namespace tlt::drafter
