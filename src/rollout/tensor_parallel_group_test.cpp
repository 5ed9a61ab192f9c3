// SPDX-License-Identifier: Apache-2.0
#include "rollout/tensor_parallel_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/support/comm_ranks.h"
#include "tests/support/divisible_model.h"
#include "tests/support/forwarding_comm.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_comm.h"

namespace tlt::rollout {
namespace {

using tests::divisible_config;
using tests::Rollouts;

struct Case {
  model::Family family;
  at::ScalarType type;
  int size;
};

Rollouts of_prompt(const Rollouts& all, uint32_t prompt) {
  Rollouts some;
  for (const auto& [place, response] : all)
    if (place.first == prompt) some[place] = response;
  return some;
}

std::string difference_of_tokens(Rollouts a, const Rollouts& b) {
  for (auto& [place, response] : a) response.target_forwards = b.at(place).target_forwards;
  return tests::difference(a, b);
}

// Adds the parts of the residual stream in another order than that of the ranks.
class MisplacingComm final : public tests::ForwardingComm {
 public:
  MisplacingComm(cluster::Comm& inner, int64_t hidden) : ForwardingComm(inner), hidden_(hidden) {}

  void all_gather(at::Tensor& parts) override {
    ForwardingComm::all_gather(parts);
    if (parts.size(2) == hidden_) parts.copy_(parts.roll(1, 0));
  }

 private:
  const int64_t hidden_;
};

class TensorParallelGroupTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<model::PolicyModel> make_model() {
    return tests::make_tiny_model(divisible_config(GetParam().family), GetParam().type);
  }

  // Prompts before, at and after page boundaries, whose samples copy the prompt's last page.
  static std::vector<Group> groups() {
    SamplingOptions sampling;
    sampling.max_new_tokens = 14;
    const auto shared = std::make_shared<const SamplingOptions>(sampling);
    std::vector<Group> groups;
    for (const int64_t length : {3, 15, 21})
      groups.push_back(
          {.prompt_id = static_cast<uint32_t>(groups.size()),
           .tokens = tests::random_tokens(2, static_cast<uint32_t>(groups.size()), length, 98),
           .samples = 2,
           .sampling = shared,
           .seed = 5});
    return groups;
  }

  static EngineOptions options(int64_t max_running) {
    EngineOptions options;
    options.max_running = max_running;
    options.max_batch_tokens = 512;
    options.prefill_chunk = 8;
    options.kv_memory_bytes = 1 << 20;
    return options;
  }

  // On one worker that computes all slices.
  static Rollouts run_alone(int64_t slices) {
    const auto model = make_model();
    model->set_slices(slices);
    Engine engine(*model, options(16));
    return tests::run(engine, groups());
  }

  // `body` with the engine's target on the leader of a group, each rank a thread.
  static void run_group(const std::function<void(const TargetModel& target)>& body) {
    train::run_workers(GetParam().size, [&](cluster::Comm& comm) {
      const auto model = make_model();
      TensorParallelGroup group(*model, comm);
      if (!group.leads()) {
        EXPECT_EQ(group.follow(), "done");
        return;
      }
      body({*model, &group});
      group.release("done");
    });
  }
};

TEST_P(TensorParallelGroupTest, HasTheBitsOfOneWorkerThatComputesAllSlices) {
  const Rollouts want = run_alone(GetParam().size);
  run_group([&](const TargetModel& target) {
    Engine engine(target, options(16)), one_by_one(target, options(1));
    EXPECT_EQ(tests::difference(tests::run(engine, groups()), want), "");
    EXPECT_EQ(tests::difference(tests::run(one_by_one, {groups()[1]}), of_prompt(want, 1)), "");
  });
}

TEST_P(TensorParallelGroupTest, SpeculationChangesNoToken) {
  const Rollouts want = run_alone(GetParam().size);
  run_group([&](const TargetModel& target) {
    for (const int64_t max_running : {16, 1}) {
      const bool is_one = max_running == 1;
      Speculation speculation(std::make_unique<tests::OracleDrafter>(want, 98, 0.8, max_running),
                              drafter::Strategy{6, 3, 16}, 98);
      Engine engine(target, options(max_running), nullptr, nullptr, &speculation);
      const Rollouts got = tests::run(engine, is_one ? std::vector{groups()[2]} : groups());
      EXPECT_EQ(difference_of_tokens(got, is_one ? of_prompt(want, 2) : want), "") << max_running;
      EXPECT_GT(speculation.stats().accepted_tokens, 4);
      EXPECT_FALSE(speculation.stats().failed);
    }
  });
}

// With little memory sequences wait, and begin in the pages of others.
TEST_P(TensorParallelGroupTest, PagesThatAreUsedAgainChangeNoToken) {
  const Rollouts want = run_alone(GetParam().size);
  run_group([&](const TargetModel& target) {
    EngineOptions tight = options(16);
    tight.kv_memory_bytes = 4 * target.kv_shape().page_bytes();
    Engine engine(target, tight);
    EXPECT_EQ(difference_of_tokens(tests::run(engine, groups()), want), "");
    EXPECT_EQ(engine.stats().pages, 4);  // six responses need two or three each
  });
}

TEST_P(TensorParallelGroupTest, LogprobsAreThoseOfOneWorkerUpToRounding) {
  const double tolerance = GetParam().type == at::kFloat ? 1e-4 : 0.5;
  const Rollouts want = run_alone(1);
  run_group([&](const TargetModel& target) {
    Engine engine(target, options(16));
    int64_t compared = 0, different = 0;
    for (const auto& [place, got] : tests::run(engine, groups())) {
      const Response& other = want.at(place);
      // After another token the responses are different ones.
      for (size_t i = 0; i < std::min(got.tokens.size(), other.tokens.size()); ++i) {
        if (got.tokens[i] != other.tokens[i]) break;
        EXPECT_NEAR(got.logprobs[i], other.logprobs[i], tolerance);
        different += got.logprobs[i] != other.logprobs[i];
        ++compared;
      }
    }
    EXPECT_GT(compared, 20);
    // Rounding to bfloat16 may hide all of them.
    if (GetParam().type == at::kFloat) {
      EXPECT_GT(different, 0) << "the size has no effect, so the other cases show nothing";
    }
  });
}

// What the comparisons above can see.
TEST_P(TensorParallelGroupTest, OtherWeightsOfARankAndAnotherOrderOfTheSumAreSeen) {
  const Rollouts want = run_alone(GetParam().size);
  for (const bool has_other_weights : {false, true}) {
    if (!has_other_weights && GetParam().size == 2) continue;  // a + b is b + a
    train::run_workers(GetParam().size, [&](cluster::Comm& comm) {
      const bool is_other = has_other_weights && comm.rank() == comm.size() - 1;
      const auto model = tests::make_tiny_model(divisible_config(GetParam().family),
                                                GetParam().type, tests::test_device(),
                                                /*seed=*/is_other ? 12 : 11);
      MisplacingComm misplacing(comm, has_other_weights ? -1 : model->config().hidden);
      TensorParallelGroup group(*model, misplacing);
      if (!group.leads()) return void(group.follow());
      Engine engine(TargetModel(*model, &group), options(16));
      EXPECT_NE(difference_of_tokens(tests::run(engine, groups()), want), "") << has_other_weights;
      group.release();
    });
  }
}

TEST_P(TensorParallelGroupTest, ACacheHasTheHeadsOfItsRank) {
  const kv::KvShape whole = make_model()->kv_shape();
  run_group([&](const TargetModel& target) {
    EXPECT_EQ(target.kv_shape().kv_heads * GetParam().size, whole.kv_heads);
    EXPECT_EQ(target.make_runner(4, 1)->kv_shape().kv_heads, target.kv_shape().kv_heads);
    EngineOptions small = options(1);
    small.kv_memory_bytes = 3 * whole.page_bytes();
    EXPECT_EQ(Engine(target, small).stats().pages, 3 * GetParam().size);
  });
}

TEST_P(TensorParallelGroupTest, NewWeightsAreThoseOfTheModel) {
  std::vector<Rollouts> rollouts;
  for (const bool as_a_group : {false, true})
    train::run_workers(as_a_group ? GetParam().size : 1, [&](cluster::Comm& comm) {
      const auto model = make_model();
      TensorParallelGroup group(*model, comm);
      const auto other =
          tests::make_tiny_model(model->config(), model->type(), tests::test_device(), /*seed=*/12);
      for (size_t i = 0; i < model->parameters().size(); ++i)
        model->parameters()[i].write(model->device(), other->parameters()[i].read(model->device()));
      if (!as_a_group) model->set_slices(GetParam().size);
      group.new_weights();
      if (!group.leads()) return void(group.follow());
      Engine engine(as_a_group ? TargetModel(*model, &group) : TargetModel(*model), options(16));
      rollouts.push_back(tests::run(engine, groups()));
      group.release();
    });
  EXPECT_EQ(tests::difference(rollouts[1], rollouts[0]), "");
  EXPECT_NE(tests::difference(rollouts[1], run_alone(GetParam().size)), "");
}

// Every rank computes the same bits of the residual stream, whatever it is asked for.
TEST_P(TensorParallelGroupTest, AllRanksHaveTheSameHiddenStates) {
  train::run_workers(GetParam().size, [&](cluster::Comm& comm) {
    const auto model = make_model();
    tests::CommRanks ranks(comm);
    model::PolicyShard shard(*model, ranks);
    kv::KvCache cache(model->device(), shard.part().kv_shape(), 2);
    model::Activations activations(*model, 8);
    const std::vector<int32_t> tokens = tests::random_tokens(1, 1, 20, 98);
    const std::vector<ops::PageId> pages = {1, 0};
    ops::Batch batch;
    batch.add(tokens.data(), 20, 0, pages.data());
    const at::Tensor mine = shard.part().forward(batch, cache, activations).cpu().contiguous();
    at::Tensor all = at::empty({comm.size(), mine.size(0), mine.size(1)}, mine.options());
    all.select(0, comm.rank()).copy_(mine);
    comm.all_gather(all);
    for (int rank = 0; rank < comm.size(); ++rank)
      EXPECT_TRUE(tests::tensors_equal(all.select(0, rank), mine)) << rank;
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, TensorParallelGroupTest,
                         ::testing::Values(Case{model::Family::kQwen2, at::kFloat, 2},
                                           Case{model::Family::kLlama, at::kBFloat16, 2},
                                           Case{model::Family::kQwen3, at::kFloat, 4}),
                         [](const auto& info) {
                           return std::string(tests::name_of(info.param.family)) + "_" +
                                  std::string(c10::toString(info.param.type)) + "_" +
                                  std::to_string(info.param.size);
                         });

TEST(TensorParallelSizeTest, AModelThatCannotBeDividedIsRefused) {
  const model::ModelConfig config = divisible_config(model::Family::kQwen2);
  const auto complaint = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const int64_t size : {1, 2, 4})
    EXPECT_EQ(complaint([&] { check_divisible(config, size, "size", "tiny"); }), "accepted");
  EXPECT_EQ(
      complaint([&] { check_divisible(config, 8, "size", "tiny"); }),
      "size is 8, and tiny has 8 heads, 4 KV heads and an intermediate size of 128: each rank "
      "needs as many heads and KV heads as the others, and a multiple of 16 of the "
      "intermediate size; give 4");
  EXPECT_EQ(complaint([&] { model::check_tensor_parallel_size(3, "size"); }),
            "size is 3; give 1, 2, 4 or 8");
}

}  // namespace
}  // namespace tlt::rollout
