// SPDX-License-Identifier: Apache-2.0
#include "train/stepwise_trainer.h"

#include <algorithm>

#include "base/check.h"
#include "base/watchdog.h"
#include "cluster/launch.h"
#include "train/policy_loss.h"
#include "train/trained_parameters.h"

namespace tlt::train {
namespace {

// A sum: nothing is divided.
const Denominators kSum(/*tokens=*/1, /*sequences=*/1);

LossOptions as_sum(LossOptions options) {
  TLT_CHECK(!options.policy_loss.uses_covariance(), "this loss needs the whole mini-batch");
  options.loss_agg_mode = "token-mean";
  return options;
}

// Tokens first … last-1 of a sample, to score all but the first.
TrainSample part_of(const TrainSample& sample, int64_t first, int64_t last) {
  TrainSample part;
  part.tokens.assign(sample.tokens.begin() + first, sample.tokens.begin() + last);
  part.response_begin = 1;
  return part;
}

// How many logprobs of a shared prefix are the sample's too: those before the first target that is
// not the leader's.
int64_t shared_logprobs(const PrefixGroup& group, const TrainSample& leader,
                        const TrainSample& sample) {
  int64_t shared = 0;
  while (shared < group.prefix && sample.tokens[static_cast<size_t>(shared) + 1] ==
                                      leader.tokens[static_cast<size_t>(shared) + 1])
    ++shared;
  return shared;
}

std::unique_ptr<TokenLoss> make_loss(const StepwiseTrainer::Loss& loss) {
  if (const auto* dro = std::get_if<DroOptions>(&loss)) return std::make_unique<DroLoss>(*dro);
  return std::make_unique<PolicyLoss>(as_sum(std::get<LossOptions>(loss)), kSum);
}

// Empty: the labels are the samples.
std::vector<TrainSample> make_labels(std::span<const TrainSample> samples,
                                     StepwiseTrainer::Targets targets) {
  if (std::ranges::all_of(targets, &std::vector<int32_t>::empty)) return {};
  TLT_CHECK(targets.size() == samples.size());
  std::vector<TrainSample> labels(samples.begin(), samples.end());
  for (size_t i = 0; i < labels.size(); ++i) {
    if (targets[i].empty()) continue;
    TLT_CHECK(targets[i].size() + 1 == labels[i].tokens.size(), "sample ", i, ": ",
              targets[i].size(), " targets for ", labels[i].tokens.size(), " tokens");
    std::ranges::copy(targets[i], labels[i].tokens.begin() + 1);
  }
  return labels;
}

}  // namespace

StepwiseTrainer::StepwiseTrainer(const model::PolicyModel& model, LoraAdapter* adapter,
                                 const Options& options)
    : model_(model),
      adapter_(adapter),
      options_(options),
      alone_(cluster::make_comm(cluster::Launch{}, {})),
      optimizer_(trained_parameters(model, adapter), model.device(), OptimOptions{}),
      sum_(trained_parameters(model, adapter), model.device()),
      staged_(model.device(), trained_parameters(model, adapter), model.backward_stages()),
      backward_(adapter ? adapter->route(staged_.gradients()) : staged_.gradients()),
      tape_(model, options.recompute),
      head_(model, /*temperature=*/1) {
  sum_.clear();
}

StepwiseTrainer::Pass StepwiseTrainer::forward(std::span<const TrainSample> samples,
                                               const Loss& loss, Targets targets) {
  const std::vector<TrainSample> labels = make_labels(samples, targets);
  return pass({samples, labels.empty() ? samples : labels}, *make_loss(loss),
              /*is_backward=*/false);
}

StepwiseTrainer::Pass StepwiseTrainer::forward_backward(std::span<const TrainSample> samples,
                                                        const Loss& loss, Targets targets) {
  staged_.clear();
  const std::vector<TrainSample> labels = make_labels(samples, targets);
  return pass({samples, labels.empty() ? samples : labels}, *make_loss(loss),
              /*is_backward=*/true);
}

// The model sees the samples; the head and the loss see the labels.
StepwiseTrainer::Pass StepwiseTrainer::pass(const Batch& batch, TokenLoss& loss, bool is_backward) {
  const auto [samples, labels] = batch;
  std::vector<bool> learns;
  Pass out;
  for (const TrainSample& sample : samples) {
    learns.push_back(is_backward && loss.learns_from(sample));
    out.logprobs.emplace_back(sample.tokens.size() - 1);
  }
  const TrainSample* const first_label = labels.data();
  const HeadLoss::See see = [&](const TrainSample& label, int64_t first,
                                std::span<const float> logprobs) {
    std::vector<float>& all = out.logprobs[static_cast<size_t>(&label - first_label)];
    std::ranges::copy(logprobs, all.begin() + label.response_begin - 1 + first);
  };
  const PackPlan plan(samples, learns, options_.max_tokens);
  for (const PlannedPack& pack : plan.packs()) {
    report_progress();
    std::vector<PackedSample> packed = plan.load(pack, tape_);
    for (PackedSample& one : packed) one.sample = first_label + (one.sample - samples.data());
    const at::Tensor& hidden = model_.forward(tape_);
    score_prompts(pack, packed, labels, out);
    if (pack.learns) {
      backward(head_.backward(hidden, packed, loss, backward_, see));
    } else {
      head_.measure(hidden, packed, loss, see);
    }
    out.loss += loss.take_sums().front();
  }
  return out;
}

// From the gradient of the tape's hidden states; the LM head's backward has ended.
void StepwiseTrainer::backward(const at::Tensor& d_hidden) {
  staged_.end_stage(sum_);
  for (bool is_last = false; !is_last; staged_.end_stage(sum_))
    is_last = !model_.backward_layer(tape_, d_hidden, backward_);
}

// Scores the prompts' targets: a shared prefix once, then the rest of each prompt.
void StepwiseTrainer::score_prompts(const PlannedPack& pack, std::span<const PackedSample> packed,
                                    std::span<const TrainSample> labels, Pass& out) {
  std::vector<TrainSample> parts;
  std::vector<PackedSample> rows;
  parts.reserve(3 * packed.size());  // rows point to them
  const auto score = [&](const TrainSample& sample, int64_t first, int64_t last, int64_t row) {
    if (last - first < 2) return;
    parts.push_back(part_of(sample, first, last));
    parts.back().id = first;
    parts.back().group = &sample - labels.data();
    rows.push_back({&parts.back(), row});
  };
  size_t next = 0;
  int64_t row = 0;
  for (const PrefixGroup& group : pack.members) {
    const TrainSample& leader = labels[static_cast<size_t>(group.samples.front())];
    if (group.prefix > 0) score(leader, 0, group.prefix + 1, row);
    const int64_t prefix_row = row;
    row += group.prefix;
    for (const int64_t i : group.samples) {
      const TrainSample& sample = labels[static_cast<size_t>(i)];
      const int64_t shared = shared_logprobs(group, leader, sample);
      if (shared < group.prefix) score(sample, shared, group.prefix + 1, prefix_row + shared);
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
      std::copy_n(out.logprobs[leader].begin(), shared_logprobs(group, labels[leader], labels[own]),
                  out.logprobs[own].begin());
    }
  }
}

StepwiseTrainer::Step StepwiseTrainer::step(const OptimOptions& optim) {
  optimizer_.set_options(optim);
  Step step{.norm = 0, .fault = sum_.reduce(*alone_)};
  if (step.fault.empty()) {
    step.norm = optimizer_.step(sum_.view(), optim.lr);
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
