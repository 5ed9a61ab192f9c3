// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "train/policy_loss.h"

namespace tlt::train {
namespace {

// Stands for the denominators of the means until the mini-batch is complete: of the size of a
// response, so that the fixed-point sums stay far from their bounds.
const Denominators kOneResponse(/*tokens=*/1024, /*sequences=*/1);

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

std::vector<bool> learns_from(const TokenLoss& loss, std::span<const TrainSample> samples) {
  std::vector<bool> learns;
  for (const TrainSample& sample : samples) learns.push_back(loss.learns_from(sample));
  return learns;
}

// Of everything that the gradients of a group depend on.
uint32_t digest_of(std::span<const TrainSample> group) {
  ByteWriter bytes;
  for (const TrainSample& sample : group) {
    bytes.list(sample.tokens);
    bytes.value(sample.response_begin);
    bytes.list(sample.rollout_logprobs);
    bytes.list(sample.reference_logprobs);
    bytes.list(sample.advantages);
    bytes.list(sample.weights);
  }
  return crc32c(bytes.take());
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

// What has been computed of an optimizer step; its gradients are in sum_.
struct Trainer::Progress {
  std::unique_ptr<TokenLoss> loss;
  Difference difference = {};
  // By group and index of the pack: the sums of the loss.
  std::map<std::pair<int64_t, size_t>, std::vector<double>> packs = {};
  std::map<int64_t, uint32_t> digests = {};  // of groups that were computed early
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

Trainer::~Trainer() = default;

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
  if (kind == LossKind::kSupervised) start(std::make_unique<SupervisedLoss>(samples));
  if (!progress_) start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  const PackPlan plan(samples, learns_from(*progress_->loss, samples), options_.max_tokens);
  const std::vector<size_t> mine = plan.share(take_early(plan, samples), comm_);
  for (size_t i = 0; i < mine.size(); ++i) {
    compute(plan, mine[i]);
    if (on_pack_) on_pack_(static_cast<int64_t>(i) + 1, std::ssize(mine));
  }
  const std::unique_ptr<Progress> done = std::exchange(progress_, nullptr);
  done->loss->complete(samples);
  sum_.reduce(comm_);
  sum_.read(gradients_, done->loss->gradient_scale());
  const double rate = learning_rate(options_.optim, optimizer_.steps(), run_.total_steps);
  const double norm = optimizer_.step(gradients_, rate);
  if (run_.adapter) run_.adapter->merge();
  gradients_.zero();
  TrainStats stats = statistics(*done, plan);
  for (const TrainSample& sample : samples)
    stats.tokens += static_cast<int64_t>(sample.tokens.size());
  stats.metrics.emplace_back("actor/grad_norm", norm);
  stats.metrics.emplace_back("actor/lr", rate);
  return stats;
}

void Trainer::start(std::unique_ptr<TokenLoss> loss) {
  progress_ = std::make_unique<Progress>(Progress{.loss = std::move(loss)});
  sum_.clear();
}

bool Trainer::compute_early(std::span<const TrainSample> group) {
  if (!progress_) start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  const PackPlan plan(group, learns_from(*progress_->loss, group), options_.max_tokens);
  size_t next = 0;
  while (next < plan.packs().size() && progress_->packs.contains(plan.packs()[next].key())) ++next;
  TLT_CHECK(next < plan.packs().size(), "group ", group.front().group, " has no pack left");
  progress_->digests[group.front().group] = digest_of(group);
  compute(plan, next);
  return next + 1 < plan.packs().size();
}

// Which packs of the plan were computed early, by any worker. If the samples have changed since, or
// two workers have computed a pack, all of them start again. All workers together.
std::vector<bool> Trainer::take_early(const PackPlan& plan, std::span<const TrainSample> samples) {
  std::map<int64_t, uint32_t> digests;
  for (const std::span<const TrainSample> group : groups_of(samples))
    if (progress_->digests.contains(group.front().group))
      digests[group.front().group] = digest_of(group);
  std::vector<double> claims;  // by pack: how many workers have computed it
  for (const PlannedPack& pack : plan.packs())
    claims.push_back(progress_->packs.contains(pack.key()));
  claims.push_back(digests != progress_->digests);
  claims = comm_.all_reduce_sum(claims);
  std::vector<bool> is_done;
  for (const double claim : claims) is_done.push_back(claim > 0);
  const bool have_changed = is_done.back();
  is_done.pop_back();
  if (!have_changed && std::ranges::all_of(claims, [](double claim) { return claim <= 1; }))
    return is_done;
  log_warning(
      "gradients that were computed during the rollouts are not those of the batch; "
      "computing them again");
  start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  return std::vector<bool>(is_done.size());
}

// Adds the pack's gradients to sum_.
void Trainer::compute(const PackPlan& plan, size_t index) {
  const HeadLoss::See see = std::ref(progress_->difference);
  TokenLoss& loss = *progress_->loss;
  const PlannedPack& pack = plan.packs()[index];
  const std::vector<PackedSample> samples = plan.load(pack, tape_);
  const at::Tensor& hidden = model_.forward(tape_);
  if (pack.learns) {
    const at::Tensor& d_hidden = head_.backward(hidden, samples, loss, backward_, see);
    model_.backward(tape_, d_hidden, backward_);
    sum_.add(gradients_);
  } else {
    head_.measure(hidden, samples, loss, see);
  }
  progress_->packs[pack.key()] = loss.take_sums();
}

// The sums are added in the plan's order, so they do not depend on the workers. All workers
// together.
TrainStats Trainer::statistics(const Progress& done, const PackPlan& plan) {
  const size_t width = done.loss->take_sums().size();
  std::vector<double> by_pack(plan.packs().size() * width), sums(width);
  for (size_t i = 0; i < plan.packs().size(); ++i)
    if (const auto found = done.packs.find(plan.packs()[i].key()); found != done.packs.end())
      std::ranges::copy(found->second, by_pack.begin() + static_cast<std::ptrdiff_t>(i * width));
  by_pack = comm_.all_reduce_sum(by_pack);
  for (size_t i = 0; i < by_pack.size(); ++i) sums[i % width] += by_pack[i];
  TrainStats stats;
  done.difference.reduce(comm_, stats);
  stats.metrics = done.loss->metrics(sums);
  stats.packs = std::ssize(plan.packs());
  stats.optimizer_bytes = optimizer_.bytes();
  return stats;
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
  const PackPlan plan(samples, std::vector<bool>(samples.size()), max_tokens);
  ByteWriter mine;  // (sample, logprobs) of this worker's packs, for the other workers
  for (const size_t i : plan.share(std::vector<bool>(plan.packs().size()), comm)) {
    const std::vector<PackedSample> pack = plan.load(plan.packs()[i], tape);
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
