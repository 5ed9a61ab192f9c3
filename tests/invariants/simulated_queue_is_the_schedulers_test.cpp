// A simulated engine against the product's scheduler: the same groups, lengths and sequences that
// may run, and a KV cache that holds all of these or half. Both have the same queue
// (rollout/fcfs_queue.h). The scheduler also needs the tokens and pages of every sequence, which a
// simulation of a million responses does not have.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "rollout/scheduler.h"
#include "simulate/simulated_engine.h"
#include "tests/support/small_simulation.h"

namespace tlt {
namespace {

constexpr int64_t kGroups = 40, kSamples = 4, kPromptTokens = 32, kMostTokens = 6000, kRunning = 16;
constexpr int32_t kEos = 0;

using Lengths = std::vector<std::vector<int64_t>>;  // by group and sample

Lengths random_lengths() {
  RandomStream random(3, {});
  Lengths lengths(kGroups);
  for (std::vector<int64_t>& group : lengths)
    for (int64_t i = 0; i < kSamples; ++i)
      group.push_back(
          1 + static_cast<int64_t>(std::min(kMostTokens - 1.0, 600 * std::exp(random.normal()))));
  return lengths;
}

struct Served {
  int64_t steps = 0, preemptions = 0;
  std::vector<int64_t> finished_at = {};  // by group and sample, the step
};

// By the product's scheduler; a sequence's token is kEos where it ends.
Served by_scheduler(const Lengths& lengths, int64_t pages) {
  kv::PagePool pool(pages);
  rollout::Scheduler scheduler(
      {.max_running = kRunning, .max_batch_tokens = 512, .prefill_chunk = 512}, pool);
  for (int64_t i = 0; i < kGroups; ++i) {
    auto group = std::make_shared<rollout::GroupState>();
    group->request = {.prompt_id = static_cast<uint32_t>(i),
                      .tokens = std::vector<int32_t>(kPromptTokens, 1),
                      .samples = kSamples};
    group->stop_tokens = {kEos};
    group->max_new_tokens = kMostTokens;
    scheduler.submit(group);
  }
  Served served{.finished_at = std::vector<int64_t>(kGroups * kSamples)};
  while (!scheduler.plan().empty()) {
    ++served.steps;
    std::vector<ops::Sampled> sampled;
    for (const rollout::SampleRequest& request : scheduler.plan().sample_requests) {
      const rollout::Sequence& it = *request.sequence;
      const bool is_last =
          std::ssize(it.tokens) + 1 == lengths[it.group->request.prompt_id][it.sample];
      sampled.push_back({is_last ? kEos : 1, 0});
    }
    std::vector<rollout::SampleResult> results;
    for (const ops::Sampled& one : sampled) results.push_back({.tokens = {&one, 1}, .path = {}});
    scheduler.commit(results);
    scheduler.end_step();
    for (const rollout::Response& response : scheduler.take_finished())
      served.finished_at[response.prompt_id * kSamples + response.sample] = served.steps;
  }
  served.preemptions = scheduler.preemptions();
  return served;
}

Served by_simulation(const Lengths& lengths, int64_t pages) {
  simulate::SimulateOptions options = tests::small_simulation();
  options.n = kSamples;
  options.prompt_length = kPromptTokens;
  options.max_response_length = kMostTokens;
  options.max_num_seqs = kRunning;
  options.max_num_batched_tokens = 512;
  options.stride = 1;
  const simulate::CostModel costs({.device = simulate::find_device(options.device),
                                   .model = simulate::find_model(options.model)});
  const simulate::Way plain = simulate::find_way("plain");
  const speculation::CostTable table({{.seconds = 1}},
                                     {});  // for a tuner, which `plain` does not have
  simulate::DraftTrees trees;
  simulate::SimulatedEngine::Scratch scratch;
  simulate::SimulatedEngine engine({.options = options,
                                    .way = plain,
                                    .costs = costs,
                                    .table = table,
                                    .trees = trees,
                                    .scratch = scratch,
                                    .kv_tokens = pages * ops::kPageSlots});
  for (int64_t group = 0; group < kGroups; ++group) {
    std::vector<simulate::SimulatedSequence> sequences;
    for (int64_t i = 0; i < kSamples; ++i)
      sequences.push_back({.group = group,
                           .sample = i,
                           .length = static_cast<double>(lengths[group][i]),
                           .to_prefill = i == 0 ? double{kPromptTokens} : 0});
    engine.submit(sequences);
  }
  Served served{.finished_at = std::vector<int64_t>(kGroups * kSamples)};
  while (engine.step() > 0) {
    const simulate::EngineCounters counters = engine.take_counters();
    served.steps += counters.steps;
    served.preemptions += counters.preemptions;
    for (const simulate::SimulatedSequence& it : engine.take_finished())
      served.finished_at[it.group * kSamples + it.sample] = served.steps;
  }
  return served;
}

// Of the product's steps: how many more or fewer there are, and the mean and the largest difference
// of a sequence's end.
struct Differences {
  double steps = 0, mean = 0, largest = 0;
};
Differences differences(const Served& simulated, const Served& product) {
  const auto share = [&](int64_t one, int64_t other) {
    return static_cast<double>(std::abs(one - other)) / static_cast<double>(product.steps);
  };
  Differences found{.steps = share(simulated.steps, product.steps)};
  for (size_t i = 0; i < product.finished_at.size(); ++i) {
    const double one = share(simulated.finished_at[i], product.finished_at[i]);
    found.mean += one / static_cast<double>(product.finished_at.size());
    found.largest = std::max(found.largest, one);
  }
  return found;
}

TEST(SimulatedQueue, IsThatOfTheScheduler) {
  const Lengths lengths = random_lengths();
  const Served product = by_scheduler(lengths, 4000), simulated = by_simulation(lengths, 4000);
  EXPECT_EQ(product.preemptions, 0);
  EXPECT_EQ(simulated.preemptions, 0);
  const Differences found = differences(simulated, product);
  EXPECT_LT(found.steps, 0.005);
  EXPECT_LT(found.largest, 0.005);
}

TEST(SimulatedQueue, IsThatOfTheSchedulerWhereTheKvCacheIsFull) {
  const Lengths lengths = random_lengths();
  const int64_t pages = 600;
  const Served product = by_scheduler(lengths, pages), simulated = by_simulation(lengths, pages);
  const Differences found = differences(simulated, product);
  EXPECT_GT(product.preemptions, 100);
  EXPECT_NEAR(static_cast<double>(simulated.preemptions) / static_cast<double>(product.preemptions),
              1, 0.1);
  EXPECT_LT(found.steps, 0.02);
  EXPECT_LT(found.mean, 0.02);
}

}  // namespace
}  // namespace tlt
