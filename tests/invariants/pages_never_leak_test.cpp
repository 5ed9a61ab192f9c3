// Invariant: after every rollout all pages are free, with any cancellations and preemptions.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/rollouts.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

using rollout::Engine;
using rollout::EngineOptions;
using rollout::Group;
using rollout::SamplingOptions;

class PagesNeverLeak : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  Group random_group(RandomStream& random, uint32_t prompt_id) const {
    SamplingOptions sampling;
    sampling.max_new_tokens = 1 + static_cast<int64_t>(random.below(60));
    const auto length = static_cast<int64_t>(1 + random.below(50));
    return {.prompt_id = prompt_id,
            .tokens = random_tokens(4, prompt_id, length, model_->config().vocabulary),
            .samples = 1 + static_cast<int64_t>(random.below(5)),
            .sampling = std::make_shared<const SamplingOptions>(sampling),
            .seed = 6};
  }

  EngineOptions random_options(RandomStream& random) const {
    EngineOptions options;
    options.max_running = 4 + static_cast<int64_t>(random.below(10));
    options.max_batch_tokens = options.max_running + static_cast<int64_t>(random.below(50));
    options.prefill_chunk = 1 + static_cast<int64_t>(random.below(30));
    options.kv_memory_bytes =
        (8 + static_cast<int64_t>(random.below(6))) * model_->kv_shape().page_bytes();
    return options;
  }

  const std::unique_ptr<model::PolicyModel> model_ =
      make_tiny_model(tiny_config(model::Family::kQwen3), GetParam());
};

TEST_P(PagesNeverLeak, UnderRandomCancelAndPreemption) {
  int64_t preemptions = 0, cancelled = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    RandomStream random(seed, {});
    Engine engine(*model_, random_options(random));
    uint32_t prompts = 0;
    int64_t samples = 0, finished = 0;
    for (int event = 0; event < 150; ++event) {
      if (random.below(8) == 0) {
        const Group group = random_group(random, prompts++);
        samples += group.samples;
        engine.submit(group);
      } else if (random.below(8) == 0 && prompts > 0) {
        cancelled += engine.cancel(static_cast<uint32_t>(random.below(prompts)),
                                   static_cast<uint32_t>(random.below(5)));
      } else {
        engine.step();
      }
      engine.check_invariants();
      finished += std::ssize(engine.take_finished());
    }
    while (engine.step()) engine.check_invariants();
    engine.check_idle_invariants();
    EXPECT_EQ(finished + std::ssize(engine.take_finished()), samples) << "seed " << seed;
    preemptions += engine.stats().preemptions;
  }
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(cancelled, 10);
}

TEST_P(PagesNeverLeak, WhenEverythingIsCancelledMidStep) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    RandomStream random(seed, {.step = 1});
    Engine engine(*model_, random_options(random));
    for (uint32_t prompt = 0; prompt < 6; ++prompt) engine.submit(random_group(random, prompt));
    for (uint64_t steps = random.below(40); steps > 0; --steps) engine.step();
    engine.cancel_all();
    engine.check_idle_invariants();
  }
}

// Negative control: a page that is not released, and one that is held twice, are detected.
TEST_P(PagesNeverLeak, DetectsAPlantedLeak) {
  kv::PagePool pool(12);
  rollout::Scheduler scheduler(EngineOptions{}, pool);
  RandomStream random(1, {});
  auto group = std::make_shared<rollout::GroupState>();
  group->request = random_group(random, 0);
  group->max_new_tokens = 20;
  scheduler.submit(group);
  const ops::PageId page = scheduler.plan().batch.segments.front().pages[0];
  scheduler.check_invariants();
  pool.share(page);
  EXPECT_THROW(scheduler.check_invariants(), Error);
  scheduler.cancel_all();
  EXPECT_THROW(scheduler.check_invariants(), Error);
  pool.release(page);
  scheduler.check_invariants();
  EXPECT_EQ(pool.free_pages(), 12);
}

TEST_P(PagesNeverLeak, RunningEngineIsNotIdle) {
  Engine engine(*model_, EngineOptions{});
  RandomStream random(1, {});
  engine.submit(random_group(random, 0));
  EXPECT_THROW(engine.check_idle_invariants(), Error);
}

INSTANTIATE_TEST_SUITE_P(Types, PagesNeverLeak, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tlt::tests
