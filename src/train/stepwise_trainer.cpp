// SPDX-License-Identifier: Apache-2.0
#include "train/stepwise_trainer.h"

#include <algorithm>

#include "base/check.h"
#include "base/watchdog.h"
#include "cluster/launch.h"
#include "train/policy_loss.h"

namespace tlt::train {
namespace {

// A sum: nothing is divided.
const Denominators kSum(/*tokens=*/1, /*sequences=*/1);

LossOptions as_sum(LossOptions options) {
  TLT_CHECK(!options.policy_loss.uses_covariance(), "this loss needs the whole mini-batch");
  options.loss_agg_mode = "token-mean";
  return options;
}

const std::vector<model::Parameter>& trained_by(const model::PolicyModel& model,
                                                const LoraAdapter* adapter) {
  return adapter ? adapter->parameters() : model.parameters();
}

// Tokens first … last-1 of a sample, to score all but the first.
TrainSample part_of(const TrainSample& sample, int64_t first, int64_t last) {
  TrainSample part;
  part.tokens.assign(sample.tokens.begin() + first, sample.tokens.begin() + last);
  part.response_begin = 1;
  return part;
}

// How many logprobs of a shared prefix are the sample's too: the token after the prefix, which the
// prefix's last row predicts, may be another one than the leader's.
int64_t shared_logprobs(const PrefixGroup& group, const TrainSample& leader,
                        const TrainSample& sample) {
  const auto next = static_cast<size_t>(group.prefix);
  return group.prefix - (group.prefix > 0 && sample.tokens[next] != leader.tokens[next] ? 1 : 0);
}

}  // namespace

StepwiseTrainer::StepwiseTrainer(const model::PolicyModel& model, LoraAdapter* adapter,
                                 const Options& options)
    : model_(model),
      adapter_(adapter),
      options_(options),
      alone_(cluster::make_comm(cluster::Launch{}, {})),
      optimizer_(trained_by(model, adapter), model.device(), OptimOptions{}),
      sum_(trained_by(model, adapter), model.device()),
      gradients_(model::make_gradients(model.device(), trained_by(model, adapter))),
      backward_(adapter ? adapter->route(gradients_) : gradients_),
      tape_(model, options.recompute),
      head_(model, /*temperature=*/1) {
  sum_.clear();
}

StepwiseTrainer::Pass StepwiseTrainer::forward(std::span<const TrainSample> samples,
                                               const LossOptions& loss) {
  return pass(samples, loss, /*is_backward=*/false);
}

StepwiseTrainer::Pass StepwiseTrainer::forward_backward(std::span<const TrainSample> samples,
                                                        const LossOptions& loss) {
  gradients_.zero();
  return pass(samples, loss, /*is_backward=*/true);
}

StepwiseTrainer::Pass StepwiseTrainer::pass(std::span<const TrainSample> samples,
                                            const LossOptions& options, bool is_backward) {
  PolicyLoss loss(as_sum(options), kSum);
  std::vector<bool> learns;
  Pass out;
  for (const TrainSample& sample : samples) {
    learns.push_back(is_backward && loss.learns_from(sample));
    out.logprobs.emplace_back(sample.tokens.size() - 1);
  }
  const HeadLoss::See see = [&](const TrainSample& sample, int64_t first,
                                std::span<const float> logprobs) {
    std::vector<float>& all = out.logprobs[static_cast<size_t>(&sample - samples.data())];
    std::ranges::copy(logprobs, all.begin() + sample.response_begin - 1 + first);
  };
  const PackPlan plan(samples, learns, options_.max_tokens);
  for (const PlannedPack& pack : plan.packs()) {
    report_progress();
    const std::vector<PackedSample> packed = plan.load(pack, tape_);
    const at::Tensor& hidden = model_.forward(tape_);
    score_prompts(pack, packed, samples, out);
    if (pack.learns) {
      model_.backward(tape_, head_.backward(hidden, packed, loss, backward_, see), backward_);
      sum_.add(gradients_);
    } else {
      head_.measure(hidden, packed, loss, see);
    }
    out.loss += loss.take_sums().front();
  }
  return out;
}

// Of the prompts' tokens: a shared prefix is scored once, the rest of each prompt after it.
void StepwiseTrainer::score_prompts(const PlannedPack& pack, std::span<const PackedSample> packed,
                                    std::span<const TrainSample> samples, Pass& out) {
  std::vector<TrainSample> parts;
  std::vector<PackedSample> rows;
  parts.reserve(3 * packed.size());  // rows point to them
  const auto score = [&](const TrainSample& sample, int64_t first, int64_t last, int64_t row) {
    if (last - first < 2) return;
    parts.push_back(part_of(sample, first, last));
    parts.back().id = first;
    parts.back().group = &sample - samples.data();
    rows.push_back({&parts.back(), row});
  };
  size_t next = 0;
  int64_t row = 0;
  for (const PrefixGroup& group : pack.members) {
    const TrainSample& leader = samples[static_cast<size_t>(group.samples.front())];
    if (group.prefix > 0) score(leader, 0, group.prefix + 1, row);
    row += group.prefix;
    const int64_t last_row = row - 1;  // of the prefix
    for (const int64_t i : group.samples) {
      const TrainSample& sample = samples[static_cast<size_t>(i)];
      if (shared_logprobs(group, leader, sample) < group.prefix)
        score(sample, group.prefix - 1, group.prefix + 1, last_row);
      score(sample, group.prefix, sample.response_begin, packed[next].first_row + group.prefix);
      row += std::ssize(sample.tokens) - group.prefix;
      ++next;
    }
  }
  head_.score(tape_.hidden(), rows,
              [&](const TrainSample& part, int64_t first, std::span<const float> logprobs) {
                std::ranges::copy(logprobs, out.logprobs[static_cast<size_t>(part.group)].begin() +
                                                part.id + first);
              });
  for (const PrefixGroup& group : pack.members) {
    const auto leader = static_cast<size_t>(group.samples.front());
    for (const int64_t i : group.samples) {
      const auto own = static_cast<size_t>(i);
      std::copy_n(out.logprobs[leader].begin(),
                  shared_logprobs(group, samples[leader], samples[own]), out.logprobs[own].begin());
    }
  }
}

StepwiseTrainer::Step StepwiseTrainer::step(const OptimOptions& optim) {
  optimizer_.set_options(optim);
  Step step{.norm = 0, .fault = sum_.reduce(*alone_)};
  if (step.fault.empty()) {
    sum_.read(gradients_);
    step.norm = optimizer_.step(gradients_, optim.lr);
    if (adapter_) adapter_->merge();
  }
  sum_.clear();
  return step;
}

void StepwiseTrainer::written() {
  sum_.clear();
  if (adapter_) adapter_->merge();
}

}  // namespace tlt::train
