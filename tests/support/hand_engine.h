// The engine's step once more, written out by hand so that tests can do one part of it wrongly and
// see that their law notices. Without a fault it gives what rollout::Engine gives.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include "kv/kv_cache.h"
#include "model/activations.h"
#include "rollout/scheduler.h"
#include "tests/support/rollouts.h"

namespace tlt::testing {

enum class Fault {
  kNone,
  kForgottenPageCopy,  // a sample writes on into a page without the prompt's last positions
  kStaleSlot,  // the values of one row are not stored: its slot keeps what was there before, once
  kWrongPosition,  // one piece of a sequence is computed one position further on, once
  kNumberByRow,  // random numbers are taken by the row of the batch, not by the place of the token
};

class HandEngine {
 public:
  HandEngine(const model::PolicyModel& model, const rollout::EngineOptions& options, Fault fault)
      : model_(model),
        fault_(fault),
        cache_(model.device(), model.kv_shape(),
               options.kv_memory_bytes / model.kv_shape().page_bytes()),
        pool_(cache_.pages()),
        scheduler_(options, pool_),
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
    rollout::StepPlan plan = scheduler_.plan();
    if (plan.empty()) return false;
    const bool once = ++steps_ == 12;  // in the middle of things, and of a page
    ops::Segment& segment = plan.batch.segments.front();
    if (fault_ == Fault::kWrongPosition && once) ++segment.first_position;
    if (fault_ != Fault::kForgottenPageCopy)
      for (const rollout::PageCopy& copy : plan.copies) cache_.copy_page(copy.from, copy.to);
    const at::Tensor slot = values_of(segment), before = slot.clone();
    const at::Tensor& hidden = model_.forward(plan.batch, cache_, activations_);
    if (fault_ == Fault::kStaleSlot && once) slot.copy_(before);
    scheduler_.commit(sample(plan, hidden));
    return true;
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
    std::vector<ops::Sampled> sampled(plan.draws.size());
    if (sampled.empty()) return sampled;
    std::vector<int64_t> rows;
    std::vector<ops::SamplingRule> rules;
    std::vector<double> numbers;
    for (const rollout::Draw& draw : plan.draws) {
      const rollout::Group& request = draw.sequence->group->request;
      Place place{request.rl_step, request.prompt_id, draw.sequence->sample,
                  static_cast<uint32_t>(draw.sequence->tokens.size())};
      if (fault_ == Fault::kNumberByRow) place.sample = static_cast<uint32_t>(draw.row);
      rows.push_back(draw.row);
      rules.push_back(draw.sequence->group->rule);
      numbers.push_back(uniform(request.seed, place));
    }
    const int64_t count = std::ssize(rows), vocabulary = model_.config().vocabulary;
    at::Tensor logits = model_.device().empty({count, vocabulary}, at::kFloat);
    model_.logits(hidden.index_select(0, at::tensor(rows, at::kLong)), logits);
    ops::sample_rows(model_.device(), logits, vocabulary, rules, numbers, sampled);
    return sampled;
  }

  const model::PolicyModel& model_;
  const Fault fault_;
  kv::KvCache cache_;
  kv::PagePool pool_;
  rollout::Scheduler scheduler_;
  model::Activations activations_;
  int64_t steps_ = 0;
};

}  // namespace tlt::testing
