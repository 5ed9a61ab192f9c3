// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.h"
#include "tests/support/failing_comm.h"
#include "tests/support/golden_batch.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"

namespace tlt::train {
namespace {

// Position of a golden tensor: the first elements of a parameter of the model.
struct Spot {
  size_t parameter = 0;
  int64_t first = 0;
};

size_t first_that(const model::PolicyModel& model, bool decays) {
  for (size_t p = 0; p < model.parameters().size(); ++p)
    if (model.parameters()[p].decays == decays) return p;
  return 0;
}

// Places the golden tensors one after the other in one parameter that decays and one that does not.
std::map<std::string, Spot> lay_out(const model::PolicyModel& model, const nlohmann::json& golden,
                                    const nlohmann::json& decay) {
  std::map<std::string, Spot> spots;
  std::map<size_t, int64_t> used;
  for (const auto& [name, shape] : golden.at("shapes").items()) {
    const size_t p = first_that(model, decay.at(name) != 0.0);
    int64_t elements = 1;
    for (const auto& size : shape) elements *= size.get<int64_t>();
    spots[name] = {p, used[p]};
    used[p] += elements;
  }
  return spots;
}

at::Tensor slice(const at::Tensor& whole, const Spot& spot, const at::Tensor& like) {
  return whole.flatten().narrow(0, spot.first, like.numel());
}

TEST(OptimizerTest, StepsMatchPyTorch) {
  const auto golden = read_golden("adamw");
  model::SafetensorsFile file(kGolden + "grpo/adamw.safetensors");
  OptimOptions options;
  options.betas = golden.at("options").at("betas").get<std::vector<double>>();
  options.eps = golden.at("options").at("eps");
  options.clip_grad = golden.at("options").at("clip_grad");
  options.weight_decay = 0.1;
  for (const auto& test : golden.at("cases")) {
    const std::string prefix = test.at("name").get<std::string>() + "/";
    const auto model = golden_model("qwen2_tied");
    const auto spots = lay_out(*model, golden, test.at("weight_decay"));
    for (const auto& [name, spot] : spots) {
      at::Tensor values = model->parameters()[spot.parameter].read(model->device());
      const at::Tensor start = file.read("start/" + name);
      slice(values, spot, start).copy_(start.flatten());
      model->parameters()[spot.parameter].write(model->device(), values);
    }
    Optimizer optimizer(*model, options);
    for (int64_t step = 1; step <= golden.at("steps").get<int64_t>(); ++step) {
      model::Gradients gradients = model->make_gradients();
      for (const auto& [name, spot] : spots) {
        const at::Tensor gradient = file.read("grad" + std::to_string(step) + "/" + name);
        slice(gradients.tensors[spot.parameter], spot, gradient).copy_(gradient.flatten());
      }
      const double norm = optimizer.step(gradients, golden.at("options").at("lr"));
      EXPECT_NEAR(norm, test.at("grad_norms")[static_cast<size_t>(step - 1)].get<double>(),
                  1e-5 * norm);
      for (const auto& [name, spot] : spots) {
        const at::Tensor want =
            file.read(prefix + "step" + std::to_string(step) + "/" + name).flatten();
        const at::Tensor got =
            slice(model->parameters()[spot.parameter].read(model->device()), spot, want);
        EXPECT_LE((got - want).abs().max().item<double>(), 2e-6)
            << prefix << name << " step " << step;
      }
    }
    std::map<std::string, at::Tensor> state;
    for (const auto& [name, tensor] : optimizer.state()) state[name] = tensor;
    for (const auto& [name, spot] : spots)
      for (const auto& [ours, torchs] :
           {std::pair("first_moment.", "exp_avg/"), std::pair("second_moment.", "exp_avg_sq/")}) {
        const at::Tensor want = file.read(prefix + torchs + name).flatten();
        const at::Tensor got =
            slice(state.at(ours + model->parameters()[spot.parameter].name()), spot, want);
        EXPECT_LE((got - want).abs().max().item<double>(), 2e-6) << prefix << torchs << name;
      }
  }
}

model::Gradients made_up_gradients(const model::PolicyModel& model, double scale) {
  model::Gradients gradients = model.make_gradients();
  for (at::Tensor& tensor : gradients.tensors)
    tensor.copy_(
        (at::arange(tensor.numel(), at::kFloat) * 0.37F).sin().mul(scale).reshape(tensor.sizes()));
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(OptimizerTest, NumberOfThreadsChangesNoBit) {
  const auto one = golden_model("llama_tied", 1), two = golden_model("llama_tied", 2);
  Optimizer first(*one, {}), second(*two, {});
  for (int step = 0; step < 3; ++step)
    EXPECT_EQ(first.step(made_up_gradients(*one, 0.1), 0.01),
              second.step(made_up_gradients(*two, 0.1), 0.01));
  expect_equal(tests::weights_of(*one), tests::weights_of(*two));
}

TEST(OptimizerTest, MasterWeightsKeepWhatBfloat16Rounds) {
  const auto model =
      model::load_policy(kGolden + "models/llama_tied", Device::cpu(1), at::kBFloat16);
  OptimOptions options;
  options.weight_decay = 0;
  Optimizer optimizer(*model, options);
  const auto start = tests::weights_of(*model);
  optimizer.step(made_up_gradients(*model, 1), 1e-7);
  // For a weight above 1e-3 the step is less than half of bfloat16's last place.
  const auto after = tests::weights_of(*model);
  for (size_t i = 0; i < start.size(); ++i)
    EXPECT_TRUE(at::equal(after[i].masked_select(start[i].abs() > 1e-3),
                          start[i].masked_select(start[i].abs() > 1e-3)))
        << i;
  bool moved = false;
  for (const auto& [name, tensor] : optimizer.state())
    if (name == "master." + model->parameters()[0].name()) moved = !at::equal(tensor, start[0]);
  EXPECT_TRUE(moved);
  for (int step = 0; step < 3; ++step) optimizer.step(made_up_gradients(*model, 1), 1e-2);
  EXPECT_FALSE(at::equal(tests::weights_of(*model)[0], start[0]));
}

TEST(OptimizerTest, LoadedStateContinuesBitForBit) {
  const auto straight = golden_model("qwen3_tied_head32"),
             resumed = golden_model("qwen3_tied_head32");
  Optimizer first(*straight, {});
  first.step(made_up_gradients(*straight, 1), 0.01);
  std::vector<std::pair<std::string, at::Tensor>> kept;
  for (const auto& [name, tensor] : first.state()) kept.emplace_back(name, tensor.clone());
  first.step(made_up_gradients(*straight, 0.3), 0.01);

  Optimizer second(*resumed, {});
  second.load(kept, 1);
  EXPECT_EQ(second.steps(), 1);
  second.step(made_up_gradients(*resumed, 0.3), 0.01);
  expect_equal(tests::weights_of(*resumed), tests::weights_of(*straight));
}

TEST(OptimizerTest, StateOfAnotherModelIsRejected) {
  const auto model = golden_model("llama_tied"), other = golden_model("qwen2_tied");
  Optimizer optimizer(*model, {}), theirs(*other, {});
  const auto before = tests::weights_of(*model);
  EXPECT_THROW(optimizer.load(theirs.state(), 1), InputError);
  auto state = Optimizer(*model, {}).state();
  state.back().second = at::zeros({3});
  state.front().second = at::zeros_like(state.front().second);
  EXPECT_THROW(optimizer.load(state, 1), InputError);
  expect_equal(tests::weights_of(*model), before);
  EXPECT_EQ(optimizer.steps(), 0);
}

// Parameters with many rows, with few long ones, and smaller than a worker's part.
struct Odds {
  explicit Odds(at::ScalarType type) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {70}, {kMany, 16}, {3, kLong}, {1}, {130, 8}, {64}, {65, 1000}}) {
      const at::Tensor values = waves(sizes, 0.61F).to(type);
      tables.push_back(sizes.size() == 2 ? values : values.to(at::kFloat));
    }
    for (at::Tensor& table : tables)
      parameters.push_back({.parts = {{"p" + std::to_string(parameters.size()), 0, table.size(0)}},
                            .tensor = &table,
                            .decays = table.dim() == 2,
                            .round_to = type});
  }
  model::Gradients gradients(int step) const {
    model::Gradients made;
    for (const at::Tensor& table : tables)
      made.tensors.push_back(waves(table.sizes(), 0.37F + static_cast<float>(step)));
    return made;
  }
  static at::Tensor waves(at::IntArrayRef sizes, float step) {
    const int64_t elements =
        std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    return (at::arange(elements, at::kFloat) * step).sin().reshape(sizes);
  }

  static constexpr int64_t kMany = 70'000, kLong = 100'000;
  std::vector<at::Tensor> tables;
  std::vector<model::Parameter> parameters;
};

void expect_equal(const std::vector<model::TensorSource>& got,
                  const std::vector<model::TensorSource>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_TRUE(at::equal(got[i].values(), want[i].values())) << got[i].name;
  }
}

class SharedStateTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(SharedStateTest, SharingTheStateChangesNoBit) {
  constexpr int kSteps = 2;
  OptimOptions options;
  options.weight_decay = 0.1;
  const Device device = Device::cpu(1);
  Odds alone(GetParam());
  Optimizer whole(alone.parameters, device, options);
  std::vector<double> norms;
  for (int step = 0; step < kSteps; ++step)
    norms.push_back(whole.step(alone.gradients(step), 0.01));
  EXPECT_FALSE(tests::all_equal(alone.tables, Odds(GetParam()).tables));
  for (const int workers : {1, 2, 3}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    std::vector<int64_t> bytes(static_cast<size_t>(workers));
    run_workers(workers, [&](cluster::Comm& comm) {
      Odds mine(GetParam());
      cluster::FailingComm counted(comm, /*failing_call=*/100);
      Optimizer shared(mine.parameters, device, options, &counted);
      for (int step = 0; step < kSteps; ++step)
        EXPECT_EQ(shared.step(mine.gradients(step), 0.01), norms[static_cast<size_t>(step)]);
      // The norm, and the weights of each worker, of several parameters together.
      EXPECT_LE(counted.calls(), kSteps * (1 + 2 + workers));
      EXPECT_TRUE(tests::all_equal(mine.tables, alone.tables)) << "worker " << comm.rank();
      EXPECT_EQ(shared.steps(), kSteps);
      bytes[static_cast<size_t>(comm.rank())] = shared.bytes();
      const auto snapshot = shared.snapshot();
      if (comm.rank() == 0) expect_equal(snapshot, whole.snapshot());
      EXPECT_EQ(snapshot.empty(), comm.rank() != 0);
      EXPECT_THROW(shared.state(), Error);
    });
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), whole.bytes());
    // All long rows belong to one worker.
    EXPECT_LE(*std::ranges::max_element(bytes), whole.bytes() / workers + 12 * 3 * Odds::kLong);
  }
}

// Those of other workers may be anything: here NaN.
TEST_P(SharedStateTest, NeedsTheGradientsOfItsShareAndItsChunks) {
  const Device device = Device::cpu(1);
  Odds alone(GetParam());
  Optimizer whole(alone.parameters, device, {});
  const double norm = whole.step(alone.gradients(0), 0.01);
  for (const int workers : {2, 3, 5})
    run_workers(workers, [&](cluster::Comm& comm) {
      Odds mine(GetParam());
      Optimizer shared(mine.parameters, device, {}, &comm);
      const auto flat = [](const model::Gradients& gradients) {
        std::vector<at::Tensor> all;
        for (const at::Tensor& tensor : gradients.tensors) all.push_back(tensor.view(-1));
        return at::cat(all);
      };
      const ElementRange share = shared.shards()->share_of(comm.rank());
      const int64_t end = shared.shards()->chunk_end_of(comm.rank()).last;
      const at::Tensor given = flat(mine.gradients(0));
      given.slice(0, 0, share.first).fill_(NAN);
      given.slice(0, end).fill_(NAN);
      model::Gradients gradients;
      int64_t begin = 0;
      for (const at::Tensor& table : mine.tables) {
        gradients.tensors.push_back(given.narrow(0, begin, table.numel()).view(table.sizes()));
        begin += table.numel();
      }
      EXPECT_EQ(shared.step(gradients, 0.01), norm) << comm.rank() << " of " << workers;
      EXPECT_TRUE(tests::all_equal(mine.tables, alone.tables)) << "worker " << comm.rank();
    });
}

TEST_P(SharedStateTest, StepInPartsEqualsAWholeOne) {
  const Device device = Device::cpu(1);
  Odds alone(GetParam());
  Optimizer whole(alone.parameters, device, {});
  const double norm = whole.step(alone.gradients(0), 0.01);
  run_workers(3, [&](cluster::Comm& comm) {
    Odds mine(GetParam());
    Optimizer shared(mine.parameters, device, {}, &comm);
    const model::Gradients gradients = mine.gradients(0);
    shared.begin_step(norm, 0.01);
    int parts = 0;
    while (shared.try_update(gradients, 50'000)) ++parts;
    shared.end_step();
    EXPECT_GT(parts, 1);
    EXPECT_TRUE(tests::all_equal(mine.tables, alone.tables)) << "worker " << comm.rank();
  });
}

TEST_P(SharedStateTest, StateLoadsOnAnyNumberOfWorkers) {
  const Device device = Device::cpu(1);
  Odds alone(GetParam());
  Optimizer whole(alone.parameters, device, {});
  whole.step(alone.gradients(0), 0.01);
  const auto first = whole.snapshot();
  whole.step(alone.gradients(1), 0.01);
  for (const int workers : {1, 2, 3}) {
    std::vector<model::TensorSource> saved;
    run_workers(workers, [&](cluster::Comm& comm) {
      Odds mine(GetParam());
      Optimizer shared(mine.parameters, device, {}, &comm);
      shared.load(first, 1);
      shared.step(mine.gradients(1), 0.01);
      EXPECT_TRUE(tests::all_equal(mine.tables, alone.tables)) << "worker " << comm.rank();
      auto snapshot = shared.snapshot();
      if (comm.rank() == 0) saved = std::move(snapshot);
    });
    Odds after(GetParam());
    Optimizer resumed(after.parameters, device, {});
    resumed.load(saved, 2);
    EXPECT_TRUE(tests::all_equal(after.tables, alone.tables));
    expect_equal(resumed.snapshot(), whole.snapshot());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SharedStateTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& type) { return c10::toString(type.param); });

TEST(OptimizerTest, GradientWithoutAFiniteNormIsAnError) {
  const auto model = golden_model("llama_tied");
  Optimizer optimizer(*model, {});
  model::Gradients gradients = model->make_gradients();
  gradients.tensors[0].data_ptr<float>()[0] = NAN;
  EXPECT_THROW(optimizer.step(gradients, 0.1), Error);
}

}  // namespace
}  // namespace tlt::train
