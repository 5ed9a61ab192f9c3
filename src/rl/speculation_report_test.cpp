// SPDX-License-Identifier: Apache-2.0
#include "rl/speculation_report.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/plain_drafter.h"
#include "tests/support/thread_comm.h"
#include "tests/support/ticking_clock.h"

namespace tlt::rl {
namespace {

using rollout::Sequence;
using rollout::Speculation;

// Always drafts 1, then 2 or 3 if the strategy has room for them.
class FixedDrafter final : public tests::PlainDrafter {
 public:
  explicit FixedDrafter(std::string_view kind = "fixed") : kind_(kind) {}
  std::string_view kind() const override { return kind_; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      const int32_t first = request.tree->add(drafter::DraftTree::kRoot, 1, 0.9f);
      if (request.strategy.depth < 2 || request.strategy.verify < 4) continue;
      request.tree->add(first, 3, 0.1f);
      request.tree->add(first, 2, 0.8f);
    }
  }

 private:
  const std::string_view kind_;
};

// A decoding sequence with one token.
std::unique_ptr<Sequence> decoding_sequence() {
  auto sequence = std::make_unique<Sequence>();
  sequence->group = std::make_shared<rollout::GroupState>();
  sequence->group->request.tokens = {7, 8};
  sequence->group->max_new_tokens = 100;
  sequence->tokens = {9};
  sequence->computed = 2;
  sequence->target_forwards = 2;
  return sequence;
}

// One engine step with one sequence, of whose tree `accepted` tokens are accepted.
void step(Speculation& speculation, size_t accepted) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(decoding_sequence());
  speculation.propose(running);
  Sequence& sequence = *running.front();
  const std::vector<int32_t> whole_path = {0, 1, 3};  // token rows; the root is row 0
  rollout::StepPlan plan;
  plan.batch.add_tree(/*token=*/9, sequence.computed, nullptr);
  plan.segments.push_back({.group = sequence.group.get(),
                           .sequence = &sequence,
                           .kept_path = std::span(whole_path).first(accepted + 1)});
  plan.sample_requests.push_back({.sequence = &sequence, .is_tree = true});
  speculation.finish(plan, at::Tensor());
}

TEST(SpeculationReportTest, SumsCountsOfTheStepOverAllWorkers) {
  train::run_workers(2, [](cluster::Comm& comm) {
    Speculation speculation(std::make_unique<FixedDrafter>(), {2, 2, 4}, /*vocabulary=*/10);
    SpeculationReport report(speculation);
    for (const size_t accepted : {2, 1}) step(speculation, accepted);
    if (comm.rank() == 1) step(speculation, 0);
    Metrics metrics;
    report.add_step(comm, metrics);
    EXPECT_EQ(metrics.at("speculation/fixed/steps"), 5);
    EXPECT_EQ(metrics.at("speculation/step_share"), 1);
    EXPECT_EQ(metrics.at("speculation/fixed/draft_rate"), 1);
    EXPECT_DOUBLE_EQ(metrics.at("rollout/spec_accept_length"), 1 + 6 / 5.0);
    EXPECT_DOUBLE_EQ(metrics.at("rollout/spec_accept_rate"), 6 / 15.0);
    EXPECT_DOUBLE_EQ(metrics.at("speculation/fixed/accept_rate_pos_1"), 4 / 5.0);
    EXPECT_DOUBLE_EQ(metrics.at("speculation/fixed/accept_rate_pos_2"), 2 / 5.0);
    EXPECT_FALSE(metrics.find("speculation/fixed/accept_rate_pos_3"));

    EXPECT_FALSE(metrics.find("rollout/plain_seconds")) << "a fixed strategy has no cost table";

    step(speculation, 2);
    Metrics next;
    report.add_step(comm, next);
    EXPECT_EQ(next.at("speculation/fixed/steps"), 2) << "of this step alone";
    EXPECT_DOUBLE_EQ(next.at("rollout/spec_accept_length"), 3);
  });
}

TEST(SpeculationReportTest, KnowsTheShareOfStepsThatADraftModelDraftsFor) {
  for (const auto& [kind, share] :
       std::map<std::string, double>{{"suffix", 0}, {"eagle", 1}, {"mixed", 1}})
    train::run_workers(1, [&](cluster::Comm& comm) {
      Speculation speculation(std::make_unique<FixedDrafter>(kind), {2, 2, 4}, /*vocabulary=*/10);
      SpeculationReport report(speculation);
      step(speculation, 2);
      Metrics metrics;
      report.add_step(comm, metrics);
      EXPECT_EQ(report.draft_model_share(), share) << kind;
    });
}

// Rank 1 takes more steps, of which no draft token is accepted.
TEST(SpeculationReportTest, PlainSecondsAreThoseOfTheSlowestWorkerInThisStep) {
  train::run_workers(2, [](cluster::Comm& comm) {
    const tests::TickingClock clock;
    std::vector<std::unique_ptr<drafter::Drafter>> drafters;
    drafters.push_back(std::make_unique<FixedDrafter>());
    // A pass of one row takes a second; that of 64 rows hardly longer, so the tuner drafts.
    const speculation::CostTable costs({{1, 1, 1}, {1, 64, 1.28}}, {});
    Speculation speculation(std::move(drafters),
                            {.options = {}, .costs = costs, .max_rows = 1000, .clock = &clock},
                            /*vocabulary=*/10);
    SpeculationReport report(speculation);
    std::vector<double> ratios;
    for (const size_t accepted : {1, 1, 0}) {
      const rollout::SpeculationStats before = speculation.stats();
      for (int i = 0; i < (comm.rank() == 0 ? 20 : 30); ++i)
        step(speculation, comm.rank() == 0 ? accepted : 0);
      Metrics metrics;
      metrics.set("timing_s/gen", 10);
      report.add_step(comm, metrics);
      const rollout::SpeculationStats now = speculation.stats();
      std::vector<double> seconds(4);  // of each worker, then what its tokens would have taken
      seconds[static_cast<size_t>(comm.rank())] = now.step_seconds - before.step_seconds;
      seconds[static_cast<size_t>(2 + comm.rank())] = now.plain_seconds - before.plain_seconds;
      seconds = comm.all_reduce_sum(seconds);
      ratios.push_back(std::max(seconds[2], seconds[3]) / std::max(seconds[0], seconds[1]));
      EXPECT_NEAR(metrics.at("rollout/plain_seconds"),
                  10 - std::max(seconds[0], seconds[1]) + std::max(seconds[2], seconds[3]), 1e-9);
      EXPECT_DOUBLE_EQ(metrics.at("rollout/ridge"), 50);
    }
    EXPECT_GT(ratios.front(), ratios.back() + 0.1) << "accepted tokens count";
  });
}

}  // namespace
}  // namespace tlt::rl
