// SPDX-License-Identifier: Apache-2.0
#include "rl/speculation_report.h"

#include <gtest/gtest.h>

#include "tests/support/plain_drafter.h"
#include "tests/support/thread_comm.h"

namespace tlt::rl {
namespace {

using rollout::Sequence;
using rollout::Speculation;

// Always drafts 1, then 2 or 3.
class FixedDrafter final : public tests::PlainDrafter {
 public:
  std::string_view kind() const override { return "fixed"; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      const int32_t first = request.tree->add(drafter::DraftTree::kRoot, 1, 0.9f);
      request.tree->add(first, 3, 0.1f);
      request.tree->add(first, 2, 0.8f);
    }
  }
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
    EXPECT_DOUBLE_EQ(metrics.at("rollout/spec_accept_length"), 1 + 6 / 5.0);
    EXPECT_DOUBLE_EQ(metrics.at("rollout/spec_accept_rate"), 6 / 15.0);
    EXPECT_DOUBLE_EQ(metrics.at("speculation/fixed/accept_rate_pos_1"), 4 / 5.0);
    EXPECT_DOUBLE_EQ(metrics.at("speculation/fixed/accept_rate_pos_2"), 2 / 5.0);
    EXPECT_FALSE(metrics.find("speculation/fixed/accept_rate_pos_3"));

    step(speculation, 2);
    Metrics next;
    report.add_step(comm, next);
    EXPECT_EQ(next.at("speculation/fixed/steps"), 2) << "of this step alone";
    EXPECT_DOUBLE_EQ(next.at("rollout/spec_accept_length"), 3);
  });
}

}  // namespace
}  // namespace tlt::rl
