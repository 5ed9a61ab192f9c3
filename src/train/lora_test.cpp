// SPDX-License-Identifier: Apache-2.0
#include "train/lora.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/check.h"
#include "cluster/launch.h"
#include "tests/support/dense_model.h"
#include "tests/support/golden_batch.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_model.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

using model::Family;
using ::testing::HasSubstr;
using tests::random_tensor;
using tests::tensors_near;

// The values of all parameters, byte by byte: +0 is not -0.
std::map<std::string, std::string> bytes_of(const model::PolicyModel& model) {
  std::map<std::string, std::string> bytes;
  for (const model::Parameter& parameter : model.parameters())
    for (const model::Parameter::Part& part : parameter.parts) {
      const at::Tensor values = parameter.read(model.device(), part).contiguous();
      bytes[part.name].assign(static_cast<const char*>(values.data_ptr()), values.nbytes());
    }
  return bytes;
}

std::map<std::string, at::Tensor> tensors_of(const LoraAdapter& adapter) {
  std::map<std::string, at::Tensor> tensors;
  for (const model::Parameter& parameter : adapter.parameters())
    tensors[parameter.name()] = parameter.tensor->clone();
  return tensors;
}

// Sets A and B to non-zero values and merges.
void fill(LoraAdapter& adapter, double scale = 0.3) {
  uint32_t name = 100;
  for (const model::Parameter& parameter : adapter.parameters())
    parameter.tensor->copy_(random_tensor(parameter.shape(), at::kFloat, ++name, scale));
  adapter.merge();
}

// "model.layers.0.mlp.up_proj.weight" for the name of either factor.
std::string weight_of(const std::string& name) {
  const std::string inner = name.substr(std::strlen("base_model.model."));
  return inner.substr(0, inner.find(".lora_")) + ".weight";
}

// The gradients of A and B, by autograd in float64 through base + s B A.
std::map<std::string, at::Tensor> autograd_gradients(const model::PolicyModel& base,
                                                     const LoraAdapter& adapter,
                                                     const std::vector<std::vector<int32_t>>& rows,
                                                     const std::vector<at::Tensor>& d_hidden,
                                                     double scale) {
  tests::DenseModel dense(base);
  std::map<std::string, at::Tensor> leaves;
  for (const auto& [name, value] : tensors_of(adapter))
    leaves[name] = value.to(at::kDouble).requires_grad_(true);
  for (const auto& [name, a] : leaves) {
    const size_t at = name.find("lora_A");
    if (at == std::string::npos) continue;
    const at::Tensor b = leaves.at(std::string(name).replace(at, 6, "lora_B"));
    for (const model::Parameter& parameter : base.parameters())
      for (const model::Parameter::Part& part : parameter.parts)
        if (part.name == weight_of(name))
          dense.replace(part.name, parameter.read(base.device(), part).to(at::kDouble) +
                                       scale * at::matmul(b, a));
  }
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < rows.size(); ++i)
    loss = loss + (dense.hidden(rows[i]) * d_hidden[i].to(at::kDouble)).sum();
  loss.backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, leaf] : leaves) gradients[name] = leaf.grad();
  return gradients;
}

class LoraGradientTest : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType>> {};

TEST_P(LoraGradientTest, MatchesAutogradInFloat64) {
  const auto [family, type] = GetParam();
  const model::ModelConfig config = tests::tiny_config(family);
  for (const LoraConfig& lora :
       {LoraConfig{.rank = 3, .alpha = 5},  // an odd rank
        LoraConfig{
            .rank = 8, .alpha = 4, .use_rslora = true, .targets = {"k_proj", "down_proj"}}}) {
    const auto model = tests::make_tiny_model(config, type),
               base = tests::make_tiny_model(config, type);
    LoraAdapter adapter(*model, lora, 1);
    fill(adapter, 0.05);

    std::vector<std::vector<int32_t>> rows;
    std::vector<at::Tensor> d_hidden;
    model::Tape tape(*model, /*recompute=*/false);
    for (const int length : {9, 30}) {
      rows.push_back(tests::random_tokens(3, static_cast<uint32_t>(length), length, 100));
      tape.add_sequence(rows.back().data(), length);
      d_hidden.push_back(random_tensor({length, config.hidden}, type, 50 + rows.size()));
    }
    model->forward(tape);
    model::Gradients gradients = make_gradients(model->device(), adapter.parameters());
    model::Gradients routed = adapter.route(gradients);
    for (const at::Tensor& tensor : routed.tensors) EXPECT_FALSE(tensor.defined());
    model->backward(tape, at::cat(d_hidden), routed);

    const auto want = autograd_gradients(*base, adapter, rows, d_hidden, lora.scale());
    const auto twice = autograd_gradients(*base, adapter, rows, d_hidden, 2 * lora.scale());
    ASSERT_EQ(want.size(), adapter.parameters().size());
    for (size_t i = 0; i < gradients.tensors.size(); ++i) {
      const std::string name = adapter.parameters()[i].name();
      const auto error = [&](const at::Tensor& truth) {
        return ((gradients.tensors[i] - truth).norm() / truth.norm()).item<double>();
      };
      EXPECT_GT(want.at(name).norm().item<double>(), 0) << name;
      EXPECT_LT(error(want.at(name)), type == at::kFloat ? 2e-5 : 5e-2) << name;
      EXPECT_GT(error(twice.at(name)), 0.2) << name << ": a wrong scale is not noticed";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LoraGradientTest,
                         ::testing::Combine(::testing::Values(Family::kQwen2, Family::kQwen3,
                                                              Family::kLlama),
                                            ::testing::Values(at::kFloat, at::kBFloat16)));

TEST(LoraTest, MergedWeightsAreBasePlusScaleTimesProduct) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto model = tests::make_tiny_model(tests::tiny_config(Family::kQwen2), type),
               base = tests::make_tiny_model(tests::tiny_config(Family::kQwen2), type);
    const LoraConfig config{.rank = 5, .alpha = 7, .targets = {"v_proj", "gate_proj", "o_proj"}};
    LoraAdapter adapter(*model, config, 1);
    fill(adapter);
    const auto factors = tensors_of(adapter);
    int changed = 0;
    for (size_t p = 0; p < model->parameters().size(); ++p)
      for (const model::Parameter::Part& part : model->parameters()[p].parts) {
        const auto read = [&](const model::PolicyModel& m) {
          return m.parameters()[p].read(m.device(), part).to(at::kDouble);
        };
        at::Tensor want = read(*base);
        for (const auto& [name, a] : factors)
          if (name.find("lora_A") != std::string::npos && weight_of(name) == part.name) {
            const at::Tensor b =
                factors.at(std::string(name).replace(name.find("lora_A"), 6, "lora_B"));
            want = want + 7.0 / 5.0 * at::matmul(b.to(at::kDouble), a.to(at::kDouble));
            ++changed;
          }
        // bfloat16: rounded once, so half a unit in the last place.
        EXPECT_TRUE(tensors_near(read(*model), want, type == at::kFloat ? 1e-6 : 4e-3))
            << part.name;
      }
    EXPECT_EQ(changed, 6);
  }
}

TEST(LoraTest, NewAdapterChangesNoBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto model = tests::make_tiny_model(tests::tiny_config(Family::kQwen3), type);
    const model::Parameter& matrix =
        find(model->parameters(), "model.layers.0.mlp.down_proj.weight");
    at::Tensor values = matrix.read(model->device());
    values[0].fill_(-0.0);
    matrix.write(model->device(), values);
    const auto before = bytes_of(*model);
    LoraAdapter adapter(*model, {.rank = 4}, 1);
    EXPECT_EQ(bytes_of(*model), before);
    fill(adapter);
    EXPECT_NE(bytes_of(*model), before);
    for (const model::Parameter& parameter : adapter.parameters())
      if (parameter.name().find("lora_B") != std::string::npos) parameter.tensor->zero_();
    adapter.merge();
    EXPECT_EQ(bytes_of(*model), before);
  }
}

TEST(LoraTest, InitializesLikePeft) {
  const auto model = tests::make_tiny_model(tests::tiny_config(Family::kQwen2), at::kFloat);
  const auto tensors = tensors_of(LoraAdapter(*model, {.rank = 64}, 1)),
             same = tensors_of(LoraAdapter(*model, {.rank = 64}, 1)),
             other = tensors_of(LoraAdapter(*model, {.rank = 64}, 2));
  std::set<float> firsts;
  for (const auto& [name, values] : tensors) {
    EXPECT_TRUE(at::equal(values, same.at(name))) << name;
    if (name.find("lora_B") != std::string::npos) {
      EXPECT_EQ(values.abs().max().item<float>(), 0) << name;
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(values.size(1)));
    EXPECT_LE(values.abs().max().item<double>(), bound) << name;
    EXPECT_NEAR(values.std().item<double>(), bound / std::sqrt(3), 0.05 * bound) << name;
    EXPECT_NEAR(values.mean().item<double>(), 0, 0.05 * bound) << name;
    EXPECT_FALSE(at::equal(values, other.at(name))) << name;
    firsts.insert(values[0][0].item<float>());
  }
  EXPECT_EQ(firsts.size(), 14U) << "some modules start with equal values";
}

TEST(LoraTest, TargetsAreSuffixesOfModuleNames) {
  const auto model = tests::make_tiny_model(tests::tiny_config(Family::kLlama), at::kFloat);
  const auto count = [&](std::vector<std::string> targets) {
    return LoraAdapter(*model, {.rank = 2, .targets = std::move(targets)}, 1).parameters().size();
  };
  EXPECT_EQ(count({"all-linear"}), 28U);
  EXPECT_EQ(count({"q_proj", "mlp.up_proj"}), 8U);
  EXPECT_EQ(count({"layers.1.self_attn.o_proj"}), 2U);
  EXPECT_EQ(count({"model.layers.0.self_attn.q_proj"}), 2U);
  const auto complaint = [&](LoraConfig config) {
    return thrown_message<InputError>([&] { LoraAdapter(*model, config, 1); });
  };
  EXPECT_THAT(complaint({.targets = {"lm_head"}}), HasSubstr("has 'lm_head'; use all-linear"));
  EXPECT_THAT(complaint({.targets = {"proj"}}), HasSubstr("has 'proj'; use"));
  EXPECT_THAT(complaint({.targets = {"layers.2.q_proj"}}), HasSubstr("no such module"));
  EXPECT_THAT(complaint({.targets = {}}), HasSubstr("target_modules is empty"));
  EXPECT_THAT(complaint({.rank = 0}), HasSubstr("the rank is 0"));
  EXPECT_THAT(complaint({.alpha = 0}), HasSubstr("lora_alpha is 0"));
}

// ---- in training

TrainerOptions some_options() {
  TrainerOptions options;
  options.max_tokens = 40;  // the golden samples make five packs
  options.optim.lr = 1e-2;
  options.optim.weight_decay = 0.1;
  return options;
}

// A model, an adapter and a trainer after `steps` steps.
struct Learner {
  Learner(cluster::Comm& comm, int steps, const std::string& name = "qwen2_tied", int threads = 1)
      : model(golden_model(name, threads)),
        adapter(*model, {.rank = 3, .alpha = 6, .targets = {"q_proj", "o_proj", "up_proj"}}, 1),
        trainer(*model, some_options(), comm, {.total_steps = 10, .adapter = &adapter}) {
    learn(steps);
  }
  void learn(int steps) {
    const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
    for (int step = 0; step < steps; ++step)
      stats = trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
  }

  const std::unique_ptr<model::PolicyModel> model;
  LoraAdapter adapter;
  Trainer trainer;
  TrainStats stats;
};

TEST(LoraTrainerTest, OnlyTheAdapterChanges) {
  const auto comm = solo();
  Learner learner(*comm, 0);
  const auto before = bytes_of(*learner.model);
  const auto adapter = tensors_of(learner.adapter);
  const std::string checksum = learner.adapter.base_checksum();
  learner.learn(3);
  EXPECT_EQ(learner.adapter.base_checksum(), checksum);
  for (const auto& [name, bytes] : bytes_of(*learner.model)) {
    const bool is_target = name.find("q_proj.weight") != std::string::npos ||
                           name.find("o_proj") != std::string::npos ||
                           name.find("up_proj") != std::string::npos;
    EXPECT_EQ(bytes != before.at(name), is_target) << name;
  }
  for (const auto& [name, values] : tensors_of(learner.adapter))
    EXPECT_FALSE(at::equal(values, adapter.at(name))) << name << " did not change";
  // Master weights and moments are those of the adapter only.
  const auto state = learner.trainer.optimizer().state();
  EXPECT_EQ(state.size(), 3 * learner.adapter.parameters().size());
  for (const auto& [name, tensor] : state) EXPECT_THAT(name, HasSubstr(".lora_"));

  // The negative control: a frozen parameter that changes.
  const model::Parameter& norm = model::find(learner.model->parameters(), "model.norm.weight");
  norm.write(learner.model->device(), norm.read(learner.model->device()) + 1e-3);
  EXPECT_NE(learner.adapter.base_checksum(), checksum);
}

TEST(LoraTrainerTest, WorkersAndThreadsChangeNoBit) {
  const auto comm = solo();
  const Learner alone(*comm, 3), threads(*comm, 3, "qwen2_tied", 2);
  const auto want = bytes_of(*alone.model);
  EXPECT_EQ(bytes_of(*threads.model), want);
  for (const int workers : {2, 3}) {
    std::vector<std::map<std::string, std::string>> got(static_cast<size_t>(workers));
    run_workers(workers, [&](cluster::Comm& comm) {
      got[static_cast<size_t>(comm.rank())] = bytes_of(*Learner(comm, 3).model);
    });
    for (const auto& bytes : got) EXPECT_EQ(bytes == want, true) << workers;
  }
}

TEST(LoraTrainerTest, ResumesFromASavedStateBitForBit) {
  const auto comm = solo();
  Learner straight(*comm, 2), resumed(*comm, 0);
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const auto& [name, tensor] : straight.trainer.optimizer().state())
    state.emplace_back(name, tensor.clone());
  resumed.trainer.optimizer().load(state, straight.trainer.optimizer().steps());
  resumed.adapter.merge();
  EXPECT_EQ(bytes_of(*resumed.model), bytes_of(*straight.model));
  straight.learn(2);
  resumed.learn(2);
  EXPECT_EQ(bytes_of(*resumed.model), bytes_of(*straight.model));
}

TEST(LoraTrainerTest, LearnsDemonstrations) {
  const auto comm = solo();
  const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  const auto model = golden_model("qwen2_tied");
  LoraAdapter adapter(*model, {.rank = 4, .alpha = 8}, 1);
  TrainerOptions options;
  options.optim.lr = 1e-2;
  Trainer trainer(*model, options, *comm, {.total_steps = 60, .adapter = &adapter});
  const auto loss = [](const TrainStats& stats) {
    for (const auto& [name, value] : stats.metrics)
      if (name == "train/loss") return value;
    return std::nan("");
  };
  const double first = loss(trainer.update(samples, LossKind::kSupervised));
  double last = first;
  for (int step = 0; step < 40; ++step) last = loss(trainer.update(samples, LossKind::kSupervised));
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace
}  // namespace tlt::train
