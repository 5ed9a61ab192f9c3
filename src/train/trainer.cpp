// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "train/packing.h"
#include "train/policy_loss.h"
#include "train/prefix_groups.h"

namespace tlt::train {
namespace {

// The packs of some samples of a batch, and the ones that this worker computes.
class Share {
 public:
  // `members`: indices into the batch, ascending.
  Share(std::span<const TrainSample> batch, const std::vector<int64_t>& members, int64_t max_tokens,
        const cluster::Comm& comm)
      : batch_(batch), groups_(plan_prefix_groups(batch, members, max_tokens)) {
    std::vector<int64_t> lengths;
    std::vector<double> costs;
    for (const PrefixGroup& group : groups_) {
      lengths.push_back(group.tokens);
      costs.push_back(group.cost);
    }
    std::vector<Pack> packs = plan_packs(lengths, max_tokens);
    packs_ = std::ssize(packs);
    const std::vector<int> owner = assign_packs(packs, costs, comm.size());
    for (size_t i = 0; i < packs.size(); ++i)
      if (owner[i] == comm.rank()) mine_.push_back(std::move(packs[i]));
  }

  int64_t packs() const { return packs_; }  // of all workers
  const std::vector<Pack>& mine() const { return mine_; }

  // Adds the pack's samples to the tape.
  std::vector<PackedSample> load(const Pack& pack, model::Tape& tape) const {
    tape.clear();
    std::vector<PackedSample> packed;
    for (const int64_t i : pack) load(groups_[static_cast<size_t>(i)], tape, packed);
    return packed;
  }

 private:
  void load(const PrefixGroup& group, model::Tape& tape, std::vector<PackedSample>& packed) const {
    const auto prefix = static_cast<int32_t>(group.prefix);
    if (prefix > 0) tape.add_sequence(sample_of(group.samples.front()).tokens.data(), prefix);
    for (const int64_t i : group.samples) {
      const TrainSample& sample = sample_of(i);
      const auto size = static_cast<int32_t>(sample.tokens.size());
      packed.push_back({&sample, tape.batch().rows() - prefix});
      if (prefix > 0) {
        tape.add_suffix(sample.tokens.data() + prefix, size - prefix);
      } else {
        tape.add_sequence(sample.tokens.data(), size);
      }
    }
  }
  const TrainSample& sample_of(int64_t i) const { return batch_[static_cast<size_t>(i)]; }

  const std::span<const TrainSample> batch_;
  const std::vector<PrefixGroup> groups_;
  int64_t packs_ = 0;
  std::vector<Pack> mine_;  // packs of prefix groups
};

std::unique_ptr<TokenLoss> make_loss(LossKind kind, const LossOptions& options,
                                     std::span<const TrainSample> batch) {
  if (kind == LossKind::kSupervised) return std::make_unique<SupervisedLoss>(batch);
  return std::make_unique<PolicyLoss>(options, batch);
}

// Largest difference between the trainer's logprobs and the rollout's.
struct Difference {
  double logprob = 0, probability = 0;
  bool known = false;

  void operator()(const TrainSample& sample, int64_t first, std::span<const float> logprobs) {
    if (sample.rollout_logprobs.empty()) return;
    known = true;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      const double mine = logprobs[i],
                   theirs = sample.rollout_logprobs[static_cast<size_t>(first) + i];
      logprob = std::max(logprob, std::abs(mine - theirs));
      probability = std::max(probability, std::abs(std::exp(mine) - std::exp(theirs)));
    }
  }
  // Of all workers.
  void reduce(cluster::Comm& comm, TrainStats& stats) const {
    at::Tensor all = at::tensor({logprob, probability, known ? 1.0 : 0.0}, at::kDouble);
    comm.all_reduce_max(all);
    if (all[2].item<double>() == 0) return;
    stats.logprob_difference = all[0].item<double>();
    stats.probability_difference = all[1].item<double>();
  }
};

// The samples that the loss learns from, or the others.
std::vector<int64_t> indices_of(std::span<const TrainSample> samples, const TokenLoss& loss,
                                bool learns) {
  std::vector<int64_t> selected;
  for (size_t i = 0; i < samples.size(); ++i)
    if (loss.learns_from(samples[i]) == learns) selected.push_back(static_cast<int64_t>(i));
  return selected;
}

const std::vector<model::Parameter>& learning(const model::PolicyModel& model,
                                              const LoraAdapter* adapter) {
  return adapter ? adapter->parameters() : model.parameters();
}

}  // namespace

void TrainerOptions::check() const {
  TLT_CHECK_INPUT(ppo_mini_batch_size >= 0 && ppo_epochs >= 1 && max_tokens >= 1,
                  "actor.ppo_mini_batch_size must be at least 0, ppo_epochs and "
                  "ppo_max_token_len_per_gpu at least 1");
  loss.check();
  optim.check();
}

// The samples of an optimizer step, in packs, and what is measured while these are computed.
struct Trainer::MiniBatch {
  MiniBatch(std::span<const TrainSample> samples, LossKind kind, const TrainerOptions& options,
            const cluster::Comm& comm)
      : samples(samples),
        loss(make_loss(kind, options.loss, samples)),
        to_learn(samples, indices_of(samples, *loss, /*learns=*/true), options.max_tokens, comm),
        to_measure(samples, indices_of(samples, *loss, /*learns=*/false), options.max_tokens,
                   comm) {}

  // All workers together.
  TrainStats stats(cluster::Comm& comm) {
    TrainStats stats;
    difference.reduce(comm, stats);
    stats.metrics = loss->metrics(comm.all_reduce_sum(loss->sums()));
    stats.packs = to_learn.packs() + to_measure.packs();
    for (const TrainSample& sample : samples)
      stats.tokens += static_cast<int64_t>(sample.tokens.size());
    return stats;
  }

  const std::span<const TrainSample> samples;
  const std::unique_ptr<TokenLoss> loss;
  const Share to_learn, to_measure;
  Difference difference;
};

Trainer::Trainer(const model::PolicyModel& model, const TrainerOptions& options,
                 cluster::Comm& comm, const TrainingRun& run)
    : model_(model),
      options_(options),
      comm_(comm),
      run_(run),
      optimizer_(learning(model, run.adapter), model.device(), options.optim,
                 options.use_distributed_optimizer ? &comm : nullptr),
      sum_(learning(model, run.adapter), model.device()),
      gradients_(model::make_gradients(model.device(), learning(model, run.adapter))),
      backward_(run.adapter ? run.adapter->route(gradients_) : gradients_),
      tape_(model, options.recompute),
      head_(model, run.temperature) {
  options.check();
  // A rank with a different setting would deadlock in the collectives.
  const double sharers =
      comm.all_reduce_sum(std::vector<double>{optimizer_.is_shared() ? 1.0 : 0.0})[0];
  TLT_CHECK_INPUT(sharers == 0 || sharers == comm.size(),
                  "actor.use_distributed_optimizer is true on ", sharers, " of ", comm.size(),
                  " workers; give every worker the same recipe and overrides");
}

TrainStats Trainer::update(std::span<const TrainSample> samples, LossKind kind,
                           int64_t samples_per_step) {
  TLT_CHECK(!samples.empty(), "nothing to train on");
  const size_t size = samples_per_step > 0 ? static_cast<size_t>(samples_per_step) : samples.size();
  TrainStats total;
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < options_.ppo_epochs; ++epoch)
    for (size_t first = 0; first < samples.size(); first += size, ++steps) {
      TrainStats stats = step(samples.subspan(first, std::min(size, samples.size() - first)), kind);
      if (steps == 0) {
        total = std::move(stats);
        continue;
      }
      for (size_t i = 0; i < total.metrics.size(); ++i)
        total.metrics[i].second += stats.metrics[i].second;
      total.packs += stats.packs;
      total.tokens += stats.tokens;
    }
  for (auto& [name, value] : total.metrics) value /= static_cast<double>(steps);
  return total;
}

TrainStats Trainer::step(std::span<const TrainSample> samples, LossKind kind) {
  MiniBatch batch(samples, kind, options_, comm_);
  sum_.clear();
  compute(batch);
  sum_.reduce(comm_);
  sum_.read(gradients_);
  const double rate = learning_rate(options_.optim, optimizer_.steps(), run_.total_steps);
  const double norm = optimizer_.step(gradients_, rate);
  if (run_.adapter) run_.adapter->merge();
  gradients_.zero();
  TrainStats stats = batch.stats(comm_);
  stats.metrics.emplace_back("actor/grad_norm", norm);
  stats.metrics.emplace_back("actor/lr", rate);
  stats.optimizer_bytes = optimizer_.bytes();
  return stats;
}

void Trainer::compute(MiniBatch& batch) {
  const HeadLoss::See see = std::ref(batch.difference);
  const int64_t packs = std::ssize(batch.to_learn.mine()) + std::ssize(batch.to_measure.mine());
  int64_t done = 0;
  const auto report_pack = [&] {
    if (on_pack_) on_pack_(++done, packs);
  };
  for (const Pack& members : batch.to_learn.mine()) {
    const std::vector<PackedSample> pack = batch.to_learn.load(members, tape_);
    const at::Tensor& hidden = model_.forward(tape_);
    const at::Tensor& d_hidden = head_.backward(hidden, pack, *batch.loss, backward_, see);
    model_.backward(tape_, d_hidden, backward_);
    sum_.add(gradients_);
    report_pack();
  }
  for (const Pack& members : batch.to_measure.mine()) {
    const std::vector<PackedSample> pack = batch.to_measure.load(members, tape_);
    head_.measure(model_.forward(tape_), pack, *batch.loss, see);
    report_pack();
  }
}

std::vector<std::vector<float>> score_samples(const model::PolicyModel& model,
                                              std::span<const TrainSample> samples,
                                              double temperature, int64_t max_tokens,
                                              cluster::Comm& comm) {
  std::vector<std::vector<float>> logprobs(samples.size());
  for (size_t i = 0; i < samples.size(); ++i)
    logprobs[i].resize(static_cast<size_t>(samples[i].response_size()));
  model::Tape tape(model, /*recompute=*/true);
  HeadLoss head(model, temperature);
  std::vector<int64_t> all(samples.size());
  std::iota(all.begin(), all.end(), 0);
  const Share share(samples, all, max_tokens, comm);
  ByteWriter mine;  // (sample, logprobs) of this worker's packs, for the other workers
  for (const Pack& members : share.mine()) {
    const std::vector<PackedSample> pack = share.load(members, tape);
    head.score(model.forward(tape), pack,
               [&](const TrainSample& sample, int64_t first, std::span<const float> values) {
                 std::copy(values.begin(), values.end(),
                           logprobs[static_cast<size_t>(&sample - samples.data())].begin() + first);
               });
    for (const PackedSample& packed : pack) {
      const int64_t i = packed.sample - samples.data();
      mine.value(i);
      mine.list(logprobs[static_cast<size_t>(i)]);
    }
  }
  for (const std::string& bytes : comm.all_gather_bytes(mine.take()))
    for (ByteReader in(bytes); !in.at_end();) {
      const auto i = in.value<int64_t>();
      logprobs.at(static_cast<size_t>(i)) = in.list<std::vector<float>>();
    }
  return logprobs;
}

}  // namespace tlt::train
