// HandEngine: the engine step written by hand, so that tests can plant a fault in one part of it
// and check that their invariant detects it. Without a fault its results are those of
// rollout::Engine.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include "kv/kv_cache.h"
#include "model/activations.h"
#include "rollout/scheduler.h"
#include "rollout/speculation.h"
#include "rollout/token_sampler.h"
#include "tests/support/rollouts.h"

namespace tlt::tests {

enum class Fault {
  kNone,
  kForgottenPageCopy,  // a sample continues in a page without the prompt's last positions
  kStaleSlot,          // the values of one row are not stored, once: its slot keeps its old values
  kWrongPosition,      // one piece of a sequence is computed one position later, once
  kUniformByRow,       // uniforms are taken by the row of the batch, not by the token's position
  // In every draft tree:
  kWrongAncestor,  // the first node below the root is computed as another token
  kWrongDepth,     // the last node is computed one position too early
  kForgottenPath,  // the accepted path is not copied to its slots
};

class HandEngine {
 public:
  HandEngine(const model::PolicyModel& model, const rollout::EngineOptions& options, Fault fault,
             rollout::Speculation* speculation = nullptr)
      : model_(model),
        fault_(fault),
        speculation_(speculation),
        cache_(model.device(), model.kv_shape(),
               options.kv_memory_bytes / model.kv_shape().page_bytes()),
        pool_(cache_.pages()),
        scheduler_(options, pool_),
        sampler_(model, options.max_running),
        activations_(model, options.max_batch_tokens) {}

  Rollouts run(const std::vector<rollout::Group>& groups) {
    for (const rollout::Group& group : groups) submit(group);
    Rollouts rollouts;
    while (step()) keep(scheduler_.take_finished(), rollouts);
    return rollouts;
  }

 private:
  void submit(const rollout::Group& group) {
    auto state = std::make_shared<rollout::GroupState>();
    state->request = group;
    state->rule = group.sampling->rule();
    state->stop_tokens = model_.config().eos_tokens;
    state->max_new_tokens = group.sampling->max_new_tokens;
    scheduler_.submit(std::move(state));
  }

  bool step() {
    if (speculation_) speculation_->propose(scheduler_.running_sequences());
    const rollout::StepPlan& right_plan = scheduler_.plan();
    rollout::StepPlan plan = right_plan;
    if (plan.empty()) return false;
    for (const ops::Segment& tree : plan.batch.segments)
      if (tree.is_tree()) spoil(tree, plan.batch);
    const bool once = ++steps_ == 12;  // in the middle of the rollout and of a page
    ops::Segment& segment = plan.batch.segments.front();
    if (fault_ == Fault::kWrongPosition && once) ++segment.first_position;
    if (fault_ != Fault::kForgottenPageCopy)
      for (const rollout::PageCopy& copy : plan.copies) cache_.copy_page(copy.from, copy.to);
    const at::Tensor slot = values_of(segment), before = slot.clone();
    const at::Tensor& hidden = model_.forward(plan.batch, cache_, activations_);
    if (fault_ == Fault::kStaleSlot && once) slot.copy_(before);
    if (fault_ == Fault::kUniformByRow) {
      const std::vector<ops::Sampled> sampled = sample(plan, hidden);
      std::vector<rollout::SampleResult> results;
      for (const ops::Sampled& one : sampled) results.push_back({.tokens = {&one, 1}, .path = {}});
      scheduler_.commit(results);
    } else {
      scheduler_.commit(sampler_.sample(hidden, plan.sample_requests));
      if (fault_ != Fault::kForgottenPath) keep_paths(right_plan);
      if (speculation_) speculation_->finish(right_plan, hidden);
    }
    scheduler_.end_step();
    return true;
  }

  void spoil(const ops::Segment& tree, ops::Batch& batch) const {
    if (tree.rows == 1) return;
    const auto first = static_cast<size_t>(tree.first_row + 1);
    const auto last = static_cast<size_t>(tree.first_row + tree.rows - 1);
    if (fault_ == Fault::kWrongAncestor)
      batch.tokens[first] = (batch.tokens[first] + 1) % static_cast<int32_t>(20);
    if (fault_ == Fault::kWrongDepth) --batch.positions[last];
  }

  void keep_paths(const rollout::StepPlan& plan) {
    for (size_t i = 0; i < plan.segments.size(); ++i) {
      const ops::Segment& segment = plan.batch.segments[i];
      const rollout::Sequence* sequence = plan.segments[i].sequence;
      if (segment.is_tree() && sequence->state == rollout::Sequence::State::kRunning)
        cache_.keep_path(plan.batch, segment, plan.segments[i].kept_path);
    }
  }

  // The first layer's values of the segment's first position: [K, H].
  at::Tensor values_of(const ops::Segment& segment) const {
    const auto page = segment.pages[segment.first_position / ops::kPageSlots];
    const int64_t heads = cache_.shape().kv_heads, size = cache_.shape().head_size;
    return cache_.layer(0)
        .storage[page][0]
        .select(1, 1)
        .view({heads, ops::kPageSlots, size})
        .select(1, segment.first_position % ops::kPageSlots);
  }

  std::vector<ops::Sampled> sample(const rollout::StepPlan& plan, const at::Tensor& hidden) const {
    std::vector<ops::Sampled> sampled(plan.sample_requests.size());
    if (sampled.empty()) return sampled;
    std::vector<int64_t> rows;
    std::vector<ops::SampleRow> requests;
    for (const rollout::SampleRequest& one : plan.sample_requests) {
      const rollout::Group& request = one.sequence->group->request;
      RandomCounter counter{request.rl_step, request.prompt_id, one.sequence->sample,
                            static_cast<uint32_t>(one.sequence->tokens.size())};
      if (fault_ == Fault::kUniformByRow) counter.sample = static_cast<uint32_t>(one.row);
      rows.push_back(one.row);
      requests.push_back({.row = std::ssize(requests),
                          .rule = one.sequence->group->rule,
                          .uniform = uniform(request.seed, counter)});
    }
    const int64_t count = std::ssize(rows), vocabulary = model_.config().vocabulary;
    at::Tensor logits = model_.device().empty({count, vocabulary}, at::kFloat);
    const at::Tensor device_rows = at::tensor(rows, at::kLong).to(model_.device().torch());
    model_.logits(hidden.index_select(0, device_rows), logits);
    ops::sample_rows(model_.device(), logits, vocabulary, requests, sampled);
    return sampled;
  }

  const model::PolicyModel& model_;
  const Fault fault_;
  rollout::Speculation* speculation_;
  kv::KvCache cache_;
  kv::PagePool pool_;
  rollout::Scheduler scheduler_;
  rollout::TokenSampler sampler_;
  model::Activations activations_;
  int64_t steps_ = 0;
};

}  // namespace tlt::tests
