// SPDX-License-Identifier: Apache-2.0
#include "train/muon.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "train/optimizer.h"

namespace tlt::train {
namespace {

using testing::HasSubstr;

at::Tensor random_matrix(RandomStream& random, int64_t rows, int64_t columns) {
  at::Tensor values = at::empty({rows, columns}, at::kFloat);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<float>()[i] = static_cast<float>(random.normal());
  return values;
}

// torch.optim.Muon's _zeropower_via_newtonschulz with float64 in place of bfloat16.
at::Tensor torchs_direction(const at::Tensor& matrix) {
  at::Tensor x = matrix.to(at::kDouble);
  const bool is_tall = x.size(0) > x.size(1);
  if (is_tall) x = x.t();
  x = x / x.norm().clamp_min(1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    const at::Tensor update = at::addmm(gram, gram, gram, /*beta=*/-4.775, /*alpha=*/2.0315);
    x = at::addmm(x, update, x, /*beta=*/3.4445);
  }
  return is_tall ? x.t() : x;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

const std::vector<std::pair<int64_t, int64_t>> kShapes = {
    {1, 1}, {3, 5}, {5, 3}, {1, 70}, {64, 64}, {130, 70}, {70, 200}, {257, 33}};

TEST(MuonTest, DirectionIsThatOfTorchOperations) {
  RandomStream random(1, {.step = 1});
  for (const auto& [rows, columns] : kShapes) {
    const at::Tensor matrix = random_matrix(random, rows, columns);
    for (const double scale : {1.0, 1e-12, 1e6})
      EXPECT_LE(largest_difference(orthogonalized(Device::cpu(1), matrix * scale),
                                   torchs_direction(matrix * scale)),
                2e-5)
          << rows << " x " << columns << " times " << scale;
  }
}

TEST(MuonTest, SingularValuesOfTheDirectionAreNearOne) {
  RandomStream random(2, {.step = 1});
  for (const auto& [rows, columns] : kShapes) {
    if (rows == columns && rows > 1) continue;  // a random square matrix has tiny ones
    const at::Tensor values = std::get<1>(at::svd(
        orthogonalized(Device::cpu(1), random_matrix(random, rows, columns)).to(at::kDouble)));
    EXPECT_GT(values.min().item<double>(), 0.65) << rows << " x " << columns;
    EXPECT_LT(values.max().item<double>(), 1.25) << rows << " x " << columns;
  }
}

TEST(MuonTest, GradientOfZerosHasNoDirection) {
  const at::Tensor zeros = at::zeros({6, 4});
  EXPECT_TRUE(at::equal(orthogonalized(Device::cpu(1), zeros), zeros));
}

TEST(MuonTest, NumberOfThreadsChangesNoBitOfTheDirection) {
  RandomStream random(3, {.step = 1});
  for (const auto& [rows, columns] : kShapes) {
    const at::Tensor matrix = random_matrix(random, rows, columns);
    const at::Tensor one = orthogonalized(Device::cpu(1), matrix);
    for (const int threads : {2, 3, 7})
      EXPECT_TRUE(at::equal(orthogonalized(Device::cpu(threads), matrix), one))
          << rows << " x " << columns << " on " << threads;
  }
}

OptimOptions muon() {
  OptimOptions options;
  options.optimizer = "Muon";
  options.weight_decay = 0.1;
  return options;
}

// A layer's fused and single projections, tall and wide, an embedding, and a norm.
struct Layer {
  explicit Layer(at::ScalarType type = at::kFloat) : device(Device::cpu(1)) {
    add({{"model.embed_tokens.weight", 0, 40}}, 12, type);
    add({{"model.layers.0.self_attn.q_proj.weight", 0, 12},
         {"model.layers.0.self_attn.k_proj.weight", 12, 4},
         {"model.layers.0.self_attn.v_proj.weight", 16, 4}},
        12, type);
    add({{"model.layers.0.mlp.gate_proj.weight", 0, 90},
         {"model.layers.0.mlp.up_proj.weight", 90, 90}},
        12, type);
    add({{"model.layers.0.mlp.down_proj.weight", 0, 12}}, 90, type);
    norm = at::ones({12});
    parameters.push_back(
        {.parts = {{"model.norm.weight", 0, 12}}, .tensor = &norm, .round_to = type});
    RandomStream random(4, {.step = 1});
    for (const model::Parameter& parameter : parameters)
      if (parameter.matrix)
        parameter.write(
            device, random_matrix(random, parameter.matrix->rows(), parameter.matrix->columns()));
  }

  void add(std::vector<model::Parameter::Part> parts, int64_t columns, at::ScalarType type) {
    const int64_t rows = parts.back().first_row + parts.back().rows;
    weights.push_back(std::make_unique<ops::Weight>(device, rows, columns, type));
    parameters.push_back({.parts = std::move(parts),
                          .matrix = weights.back().get(),
                          .decays = true,
                          .round_to = type});
  }

  model::Gradients gradients(uint64_t step) const {
    RandomStream random(5, {.step = static_cast<uint32_t>(step)});
    model::Gradients made;
    for (const model::Parameter& parameter : parameters) {
      const std::vector<int64_t> shape = parameter.shape();
      made.tensors.push_back(
          random_matrix(random, shape[0], shape.size() == 2 ? shape[1] : 1).reshape(shape));
    }
    return made;
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> all;
    for (const model::Parameter& parameter : parameters) all.push_back(parameter.read(device));
    return all;
  }

  const Device device;
  std::vector<std::unique_ptr<ops::Weight>> weights;
  at::Tensor norm;
  std::vector<model::Parameter> parameters;
};

// The formulas at the top of muon.h in float64, with loops.
class PlainMuon {
 public:
  PlainMuon(const at::Tensor& start, int64_t first, int64_t rows)
      : rows_(static_cast<size_t>(rows)), columns_(static_cast<size_t>(start.size(1))) {
    for (int64_t row = first; row < first + rows; ++row)
      for (int64_t column = 0; column < start.size(1); ++column)
        weights_.push_back(start[row][column].item<double>());
    momentum_.resize(weights_.size());
  }

  void step(std::span<const float> gradient, double clip, double rate, double decay) {
    std::vector<double> x(weights_.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double clipped = clip * gradient[i];
      momentum_[i] = 0.95 * momentum_[i] + 0.05 * clipped;
      x[i] = 0.05 * clipped + 0.95 * momentum_[i];
    }
    const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    for (double& value : x) value /= norm;
    for (int i = 0; i < 5; ++i) x = iterate(x);
    const double size = 0.2 * std::sqrt(static_cast<double>(std::max(rows_, columns_)));
    for (size_t i = 0; i < x.size(); ++i)
      weights_[i] = weights_[i] * (1 - rate * decay) - rate * size * x[i];
  }
  const std::vector<double>& weights() const { return weights_; }

 private:
  // a X + b (X X^T) X + c (X X^T) (X X^T) X
  std::vector<double> iterate(const std::vector<double>& x) const {
    const std::vector<double> once = times_gram(x, x), twice = times_gram(x, once);
    std::vector<double> next(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      next[i] = 3.4445 * x[i] - 4.775 * once[i] + 2.0315 * twice[i];
    return next;
  }
  // (X X^T) Y
  std::vector<double> times_gram(const std::vector<double>& x, const std::vector<double>& y) const {
    std::vector<double> product(y.size());
    for (size_t row = 0; row < rows_; ++row)
      for (size_t other = 0; other < rows_; ++other) {
        double dot = 0;
        for (size_t k = 0; k < columns_; ++k)
          dot += x[row * columns_ + k] * x[other * columns_ + k];
        for (size_t k = 0; k < columns_; ++k)
          product[row * columns_ + k] += dot * y[other * columns_ + k];
      }
    return product;
  }

  const size_t rows_, columns_;
  std::vector<double> weights_, momentum_;
};

TEST(MuonTest, RandomStepsMatchAPlainReference) {
  constexpr double kRate = 1e-3;
  Layer layer;
  const OptimOptions options = muon();
  Optimizer optimizer(layer.parameters, layer.device, options);
  std::vector<PlainMuon> plain;
  for (const model::Parameter& parameter : layer.parameters)
    if (is_hidden_matrix(parameter))
      for (const model::Parameter::Part& part : parameter.parts)
        plain.emplace_back(parameter.read(layer.device), part.first_row, part.rows);
  ASSERT_EQ(plain.size(), 6U);
  for (uint64_t step = 1; step <= 300; ++step) {
    const model::Gradients gradients = layer.gradients(step);
    const double clip = std::min(1.0, options.clip_grad / optimizer.step(gradients, kRate));
    size_t next = 0;
    for (size_t p = 0; p < layer.parameters.size(); ++p) {
      if (!is_hidden_matrix(layer.parameters[p])) continue;
      const at::Tensor values = layer.parameters[p].read(layer.device);
      for (const model::Parameter::Part& part : layer.parameters[p].parts) {
        const at::Tensor own = values.narrow(0, part.first_row, part.rows).contiguous(),
                         gradient = gradients.tensors[p].narrow(0, part.first_row, part.rows);
        PlainMuon& reference = plain[next++];
        reference.step({gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())}, clip,
                       kRate, options.weight_decay);
        double worst = 0;
        for (int64_t i = 0; i < own.numel(); ++i)
          worst = std::max(worst, std::abs(own.data_ptr<float>()[i] -
                                           reference.weights()[static_cast<size_t>(i)]));
        ASSERT_LE(worst, 2e-5) << part.name << " after step " << step;
      }
    }
  }
}

TEST(MuonTest, TheRestIsAdamWs) {
  Layer layer, same;
  Optimizer optimizer(layer.parameters, layer.device, muon());
  OptimOptions options = muon();
  options.optimizer = "AdamW";
  Optimizer adamw(same.parameters, same.device, options);
  for (uint64_t step = 1; step <= 3; ++step) {
    optimizer.step(layer.gradients(step), 0.01);
    adamw.step(same.gradients(step), 0.01);
  }
  for (size_t p = 0; p < layer.parameters.size(); ++p)
    EXPECT_EQ(at::equal(layer.values()[p], same.values()[p]),
              !is_hidden_matrix(layer.parameters[p]))
        << layer.parameters[p].name();
  const int64_t matrices = 20 * 12 + 180 * 12 + 12 * 90;
  EXPECT_EQ(adamw.bytes() - optimizer.bytes(), 4 * matrices) << "Muon has one moment";
}

class SharedMuonTest : public testing::TestWithParam<at::ScalarType> {};

// Three steps of one worker; shared by workers, resumed after one step by another number of them.
TEST_P(SharedMuonTest, WorkersAndResumingChangeNoBit) {
  Layer alone(GetParam());
  Optimizer whole(alone.parameters, alone.device, muon());
  std::vector<std::vector<model::TensorSource>> states;
  for (uint64_t step = 1; step <= 3; ++step) {
    whole.step(alone.gradients(step), 0.01);
    states.push_back(whole.snapshot());
  }
  EXPECT_FALSE(tests::all_equal(alone.values(), Layer(GetParam()).values()));
  for (const int workers : {1, 2, 3, 5})
    for (const uint64_t done : {0, 1}) {
      SCOPED_TRACE(std::to_string(workers) + " workers after step " + std::to_string(done));
      std::vector<int64_t> bytes(static_cast<size_t>(workers));
      run_workers(workers, [&](cluster::Comm& comm) {
        Layer mine(GetParam());
        Optimizer shared(mine.parameters, mine.device, muon(), &comm);
        if (done > 0) shared.load(states[0], 1);
        for (uint64_t step = done + 1; step <= 3; ++step) shared.step(mine.gradients(step), 0.01);
        EXPECT_TRUE(tests::all_equal(mine.values(), alone.values())) << "worker " << comm.rank();
        bytes[static_cast<size_t>(comm.rank())] = shared.bytes();
        const auto state = shared.snapshot();
        if (comm.rank() > 0) return;
        ASSERT_EQ(state.size(), states[2].size());
        for (size_t i = 0; i < state.size(); ++i) {
          EXPECT_EQ(state[i].name, states[2][i].name);
          EXPECT_TRUE(at::equal(state[i].values(), states[2][i].values())) << state[i].name;
        }
      });
      EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), whole.bytes());
    }
}

TEST_P(SharedMuonTest, StepInPartsEqualsAWholeOne) {
  Layer alone(GetParam()), parts(GetParam());
  Optimizer whole(alone.parameters, alone.device, muon()),
      stepwise(parts.parameters, parts.device, muon());
  const double norm = whole.step(alone.gradients(1), 0.01);
  const model::Gradients gradients = parts.gradients(1);
  stepwise.begin_step(norm, 0.01);
  int calls = 0;
  while (stepwise.try_update(gradients, 100)) ++calls;
  stepwise.end_step();
  EXPECT_GT(calls, 4);
  EXPECT_TRUE(tests::all_equal(parts.values(), alone.values()));
}

INSTANTIATE_TEST_SUITE_P(Types, SharedMuonTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& type) { return c10::toString(type.param); });

TEST(MuonTest, StateOfAdamWIsRefusedAndTheReverse) {
  Layer layer;
  const auto before = layer.values();
  for (const bool is_muon : {false, true}) {
    Optimizer optimizer(layer.parameters, layer.device, is_muon ? muon() : OptimOptions{}),
        other(layer.parameters, layer.device, is_muon ? OptimOptions{} : muon());
    EXPECT_THAT(thrown_message<InputError>([&] { optimizer.load(other.snapshot(), 1); }),
                HasSubstr("another model or actor.optim.optimizer"))
        << is_muon;
  }
  EXPECT_TRUE(tests::all_equal(layer.values(), before));
}

TEST(MuonTest, MatricesOfTheLayersAreHidden) {
  for (const std::string& name : kGoldenModels) {
    const auto model = golden_model(name);
    int64_t hidden = 0;
    for (const model::Parameter& parameter : model->parameters()) {
      const std::string first = parameter.name();
      const bool is_projection =
          first.ends_with("q_proj.weight") || first.ends_with("o_proj.weight") ||
          first.ends_with("gate_proj.weight") || first.ends_with("down_proj.weight");
      EXPECT_EQ(is_hidden_matrix(parameter), is_projection) << first;
      hidden += is_hidden_matrix(parameter) ? 1 : 0;
    }
    EXPECT_EQ(hidden, 4 * model->config().layers) << name;
  }
}

}  // namespace
}  // namespace tlt::train
