// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/watchdog.h"
#include "train/packing.h"
#include "train/schedule.h"

namespace tlt::drafter_training {
namespace {

DraftLossWeights weights_of(const DraftTrainOptions& options) {
  return {.hidden = options.hidden_weight, .logits = options.logits_weight};
}

int64_t passes_of(const DraftTrainOptions& options, const drafter::DraftNetwork& network) {
  if (options.passes > 0) return options.passes;
  return network.algorithm() == "eagle3" ? 7 : 1;
}

// The first rows of a sequence have no meaning in later passes.
int64_t first_pair_of_pass(const DraftSample& sample, LossPositions positions, int64_t pass) {
  return std::min(sample.end_pair(), std::max(sample.first_pair(positions), pass));
}

// All packs of a batch, and the ones that this worker computes.
struct Share {
  std::vector<train::Pack> packs;
  std::vector<size_t> mine;

  Share(std::span<const DraftSample> batch, int64_t max_tokens, const cluster::Comm& comm) {
    std::vector<int64_t> lengths;
    std::vector<double> costs;
    for (const DraftSample& sample : batch) {
      lengths.push_back(sample.pairs());
      costs.push_back(train::cost_of_tokens(0, sample.pairs()));
    }
    packs = train::plan_packs(lengths, max_tokens);
    const std::vector<int> owner = train::assign_packs(packs, costs, comm.size());
    for (size_t i = 0; i < packs.size(); ++i)
      if (owner[i] == comm.rank()) mine.push_back(i);
  }
};

}  // namespace

void check_samples(std::span<const DraftSample> samples, const DraftTrainOptions& options) {
  int64_t counted = 0;
  for (const DraftSample& sample : samples) {
    TLT_CHECK(sample.pairs() >= 1, "sample ", sample.id, " has ", sample.tokens.size(), " tokens");
    counted += sample.counted_pairs(options.positions());
  }
  TLT_CHECK_INPUT(counted > 0,
                  "no position counts in the draft model's loss: every response is shorter than "
                  "two tokens; use other data or raise data.max_response_length");
}

DraftTrainer::DraftTrainer(const drafter::DraftNetwork& network, const DraftTrainOptions& options,
                           cluster::Comm& comm, int64_t total_steps, int64_t logits_bytes)
    : network_(network),
      options_((options.check(), options)),
      comm_(comm),
      total_steps_(total_steps),
      passes_(passes_of(options, network)),
      optimizer_(network.parameters(), network.device(), options.optim),
      sum_(network.parameters(), network.device()),
      gradients_(network.make_gradients()),
      loss_(network, weights_of(options), logits_bytes) {}

DraftTrainer::Loaded DraftTrainer::load(std::span<const DraftSample> batch,
                                        std::span<const int64_t> pack) {
  tape_.clear();
  Loaded loaded;
  loaded.rows.resize(static_cast<size_t>(passes_));
  std::vector<at::Tensor> shown, wanted;
  for (const int64_t i : pack) {
    const DraftSample& sample = batch[static_cast<size_t>(i)];
    const at::Tensor states = sample.states();
    TLT_CHECK(
        states.size(0) == std::ssize(sample.tokens) && states.scalar_type() == network_.type(),
        "sample ", sample.id, " has states ", states.sizes(), " for ", sample.tokens.size(),
        " tokens");
    for (int64_t pass = 0; pass < passes_; ++pass)
      for (int64_t pair = first_pair_of_pass(sample, options_.positions(), pass);
           pair < sample.end_pair(); ++pair)
        loaded.rows[static_cast<size_t>(pass)].push_back(tape_.batch().rows() + pair);
    shown.push_back(feature_part(states, network_).narrow(0, 0, sample.pairs()));
    wanted.push_back(final_part(states, network_).narrow(0, 1, sample.pairs()));
    tape_.add_sequence(sample.tokens.data() + 1, static_cast<int32_t>(sample.pairs()));
  }
  loaded.shown = at::cat(shown).to(network_.device().torch());
  loaded.wanted = at::cat(wanted).to(network_.device().torch());
  return loaded;
}

DraftTrainStats DraftTrainer::step(std::span<const DraftSample> batch) {
  begin({batch.begin(), batch.end()});
  while (run_pack() > 0) {
  }
  return finish();
}

void DraftTrainer::begin(std::vector<DraftSample> batch, int64_t pack_tokens) {
  TLT_CHECK(!batch.empty(), "nothing to train on");
  check_samples(batch, options_);
  begun_ = {};
  begun_.sums.resize(static_cast<size_t>(passes_));
  for (const DraftSample& sample : batch) begun_.tokens += sample.pairs();
  for (int64_t pass = 0; pass < passes_; ++pass) {
    int64_t counted = 0;  // over all workers
    for (const DraftSample& sample : batch)
      counted += sample.end_pair() - first_pair_of_pass(sample, options_.positions(), pass);
    begun_.weights.push_back(counted > 0 ? std::pow(options_.pass_decay, pass) : 0);
    begun_.scales.push_back(counted > 0 ? begun_.weights.back() / static_cast<double>(counted) : 0);
  }
  Share share(batch, std::min(options_.max_tokens, pack_tokens), comm_);
  for (const size_t i : share.mine) begun_.packs.push_back(std::move(share.packs[i]));
  begun_.all_packs = std::ssize(share.packs);
  begun_.batch = std::move(batch);
  if (is_clear_) return;
  sum_.clear();
  gradients_.zero();
  is_clear_ = true;
}

int64_t DraftTrainer::run_pack() {
  report_progress();
  if (begun_.next_pack == begun_.packs.size()) return 0;
  is_clear_ = false;
  learn(load(begun_.batch, begun_.packs[begun_.next_pack++]));
  sum_.add(gradients_);
  begun_.run_tokens += tape_.batch().rows();
  return tape_.batch().rows();
}

int64_t DraftTrainer::next_pack_tokens() const {
  if (begun_.next_pack == begun_.packs.size()) return 0;
  int64_t pairs = 0;
  for (const int64_t i : begun_.packs[begun_.next_pack])
    pairs += begun_.batch[static_cast<size_t>(i)].pairs();
  return pairs;
}

// Forward and backward of a pack: adds to gradients_ and to the sums of each pass.
void DraftTrainer::learn(const Loaded& pack) {
  network_.forward(tape_, pack.shown);
  while (tape_.passes() < passes_) network_.run_ttt_pass(tape_);
  for (int64_t pass = passes_; pass-- > 0;) {
    const auto k = static_cast<size_t>(pass);
    const at::Tensor& d = loss_.backward({tape_.read(pass), pack.wanted, pack.rows[k]},
                                         begun_.scales[k], gradients_, begun_.sums[k]);
    network_.backward_pass(tape_, pass, d, gradients_);
  }
}

bool DraftTrainer::try_update(int64_t elements) {
  TLT_CHECK(!begun_.batch.empty(), "begin() was not called");
  const auto enter = [this](Phase phase) {
    begun_.phase = phase;
    begun_.place = {};
  };
  switch (begun_.phase) {
    case Phase::kSum:
      is_clear_ = false;
      begun_.fault = sum_.reduce(comm_);
      enter(Phase::kNorm);
      [[fallthrough]];
    case Phase::kNorm:
      if (begun_.fault.empty() && add_squares(elements)) return true;
      begin_update();
      enter(Phase::kLearn);
      [[fallthrough]];
    case Phase::kLearn:
      if (begun_.fault.empty() && optimizer_.try_update(sum_.view(), elements)) return true;
      enter(Phase::kClear);
      [[fallthrough]];
    case Phase::kClear:
      if (clear_sum(elements)) return true;
      is_clear_ = true;
      end_update();
      enter(Phase::kDone);
      [[fallthrough]];
    case Phase::kDone:
      break;
  }
  return false;
}

void DraftTrainer::begin_update() {
  begun_.rate = train::learning_rate(options_.optim, optimizer_.steps(), total_steps_);
  begun_.norm =
      begun_.fault.empty() ? std::sqrt(begun_.squares) : std::numeric_limits<double>::quiet_NaN();
  if (begun_.fault.empty()) optimizer_.begin_step(begun_.norm, begun_.rate);
}

void DraftTrainer::end_update() {
  if (begun_.fault.empty())
    optimizer_.end_step();
  else
    optimizer_.skip_step();
}

// Of the gradients, for their norm.
bool DraftTrainer::add_squares(int64_t elements) {
  const std::vector<train::Bucket> buckets = train::next_buckets(
      begun_.place, gradients_.tensors.size(), elements, train::bucket_elements(network_.device()),
      [&](size_t i) { return train::Extent{gradients_.tensors[i].numel()}; });
  sum_.view().read(buckets, [&](const train::Bucket& bucket, const at::Tensor& gradients) {
    train::for_spans(bucket, gradients, [&](const train::TensorSpan&, const at::Tensor& gradient) {
      train::add_squares(network_.device(), gradient, begun_.squares);
    });
  });
  return !buckets.empty();
}

bool DraftTrainer::clear_sum(int64_t elements) {
  return train::walk(
      begun_.place, gradients_.tensors.size(), elements,
      [&](size_t i) { return train::Extent{gradients_.tensors[i].numel()}; },
      [&](size_t i, int64_t first, int64_t last) { sum_.clear(i, first, last); });
}

DraftTrainStats DraftTrainer::finish() {
  TLT_CHECK(!begun_.batch.empty(), "begin() was not called");
  const bool is_whole = begun_.next_pack == begun_.packs.size();
  while (try_update(std::numeric_limits<int64_t>::max())) {
  }
  DraftTrainStats stats;
  stats.metrics = metrics_of_begun();
  stats.metrics.emplace_back("drafter/grad_norm", begun_.norm);
  stats.metrics.emplace_back("drafter/current_lr", begun_.rate);
  stats.fault = std::move(begun_.fault);
  stats.packs = begun_.all_packs;
  stats.tokens = is_whole ? begun_.tokens : begun_.run_tokens;
  begun_ = {};
  return stats;
}

// The metrics of the first pass, with the loss of all passes; and the accuracy of each later pass.
std::vector<std::pair<std::string, double>> DraftTrainer::metrics_of_begun() const {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;
  for (size_t k = 0; k < begun_.sums.size(); ++k) {
    const DraftSums all = DraftSums::of(comm_.all_reduce_sum(begun_.sums[k].values()));
    if (all.rows == 0) continue;
    auto of_pass = all.metrics(loss_weights(), "drafter/");
    loss += begun_.weights[k] * of_pass.front().second;
    if (k == 0)
      metrics = std::move(of_pass);
    else
      metrics.emplace_back("drafter/top1_accuracy_pos_" + std::to_string(k + 1),
                           all.top[0] / all.rows);
  }
  TLT_CHECK(!metrics.empty(), "no position counted in the step");
  metrics.front().second = loss;
  return metrics;
}

DraftSums DraftTrainer::measure(std::span<const DraftSample> samples) {
  check_samples(samples, options_);
  const Share share(samples, options_.max_tokens, comm_);
  DraftSums sums;
  for (const size_t i : share.mine) {
    const Loaded pack = load(samples, share.packs[i]);
    loss_.measure({network_.forward(tape_, pack.shown), pack.wanted, pack.rows.front()}, sums);
  }
  return DraftSums::of(comm_.all_reduce_sum(sums.values()));
}

}  // namespace tlt::drafter_training
