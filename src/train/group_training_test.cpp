// Workers of a tensor parallel group that train together, each its part of the model: weights, norms
// and states have the bits of one worker that computes all slices.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/policy_shard.h"
#include "model/tape.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/divisible_model.h"
#include "tests/support/forwarding_comm.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"
#include "train/trainer.h"

namespace tlt::train {
namespace {

using tests::tensors_equal;

constexpr int32_t kPrompt = 18;  // a page, which samples share, and two tokens

struct Case {
  model::Family family;
  at::ScalarType type;
  int size;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(tests::name_of(info.param.family)) + "_" +
         std::string(c10::toString(info.param.type)) + "_" + std::to_string(info.param.size);
}

std::unique_ptr<model::PolicyModel> make_model(const Case& of) {
  return tests::make_tiny_model(tests::divisible_config(of.family), of.type, Device::cpu(1));
}

// One worker that computes all slices.
std::unique_ptr<model::PolicyModel> make_whole(const Case& of) {
  auto whole = make_model(of);
  whole->set_slices(of.size);
  return whole;
}

// --- forward and backward of a part ---

struct Pass {
  at::Tensor hidden, logits, d_hidden;
  model::Gradients gradients;
};

// A pack with a shared prefix, and the gradients for random derivatives of its logits. It is long
// enough that bfloat16 does not round away everything that slices change.
Pass run_pass(const model::PolicyModel& model, bool recompute) {
  model::Tape tape(model, recompute);
  const int64_t vocabulary = model.config().vocabulary;
  const auto add = [&](uint32_t name, int32_t count, bool is_suffix) {
    const std::vector<int32_t> tokens = tests::random_tokens(3, name, count, vocabulary);
    is_suffix ? tape.add_suffix(tokens.data(), count) : tape.add_sequence(tokens.data(), count);
  };
  add(0, 32, false);
  add(1, 5, true);
  add(2, 19, true);
  add(3, 201, false);
  const Device& device = model.device();
  Pass pass;
  pass.gradients = model.make_gradients();
  pass.hidden = model.forward(tape).clone();
  const int64_t rows = pass.hidden.size(0);
  pass.logits = device.empty({rows, vocabulary}, at::kFloat);
  model.logits(pass.hidden, pass.logits);
  pass.d_hidden = at::zeros_like(pass.hidden);
  model.logits_backward(pass.hidden, tests::random_tensor({rows, vocabulary}, at::kFloat, 4, 0.1),
                        pass.d_hidden, pass.gradients);
  model.backward(tape, pass.d_hidden, pass.gradients);
  return pass;
}

// What differs between the gradients of a group, gathered, and those of the whole; empty: nothing.
std::string difference_of_gradients(const model::PolicyShard& shard, const Pass& got,
                                    const Pass& want) {
  std::string names;
  for (size_t i = 0; i < want.gradients.tensors.size(); ++i)
    if (!at::equal(shard.gather(i, got.gradients.tensors[i]), want.gradients.tensors[i]))
      names += shard.model().parameters()[i].name() + " ";
  return names;
}

class PolicyShardTest : public testing::TestWithParam<Case> {};

TEST_P(PolicyShardTest, PartsHaveTheBitsOfOneWorkerThatComputesAllSlices) {
  for (const bool recompute : {false, true}) {
    const auto whole = make_whole(GetParam());
    const Pass want = run_pass(*whole, recompute);
    run_workers(GetParam().size, [&](cluster::Comm& comm) {
      const auto model = make_model(GetParam());
      tests::CommRanks ranks(comm);
      const model::PolicyShard shard(*model, ranks);
      const Pass got = run_pass(shard.part(), recompute);
      EXPECT_TRUE(tensors_equal(got.hidden, want.hidden));
      EXPECT_TRUE(tensors_equal(got.logits, want.logits));
      EXPECT_TRUE(tensors_equal(got.d_hidden, want.d_hidden));
      EXPECT_EQ(difference_of_gradients(shard, got, want), "") << "recompute " << recompute;
    });
  }
}

TEST_P(PolicyShardTest, SlicesChangeGradientsByRoundingOnly) {
  const Pass one = run_pass(*make_model(GetParam()), false),
             all = run_pass(*make_whole(GetParam()), false);
  const double tolerance = GetParam().type == at::kFloat ? 1e-4 : 0.1;
  int64_t different = 0;
  for (size_t i = 0; i < one.gradients.tensors.size(); ++i) {
    const at::Tensor &got = all.gradients.tensors[i], &want = one.gradients.tensors[i];
    EXPECT_TRUE(tests::near_of_largest(got, want, tolerance)) << "parameter " << i;
    different += !at::equal(got, want);
  }
  EXPECT_GT(different, 0) << "the slices have no effect, so the other cases show nothing";
}

TEST_P(PolicyShardTest, PartsMakeTheWholeTensor) {
  const auto whole = make_model(GetParam());
  run_workers(GetParam().size, [&](cluster::Comm& comm) {
    const auto model = make_model(GetParam());
    tests::CommRanks ranks(comm);
    const model::PolicyShard shard(*model, ranks);
    int64_t elements = 0, all = 0;
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      const at::Tensor tensor = whole->parameters()[i].read(whole->device());
      const at::Tensor part = shard.part_of(i, tensor);
      EXPECT_TRUE(tensors_equal(part, shard.part().parameters()[i].read(model->device()))) << i;
      EXPECT_TRUE(tensors_equal(shard.gather(i, part), tensor)) << i;
      elements += part.numel();
      all += tensor.numel();
    }
    EXPECT_LT(elements, all * 1.1 / GetParam().size)
        << "more than norms and padding is not divided";
  });
}

TEST_P(PolicyShardTest, TrainedPartsAreWrittenIntoTheModelOfEachRank) {
  Case other = GetParam();
  const auto want = tests::make_tiny_model(tests::divisible_config(other.family), other.type,
                                           Device::cpu(1), /*seed=*/12);
  run_workers(other.size, [&](cluster::Comm& comm) {
    const auto model = make_model(other);
    tests::CommRanks ranks(comm);
    const model::PolicyShard shard(*model, ranks);
    for (size_t i = 0; i < model->parameters().size(); ++i)
      shard.part().parameters()[i].write(
          model->device(), shard.part_of(i, want->parameters()[i].read(want->device())));
    shard.publish();
    EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), tests::weights_of(*want)));
  });
}

// What the comparisons above can see: the sum in another order, and one without a rank's part.
class FaultyComm final : public tests::ForwardingComm {
 public:
  FaultyComm(cluster::Comm& inner, bool leaves_out)
      : ForwardingComm(inner), leaves_out_(leaves_out) {}

  bool is_faulty = false;
  void all_gather(at::Tensor& parts) override {
    ForwardingComm::all_gather(parts);
    if (!is_faulty) return;
    leaves_out_ ? parts.select(0, 1).zero_() : parts.copy_(parts.roll(1, 0));
  }

 private:
  const bool leaves_out_;
};

TEST_P(PolicyShardTest, AnotherOrderAndAMissingPartAreSeen) {
  for (const bool leaves_out : {false, true}) {
    // a + b is b + a, and rounding to bfloat16 may hide an order.
    if (!leaves_out && (GetParam().size == 2 || GetParam().type == at::kBFloat16)) continue;
    run_workers(GetParam().size, [&](cluster::Comm& comm) {
      const auto model = make_model(GetParam());
      FaultyComm faulty(comm, leaves_out);
      tests::CommRanks ranks(faulty);
      const model::PolicyShard shard(*model, ranks);
      model::Tape tape(shard.part(), false);
      const std::vector<int32_t> tokens = tests::random_tokens(3, 0, 32, 98);
      Pass got, right;
      got.gradients = shard.part().make_gradients();
      right.gradients = model->make_gradients();
      tape.add_sequence(tokens.data(), 32);
      const at::Tensor d = tests::random_tensor({32, model->config().hidden}, model->type(), 5);
      shard.part().forward(tape);
      faulty.is_faulty = true;
      shard.part().backward(tape, d, got.gradients);
      faulty.is_faulty = false;
      model::Tape whole_tape(*model, false);
      model->set_slices(comm.size());
      whole_tape.add_sequence(tokens.data(), 32);
      model->forward(whole_tape);
      model->backward(whole_tape, d, right.gradients);
      EXPECT_THAT(difference_of_gradients(shard, got, right),
                  testing::HasSubstr("model.layers.0.mlp.gate_proj.weight"))
          << leaves_out;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PolicyShardTest,
                         testing::Values(Case{model::Family::kQwen2, at::kFloat, 2},
                                         Case{model::Family::kQwen2, at::kBFloat16, 4},
                                         Case{model::Family::kLlama, at::kBFloat16, 2},
                                         Case{model::Family::kLlama, at::kFloat, 4},
                                         Case{model::Family::kQwen3, at::kFloat, 4},
                                         Case{model::Family::kQwen3, at::kBFloat16, 2}),
                         name_of);

// --- the trainer ---

// Three prompts of four samples.
std::vector<TrainSample> make_samples() {
  std::vector<TrainSample> samples;
  for (uint32_t prompt = 0; prompt < 3; ++prompt)
    for (uint32_t i = 0; i < 4; ++i) {
      TrainSample& sample = samples.emplace_back();
      sample.tokens = tests::random_tokens(8, prompt, kPrompt, 98);
      sample.response_begin = kPrompt;
      const std::vector<int32_t> response =
          tests::random_tokens(9, 4 * prompt + i, 3 + 5 * ((prompt + i) % 4), 98);
      sample.tokens.insert(sample.tokens.end(), response.begin(), response.end());
      sample.advantages.assign(response.size(), i % 2 == 0 ? 1.0F : -0.6F);
      sample.rollout_logprobs.assign(response.size(), -3.0F);
      sample.group = prompt;
    }
  return samples;
}

TrainerOptions options() {
  TrainerOptions options;
  options.max_tokens = 60;
  options.optim.lr = 1e-2;
  options.loss.policy_loss.loss_mode = "gpg";  // every token has a gradient, whatever the model
  options.loss.entropy_coeff = 0.01;
  return options;
}

double norm_of(const TrainStats& stats) {
  return std::ranges::find(stats.metrics, "actor/grad_norm", &std::pair<std::string, double>::first)
      ->second;
}

std::vector<at::Tensor> tensors_of(const std::vector<model::TensorSource>& sources) {
  std::vector<at::Tensor> tensors;
  for (const model::TensorSource& source : sources) tensors.push_back(source.values());
  return tensors;
}

// A worker of a run with groups of `of.size`.
struct Member {
  Member(cluster::Comm& comm, const Case& of)
      : members(comm.split(comm.rank() / of.size)),
        replicas(comm.split(comm.rank() % of.size)),
        ranks(*members),
        model(make_model(of)),
        shard(*model, ranks),
        trainer(
            *model, options(), comm,
            {.total_steps = 10, .group = GroupTraining{&shard, members.get(), replicas.get()}}) {}

  const std::unique_ptr<cluster::Comm> members, replicas;
  tests::CommRanks ranks;
  const std::unique_ptr<model::PolicyModel> model;
  const model::PolicyShard shard;
  Trainer trainer;
};

// One worker that trains the whole model.
struct Alone {
  explicit Alone(const Case& of)
      : model(make_whole(of)), trainer(*model, options(), *comm, {.total_steps = 10}) {}

  const std::unique_ptr<cluster::Comm> comm = solo();
  const std::unique_ptr<model::PolicyModel> model;
  Trainer trainer;
};

TrainStats learn(Trainer& trainer) {
  return trainer.update(make_samples(), LossKind::kPolicy, /*samples_per_step=*/4);
}

class GroupTrainingTest : public testing::TestWithParam<Case> {
 protected:
  // `body` for each worker of this many groups.
  static void run(int groups, const std::function<void(cluster::Comm&)>& body) {
    run_workers(groups * GetParam().size, body);
  }
};

TEST_P(GroupTrainingTest, WeightsNormsAndStateHaveTheBitsOfOneWorker) {
  Alone alone(GetParam());
  const auto start = tests::weights_of(*alone.model);
  const TrainStats stats = learn(alone.trainer);
  const auto want = tests::weights_of(*alone.model),
             state = tensors_of(alone.trainer.optimizer().snapshot());
  EXPECT_FALSE(tests::all_equal(want, start)) << "nothing was learned";
  for (const int groups : {1, 2})
    run(groups, [&](cluster::Comm& comm) {
      Member member(comm, GetParam());
      const TrainStats got = learn(member.trainer);
      EXPECT_TRUE(tests::all_equal(tests::weights_of(*member.model), want)) << groups;
      EXPECT_EQ(norm_of(got), norm_of(stats)) << groups;
      EXPECT_EQ(got.metrics, stats.metrics) << groups;
      EXPECT_LT(got.optimizer_bytes,
                1.1 * static_cast<double>(stats.optimizer_bytes) / GetParam().size);
      const auto snapshot = tensors_of(member.trainer.optimizer().snapshot());
      EXPECT_TRUE(tests::all_equal(snapshot, comm.rank() == 0 ? state : std::vector<at::Tensor>()))
          << comm.rank() << " of " << comm.size();
    });
}

// Saved by a group or one worker, and loaded by the other.
TEST_P(GroupTrainingTest, AStateLoadsWithAndWithoutGroups) {
  Alone alone(GetParam());
  learn(alone.trainer);
  const auto saved = alone.trainer.optimizer().snapshot();
  const int64_t steps = alone.trainer.optimizer().steps();
  learn(alone.trainer);
  const auto want = tests::weights_of(*alone.model);
  std::vector<model::TensorSource> from_group;
  run(1, [&](cluster::Comm& comm) {
    Member member(comm, GetParam());
    member.trainer.optimizer().load(saved, steps);
    auto snapshot = member.trainer.optimizer().snapshot();
    learn(member.trainer);
    EXPECT_TRUE(tests::all_equal(tests::weights_of(*member.model), want));
    if (comm.rank() == 0) from_group = std::move(snapshot);
  });
  Alone resumed(GetParam());
  resumed.trainer.optimizer().load(from_group, steps);
  learn(resumed.trainer);
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*resumed.model), want));
}

// Whose gradients are too large, as sums of all workers with the same part.
class OverflowingComm final : public tests::ForwardingComm {
 public:
  using ForwardingComm::all_reduce_sum;
  explicit OverflowingComm(cluster::Comm& inner) : ForwardingComm(inner) {}
  void all_reduce_sum(at::Tensor& tensor) override {
    ForwardingComm::all_reduce_sum(tensor);
    if (tensor.scalar_type() == at::kLong && tensor.dim() == 1) tensor.fill_(int64_t{1} << 42);
  }
};

TEST_P(GroupTrainingTest, AnInvalidGradientOfAnyPartSkipsTheStepOnAllRanks) {
  run(1, [&](cluster::Comm& comm) {
    const auto own = solo();
    OverflowingComm overflowing(*own);
    cluster::Comm& replicas = comm.rank() == 1 ? overflowing : *own;
    tests::CommRanks ranks(comm);
    const auto model = make_model(GetParam());
    const model::PolicyShard shard(*model, ranks);
    const auto start = tests::weights_of(*model);
    Trainer trainer(*model, options(), comm,
                    {.total_steps = 10, .group = GroupTraining{&shard, &comm, &replicas}});
    const TrainStats stats = learn(trainer);
    EXPECT_EQ(stats.skipped_steps, 3);
    EXPECT_THAT(stats.fault, testing::HasSubstr("is not finite or above 4e6"));
    EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), start));
  });
}

TEST_P(GroupTrainingTest, ARequestToStopOnOneRankStopsAll) {
  run(2, [&](cluster::Comm& comm) {
    Member member(comm, GetParam());
    const auto start = tests::weights_of(*member.model);
    int64_t calls = 0;
    member.trainer.set_should_stop([&] { return comm.rank() == 1 && ++calls > 3; });
    EXPECT_TRUE(learn(member.trainer).is_abandoned);
    EXPECT_TRUE(tests::all_equal(tests::weights_of(*member.model), start));
  });
}

TEST_P(GroupTrainingTest, ARankComputesNoPackAlone) {
  run(1, [&](cluster::Comm& comm) {
    Member member(comm, GetParam());
    const auto samples = make_samples();
    EXPECT_THROW(member.trainer.compute_early(std::span(samples).first(4)), Error);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, GroupTrainingTest,
                         testing::Values(Case{model::Family::kQwen2, at::kFloat, 2},
                                         Case{model::Family::kLlama, at::kBFloat16, 2},
                                         Case{model::Family::kQwen3, at::kFloat, 4}),
                         name_of);

}  // namespace
}  // namespace tlt::train
