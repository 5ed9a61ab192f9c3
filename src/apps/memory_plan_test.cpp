// SPDX-License-Identifier: Apache-2.0
#include "apps/memory_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using simulate::find_model;
using ::testing::HasSubstr;
using ::testing::Not;

double bytes_of(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryPart& part : plan.parts)
    if (part.name.starts_with(name)) return part.bytes;
  ADD_FAILURE() << name;
  return 0;
}

// Parameters by hand from config.json, norms and biases left out: layers x (attention + MLP) and
// the embedding, twice where the LM head is not tied.
TEST(MemoryPlanTest, PublishedModelsTakeTheirBytes) {
  struct Case {
    const char* name;
    double parameters, staged;  // staged: of a layer and the embedding
    double kv_of_token;
  };
  for (const Case& known :
       {Case{"Qwen2.5-7B", 28.0 * (3584 * 128 * 64 + 3 * 3584 * 18944) + 2 * 152064.0 * 3584,
             3584 * 128 * 64 + 3.0 * 3584 * 18944 + 152064.0 * 3584, 28.0 * 2 * 4 * 128 * 2},
        Case{"Qwen3-8B", 36.0 * (4096 * 128 * 80 + 3 * 4096 * 12288) + 2 * 151936.0 * 4096,
             4096 * 128 * 80 + 3.0 * 4096 * 12288 + 151936.0 * 4096, 36.0 * 2 * 8 * 128 * 2},
        Case{"Qwen2.5-32B", 64.0 * (5120 * 128 * 96 + 3.0 * 5120 * 27648) + 2 * 152064.0 * 5120,
             5120 * 128 * 96 + 3.0 * 5120 * 27648 + 152064.0 * 5120, 64.0 * 2 * 8 * 128 * 2},
        Case{"Llama-70B", 80.0 * (8192 * 128 * 144 + 3.0 * 8192 * 28672) + 2 * 128256.0 * 8192,
             8192 * 128 * 144 + 3.0 * 8192 * 28672 + 128256.0 * 8192, 80.0 * 2 * 8 * 128 * 2}}) {
    const MemoryPlan plan = plan_memory(find_model(known.name), {.length = 1000, .sequences = 3});
    EXPECT_DOUBLE_EQ(bytes_of(plan, "weights"), 2 * known.parameters) << known.name;
    EXPECT_DOUBLE_EQ(bytes_of(plan, "gradients of a layer"), 4 * known.staged) << known.name;
    EXPECT_DOUBLE_EQ(bytes_of(plan, "gradient sums"), 8 * known.parameters) << known.name;
    EXPECT_DOUBLE_EQ(plan.host_bytes(), 12 * known.parameters) << known.name;
    EXPECT_DOUBLE_EQ(bytes_of(plan, "KV cache"), 3 * 1024 * known.kv_of_token)
        << known.name << ": 63 pages of 16 positions, and one for a copy";
    EXPECT_DOUBLE_EQ(plan.checkpoint_bytes, 14 * known.parameters) << known.name;
  }
}

// docs/memory.md: the row with gradient checkpointing of its worked example.
TEST(MemoryPlanTest, ActivationsAreThoseOfThePage) {
  const MemoryPlan plan = plan_memory(find_model("Qwen2.5-7B"), {.length = 4096});
  EXPECT_NEAR(bytes_of(plan, "activations"), 2.1e9, 0.15e9);
}

// On the CPU rollouts and update take turns; with a card both are there.
TEST(MemoryPlanTest, OnTheCpuTheLargestPhaseCounts) {
  const auto& model = find_model("Qwen2.5-7B");
  for (const int64_t sequences : {1, 4096}) {
    const MemoryPlan plan = plan_memory(model, {.length = 4096, .sequences = sequences});
    const double cache = bytes_of(plan, "KV cache"),
                 update = bytes_of(plan, "activations") + bytes_of(plan, "gradient sums");
    EXPECT_EQ(cache > update, sequences > 1);
    EXPECT_DOUBLE_EQ(plan.device_bytes() + plan.host_bytes() - plan.cpu_bytes(),
                     std::min(cache, update));
  }
  const MemoryPlan plain = plan_memory(model, {}), critic = plan_memory(model, {.critic = true});
  EXPECT_LT(critic.cpu_bytes() - plain.cpu_bytes(), 14.5 * model.parameters())
      << "its sums and activations are free when the policy is updated";
}

TEST(MemoryPlanTest, WorkersShareTheOptimizerIfTheyAreTold) {
  const auto& model = find_model("Qwen2.5-7B");
  const MemoryPlan one = plan_memory(model, {}), four = plan_memory(model, {.workers = 4}),
                   shared = plan_memory(model, {.workers = 4, .distributed_optimizer = true});
  EXPECT_EQ(four.host_bytes(), one.host_bytes());
  EXPECT_DOUBLE_EQ(bytes_of(shared, "master"), bytes_of(one, "master") / 4);
  EXPECT_EQ(shared.device_bytes(), one.device_bytes());
  EXPECT_EQ(four.reduced_sum_bytes, bytes_of(one, "gradient sums"));
  EXPECT_DOUBLE_EQ(shared.reduced_sum_bytes, bytes_of(one, "gradient sums") / 4);
  const std::vector<std::string> plain = {"doctor", "--plan", "Qwen2.5-7B", "--workers", "4"};
  std::vector<std::string> with_option = plain;
  with_option.push_back("--distributed-optimizer");
  EXPECT_THAT(run_program(plain).out, Not(HasSubstr("once added up")));
  EXPECT_THAT(run_program(with_option).out,
              HasSubstr("gradient sums, once added up               15.23 GB  on the CPU"));
}

// docs/memory.md: 2 P of the whole model, and 22 P of the parts.
TEST(MemoryPlanTest, GroupsDivideWhatTrainingNeeds) {
  const auto& model = find_model("Qwen2.5-7B");
  const double all = model.parameters();
  const MemoryPlan one = plan_memory(model, {}),
                   four = plan_memory(model, {.workers = 8, .group = 4});
  for (const char* name : {"gradients of a layer", "gradient sums", "master", "KV cache"})
    EXPECT_DOUBLE_EQ(bytes_of(four, name), bytes_of(one, name) / 4) << name;
  EXPECT_DOUBLE_EQ(bytes_of(four, "weights (bf"), 2 * all);
  EXPECT_DOUBLE_EQ(bytes_of(four, "weights of its part"), 2 * all / 4);
  EXPECT_LT(bytes_of(four, "activations"), bytes_of(one, "activations"));
  EXPECT_DOUBLE_EQ(four.checkpoint_bytes, one.checkpoint_bytes);
  const auto complaint = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"doctor", "--plan", "Qwen2.5-7B", "--tensor-parallel-size"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.out;
    return ended.err;
  };
  EXPECT_THAT(complaint({"3", "--workers", "3"}), HasSubstr("is 3; give 1, 2, 4 or 8"));
  EXPECT_THAT(complaint({"4", "--workers", "2"}), HasSubstr("give a multiple of 4 workers"));
  EXPECT_THAT(complaint({"8", "--workers", "8"}), HasSubstr("give 4"));
  EXPECT_THAT(complaint({"2", "--workers", "2", "--muon"}), HasSubstr("leave one out"));
}

// One moment less, of the matrices of the layers.
TEST(MemoryPlanTest, MuonHasOneMomentOfTheMatrices) {
  const auto& model = find_model("Qwen2.5-7B");
  const double matrices = 28.0 * (3584 * 128 * 64 + 3.0 * 3584 * 18944);
  const MemoryPlan adamw = plan_memory(model, {}), muon = plan_memory(model, {.muon = true});
  EXPECT_DOUBLE_EQ(bytes_of(adamw, "master") - bytes_of(muon, "master"), 4 * matrices);
  EXPECT_DOUBLE_EQ(adamw.checkpoint_bytes - muon.checkpoint_bytes, 4 * matrices);
  const Ended named = run_program({"doctor", "--plan", "Qwen2.5-7B", "--muon"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("65.28 GB"));
}

// A critic takes what the policy takes, without a KV cache; an LM head of its own is not trained.
TEST(MemoryPlanTest, CriticAndTeacherAreCounted) {
  const simulate::ModelShape untied = find_model("Qwen2.5-7B"),
                             tied = shape_of(
                                 model::ModelConfig::read(TLT_SOURCE_DIR "/models/demo"), "demo");
  ASSERT_TRUE(tied.tied && !untied.tied);
  for (const simulate::ModelShape* model : {&tied, &untied}) {
    const double all = model->parameters(),
                 head = model->tied ? 0 : static_cast<double>(model->vocabulary * model->hidden),
                 trained = all - head + static_cast<double>(model->hidden);
    const MemoryPlan plain = plan_memory(*model, {}), plan = plan_memory(*model, {.critic = true});
    EXPECT_DOUBLE_EQ(bytes_of(plan, "critic: weights"), 2 * all);
    EXPECT_NEAR(plan.host_bytes() - plain.host_bytes(), 12 * trained, 1e3) << model->name;
    EXPECT_NEAR(bytes_of(plan, "critic: gradient sums"), 8 * trained, 1e3) << model->name;
    EXPECT_NEAR(plan.checkpoint_bytes - plain.checkpoint_bytes, 2 * all + 12 * trained, 1e3);
    EXPECT_DOUBLE_EQ(bytes_of(plan, "critic: activations") + double{1 << 26},
                     bytes_of(plan, "activations"));
    const MemoryPlan shared =
        plan_memory(*model, {.workers = 4, .distributed_optimizer = true, .critic = true});
    EXPECT_DOUBLE_EQ(bytes_of(shared, "critic: master"), bytes_of(plan, "critic: master") / 4);
  }
  const MemoryPlan taught = plan_memory(tied, {.teacher = untied});
  EXPECT_DOUBLE_EQ(bytes_of(taught, "teacher: weights"), 2 * untied.parameters());
  EXPECT_EQ(taught.host_bytes(), plan_memory(tied, {}).host_bytes());
  EXPECT_THROW(plan_memory(tied, {.teacher = find_model("DeepSeek-V3")}), InputError);
  const Ended ended = run_program(
      {"doctor", "--plan", TLT_SOURCE_DIR "/models/demo", "--critic", "--teacher", "Qwen2.5-7B"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* text :
       {"critic: master weights, moments", "teacher: weights (bfloat16)", "15.2"})
    EXPECT_THAT(ended.out, HasSubstr(text));
}

TEST(MemoryPlanTest, DoctorPrintsThePlanOfAModelOrAFolder) {
  const Ended named = run_program({"doctor", "--plan", "Qwen2.5-7B", "--workers", "2"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  for (const char* text : {"7.62 billion", "15.2", "3.11", "60.9", "91.3", "does not fit"})
    EXPECT_THAT(named.out, HasSubstr(text));
  const Ended folder =
      run_program({"doctor", "--plan", TLT_SOURCE_DIR "/models/demo", "--length", "64"});
  EXPECT_EQ(folder.exit_code, 0) << folder.err;
  EXPECT_THAT(folder.out, HasSubstr("GB: fits"));
}

TEST(MemoryPlanTest, WhatCannotBePlannedIsRefused) {
  EXPECT_THROW(plan_memory(find_model("DeepSeek-V3"), {}), InputError);
  EXPECT_THROW(plan_memory(find_model("Qwen3-8B"), {.workers = 0}), InputError);
  const Ended unknown = run_program({"doctor", "--plan", "Qwen2.5-8B"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("Qwen2.5-7B"));
}

}  // namespace
}  // namespace tlt::apps
