// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "train/policy_loss.h"
#include "train/preference_loss.h"
#include "train/trained_parameters.h"
#include "train/value_loss.h"

namespace tlt::train {
namespace {

// Stands for the denominators of the means until the mini-batch is complete: of the size of a
// response, so that the fixed-point sums stay far from their bounds.
const Denominators kOneResponse(/*tokens=*/1024, /*sequences=*/1);

// Of a response whose logprobs are compared although its gradients are another worker's. All workers
// wait for each other afterwards: whole responses would take as long as the longest of them.
constexpr int64_t kComparedTokens = 256;

// The sample with the first tokens of its response, as far as their logprobs need it.
TrainSample beginning_of(const TrainSample& sample, int64_t response_tokens) {
  const int64_t count = std::min(sample.response_size(), response_tokens);
  const auto first = [](const auto& values, int64_t most) {
    return std::vector(values.begin(), values.begin() + std::min(std::ssize(values), most));
  };
  TrainSample beginning;
  beginning.tokens = first(sample.tokens, sample.response_begin + count);
  beginning.response_begin = sample.response_begin;
  beginning.rollout_logprobs = first(sample.rollout_logprobs, count);
  beginning.weights = first(sample.weights, count);
  beginning.id = sample.id;
  return beginning;
}

// Largest difference between the trainer's logprobs and the rollout's.
struct Difference {
  double logprob = 0, probability = 0;
  bool known = false;

  void operator()(const TrainSample& sample, int64_t first, std::span<const float> logprobs) {
    if (sample.rollout_logprobs.empty()) return;
    known = true;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      if (sample.weight(first + static_cast<int64_t>(i)) == 0) continue;  // not sampled
      const double mine = logprobs[i],
                   theirs = sample.rollout_logprobs[static_cast<size_t>(first) + i];
      logprob = larger(logprob, std::abs(mine - theirs));
      probability = larger(probability, std::abs(std::exp(mine) - std::exp(theirs)));
    }
  }
  // NaN counts as infinite.
  static double larger(double a, double b) {
    return std::max(a, std::isnan(b) ? std::numeric_limits<double>::infinity() : b);
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
    bytes.list(sample.rollout_entropies);
    bytes.list(sample.reference_logprobs);
    bytes.list(sample.advantages);
    bytes.list(sample.weights);
  }
  return crc32c(bytes.take());
}

// Which packs have only known samples.
std::vector<bool> known_packs(const PackPlan& plan, const std::vector<double>& is_known) {
  const auto knows = [&](int64_t i) { return is_known[static_cast<size_t>(i)] > 0; };
  std::vector<bool> packs;
  for (const PlannedPack& pack : plan.packs())
    packs.push_back(std::ranges::all_of(pack.members, [&](const PrefixGroup& group) {
      return std::ranges::all_of(group.samples, knows);
    }));
  return packs;
}

// What a worker computes.
const model::PolicyModel& computed(const model::PolicyModel& model, const TrainingRun& run) {
  return run.group ? run.group->shard->part() : model;
}

// Adds an optimizer step to those of an update; the differences are those of the first one.
void add_step(TrainStats step, TrainStats& total) {
  if (total.steps == 0) {
    total = std::move(step);
    total.steps = 1;
    return;
  }
  TLT_CHECK_INPUT(total.metrics.size() == step.metrics.size(),
                  "the optimizer steps that were done have other metrics; delete the checkpoint "
                  "within the step to resume from the one before it");
  ++total.steps;
  for (size_t i = 0; i < total.metrics.size(); ++i)
    total.metrics[i].second += step.metrics[i].second;
  total.packs += step.packs;
  total.tokens += step.tokens;
  total.skipped_steps += step.skipped_steps;
  if (!step.fault.empty()) total.fault = std::move(step.fault);
}

const std::vector<model::Parameter>& learning(const model::PolicyModel& model,
                                              const TrainingRun& run) {
  return run.critic ? run.critic->parameters() : trained_parameters(model, run.adapter);
}

// For a backward pass, which then adds to `gradients`.
model::Gradients route(const model::Gradients& gradients, const TrainingRun& run) {
  return run.critic    ? run.critic->route(gradients)
         : run.adapter ? run.adapter->route(gradients)
                       : gradients;
}

Optimizer make_optimizer(const model::PolicyModel& model, const TrainerOptions& options,
                         cluster::Comm& comm, const TrainingRun& run) {
  if (run.group)
    return Optimizer(*run.group->shard, options.optim,
                     /*takes_snapshots=*/run.group->replicas->rank() == 0);
  return Optimizer(learning(model, run), model.device(), options.optim,
                   options.use_distributed_optimizer ? &comm : nullptr);
}

}  // namespace

void TrainerOptions::check() const {
  TLT_CHECK_INPUT(ppo_mini_batch_size >= 0 && ppo_epochs >= 1 && max_tokens >= 1,
                  "actor.ppo_mini_batch_size must be at least 0, ppo_epochs and "
                  "ppo_max_token_len_per_gpu at least 1");
  loss.check();
  optim.check();
}

// What has been computed of an optimizer step; the gradients of its packs are in sum_.
struct Trainer::Progress {
  // A pack on the tape; its gradients are in sum_ too, but for those in staged_.
  struct Pass {
    PlannedPack pack;
    std::vector<PackedSample> samples;
    bool is_last = false;                       // of its group
    const at::Tensor* d_hidden = nullptr;       // null: still in the forward pass
    double done = 0;                            // layers; one of the backward pass counts as two
    bool is_forward = true, is_teacher = true;  // passes that are to be continued
  };
  std::unique_ptr<TokenLoss> loss;
  Difference difference = {};
  // By group and index of the pack: the sums of the loss.
  std::map<std::pair<int64_t, size_t>, std::vector<double>> packs = {};
  std::map<int64_t, uint32_t> digests = {};  // of groups that were computed early
  std::optional<Pass> pass = {};

  // Done, or in progress.
  bool has(const PlannedPack& pack) const {
    return packs.contains(pack.key()) || (pass && pass->pack.key() == pack.key());
  }
};

// What the workers have computed of a plan before the update.
struct Trainer::Early {
  std::vector<bool> is_done;  // by pack: or in progress
  std::vector<double> loads;  // by worker: what is left of its pack in progress
};

Trainer::Trainer(const model::PolicyModel& model, const TrainerOptions& options,
                 cluster::Comm& comm, const TrainingRun& run)
    : model_(computed(model, run)),
      options_(options),
      comm_(run.group ? *run.group->replicas : comm),
      run_(run),
      optimizer_(make_optimizer(model_, options, comm, run)),
      sum_(learning(model_, run), model.device()),
      staged_(model.device(), learning(model_, run), model.backward_stages()),
      backward_(route(staged_.gradients(), run)),
      tape_(model_, options.recompute),
      lm_head_(model_, run.temperature),
      value_head_(run.critic ? std::optional<ValueHead>(*run.critic) : std::nullopt),
      head_(value_head_ ? static_cast<OutputHead&>(*value_head_) : lm_head_) {
  options.check();
  TLT_CHECK(!run.critic || (&run.critic->network() == &model && !run.adapter && !run.teacher));
  TLT_CHECK(!run.group || (&run.group->shard->model() == &model && !run.critic && !run.adapter &&
                           !run.teacher && !options.use_distributed_optimizer));
  if (run.teacher && options.loss.distillation.is_exact()) {
    teacher_tape_.emplace(*run.teacher, /*recompute=*/true);
    lm_head_.set_teacher(*run.teacher, {.is_forward = options.loss.distillation.is_forward(),
                                        .top_k = options.loss.distillation.top_k});
  }
  // A rank with a different setting would deadlock in the collectives.
  const double sharers =
      comm.all_reduce_sum(std::vector<double>{optimizer_.is_shared() ? 1.0 : 0.0})[0];
  TLT_CHECK_INPUT(sharers == 0 || sharers == comm.size(),
                  "actor.use_distributed_optimizer is true on ", sharers, " of ", comm.size(),
                  " workers; give every worker the same recipe and overrides");
}

Trainer::~Trainer() = default;

TrainStats Trainer::update(std::span<const TrainSample> samples, LossKind kind,
                           int64_t samples_per_step, TrainStats done) {
  TLT_CHECK(!samples.empty(), "nothing to train on");
  const size_t size = samples_per_step > 0 ? static_cast<size_t>(samples_per_step) : samples.size();
  TrainStats total = std::move(done);
  total.is_abandoned = false;
  int64_t step_of_update = 0;
  for (int64_t epoch = 0; epoch < options_.ppo_epochs; ++epoch)
    for (size_t first = 0; first < samples.size(); first += size) {
      if (step_of_update++ < total.steps) continue;
      if (!total.fault.empty() && has_skipped_too_many()) break;
      TrainStats stats = step(samples.subspan(first, std::min(size, samples.size() - first)), kind,
                              /*is_first=*/total.steps == 0);
      if (stats.is_abandoned) {
        total.is_abandoned = true;
        return total;
      }
      add_step(std::move(stats), total);
    }
  for (auto& [name, value] : total.metrics) value /= static_cast<double>(total.steps);
  return total;
}

TrainStats Trainer::step(std::span<const TrainSample> samples, LossKind kind, bool is_first) {
  TrainStats stats;
  bool is_again = false;
  comm_.section("gradients", [&] {
    // The sum has been changed, or has gradients of this worker only.
    if (std::exchange(is_again, true)) progress_.reset();
    stats = sum_gradients(samples, kind, is_first);
  });
  if (stats.is_abandoned) return stats;
  const double rate = learning_rate(options_.optim, optimizer_.steps(), run_.total_steps);
  const double norm =
      stats.fault.empty() ? update_weights(rate) : std::numeric_limits<double>::quiet_NaN();
  if (!stats.fault.empty()) optimizer_.skip_step();
  sum_.clear();  // large ones take no memory until the next pack
  is_sum_clear_ = true;
  for (const TrainSample& sample : samples)
    stats.tokens += static_cast<int64_t>(sample.tokens.size());
  const std::string name = run_.critic ? "critic/" : "actor/";
  stats.metrics.emplace_back(name + "grad_norm", norm);
  stats.metrics.emplace_back(name + "lr", rate);
  return stats;
}

// Of all workers; if they are valid, sum_ has what the optimizer needs of them afterwards. Changes no
// weights.
TrainStats Trainer::sum_gradients(std::span<const TrainSample> samples, LossKind kind,
                                  bool is_first) {
  TLT_CHECK((kind == LossKind::kValue) == (run_.critic != nullptr), "the loss of another model");
  if (kind == LossKind::kSupervised)
    start(std::make_unique<SupervisedLoss>(samples, options_.loss.distillation));
  if (kind == LossKind::kPreference)
    start(std::make_unique<PreferenceLoss>(options_.loss.dpo, samples));
  if (kind == LossKind::kValue) start(std::make_unique<ValueLoss>(options_.loss, samples));
  if (!progress_) start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  const bool is_shown = try_show_batch(samples);
  const PackPlan plan(samples, learns_from(*progress_->loss, samples), options_.max_tokens,
                      /*is_on_policy=*/is_first && kind == LossKind::kPolicy);
  const Early early = take_early(plan, samples);
  const bool is_complete =
      try_compute(plan, plan.share(early.is_done, comm_, early.loads)) && is_shown;
  if (should_stop_ && comm_.all_reduce_sum(std::vector<double>{is_complete ? 0.0 : 1.0})[0] > 0) {
    progress_.reset();
    TrainStats abandoned;
    abandoned.is_abandoned = true;
    return abandoned;
  }
  if (is_first && kind == LossKind::kPolicy) compare_with_others(plan, samples);
  const std::unique_ptr<Progress> done = std::exchange(progress_, nullptr);
  done->loss->complete(samples);
  std::string fault = agreed_fault(sum_.reduce(comm_, optimizer_.shards()));
  gradient_scale_ = done->loss->gradient_scale();
  TrainStats stats = statistics(*done, plan);
  stats.skipped_steps = fault.empty() ? 0 : 1;
  stats.fault = std::move(fault);
  return stats;
}

// The ranks of a group have the gradients of different parts; one that is invalid is so for all.
std::string Trainer::agreed_fault(const std::string& own) const {
  if (!run_.group) return own;
  for (const std::string& fault : run_.group->members->all_gather_bytes(own))
    if (!fault.empty()) return fault;
  return "";
}

// The ranks of a group compute a pack together, and so all of them stop, or none.
bool Trainer::should_stop() const {
  if (!should_stop_) return false;
  const bool own = should_stop_();
  if (!run_.group) return own;
  return run_.group->members->all_reduce_sum(std::vector<double>{own ? 1.0 : 0.0})[0] > 0;
}

// Returns the norm of the gradient.
double Trainer::update_weights(double rate) {
  const double norm = optimizer_.step(sum_.view(gradient_scale_), rate);
  if (run_.adapter) run_.adapter->merge();
  return norm;
}

void Trainer::start(std::unique_ptr<TokenLoss> loss) {
  progress_ = std::make_unique<Progress>(Progress{.loss = std::move(loss)});
  staged_.clear();
  if (!std::exchange(is_sum_clear_, false)) sum_.clear();
}

void Trainer::release_memory() {
  TLT_CHECK(!progress_ || !progress_->pass, "a pack is in progress");
  tape_.release_memory();
  if (teacher_tape_) teacher_tape_->release_memory();
}

// For a loss that depends on the whole mini-batch: one more forward pass. All workers together.
// False: this one has stopped before it had its share.
bool Trainer::try_show_batch(std::span<const TrainSample> samples) {
  if (!progress_->loss->wants_batch()) return true;
  bool has_stopped = false;
  const auto is_stopped = [&] { return has_stopped = has_stopped || should_stop(); };
  const std::vector<std::vector<float>> logprobs = score_samples(model_, samples,
                                                                 {.temperature = run_.temperature,
                                                                  .max_tokens = options_.max_tokens,
                                                                  .should_stop = is_stopped},
                                                                 comm_);
  progress_->loss->see_batch(samples, logprobs, optimizer_.steps());
  return !has_stopped;
}

bool Trainer::compute_early(std::span<const TrainSample> group) {
  TLT_CHECK(!run_.group, "a rank of a group computes no pack alone");
  if (!progress_) start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  TLT_CHECK(!progress_->loss->wants_batch(), "this loss needs the whole mini-batch");
  if (!progress_->pass) {
    const PackPlan plan(group, learns_from(*progress_->loss, group), options_.max_tokens,
                        /*is_on_policy=*/true);
    const auto next = std::ranges::find_if_not(
        plan.packs(), [&](const PlannedPack& pack) { return progress_->has(pack); });
    TLT_CHECK(next != plan.packs().end(), "group ", group.front().group, " has no pack left");
    progress_->digests[group.front().group] = digest_of(group);
    begin_pack(plan, *next);
    progress_->pass->is_last = next + 1 == plan.packs().end();
  }
  TLT_CHECK(progress_->pass->pack.group == group.front().group, "group ",
            progress_->pass->pack.group, " is in progress");
  const bool is_last = progress_->pass->is_last;
  return advance_pack() || !is_last;
}

// What was computed early, by any worker. If the samples have changed since, or two workers have
// computed a pack, all of them start again. All workers together.
Trainer::Early Trainer::take_early(const PackPlan& plan, std::span<const TrainSample> samples) {
  std::map<int64_t, uint32_t> digests;
  for (const std::span<const TrainSample> group : groups_of(samples))
    if (progress_->digests.contains(group.front().group))
      digests[group.front().group] = digest_of(group);
  const size_t packs = plan.packs().size(), workers = static_cast<size_t>(comm_.size());
  std::vector<double> found;  // by pack: how many workers have it; by worker: its load; changes
  for (const PlannedPack& pack : plan.packs()) found.push_back(progress_->has(pack));
  found.resize(packs + workers);
  found[packs + static_cast<size_t>(comm_.rank())] = cost_left();
  found.push_back(digests != progress_->digests);
  found = comm_.all_reduce_sum(found);
  const auto claims = std::span(found).first(packs);
  if (found.back() == 0 && std::ranges::all_of(claims, [](double claim) { return claim <= 1; }))
    return {.is_done = std::vector<bool>(claims.begin(), claims.end()),
            .loads = std::vector<double>(found.begin() + std::ssize(claims), found.end() - 1)};
  log_warning(
      "gradients that were computed during the rollouts are not those of the batch; "
      "computing them again");
  start(std::make_unique<PolicyLoss>(options_.loss, kOneResponse));
  return {.is_done = std::vector<bool>(packs), .loads = {}};
}

// The pack in progress, then these. False: stopped before the last one.
bool Trainer::try_compute(const PackPlan& plan, const std::vector<size_t>& indices) {
  const auto try_finish_pack = [&] {
    while (progress_->pass) {
      if (should_stop()) return false;
      advance_pack();
    }
    return true;
  };
  if (!try_finish_pack()) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    begin_pack(plan, plan.packs()[indices[i]]);
    if (!try_finish_pack()) return false;
    if (on_pack_) on_pack_(static_cast<int64_t>(i) + 1, std::ssize(indices));
  }
  return true;
}

// Gradients of a worker's own rollouts, as early ones are, cannot show that its weights are not those
// of the others. So each worker also scores the beginning of a response of a pack that another one has
// computed: one of these two has not sampled it. If no pack needs a pass, of any response.
void Trainer::compare_with_others(const PackPlan& plan, std::span<const TrainSample> samples) {
  std::vector<size_t> others;  // a sample of each of their packs
  const bool needs_passes = !std::ranges::all_of(plan.packs(), &PlannedPack::is_known);
  for (const PlannedPack& pack : plan.packs())
    if (!needs_passes || (!pack.is_known && !progress_->packs.contains(pack.key())))
      others.push_back(static_cast<size_t>(pack.members.front().samples.front()));
  if (others.empty()) return;
  const auto turn = static_cast<size_t>(optimizer_.steps() + comm_.rank());
  const TrainSample beginning =
      beginning_of(samples[others[turn % others.size()]], kComparedTokens);
  const PackPlan single({&beginning, 1}, std::vector<bool>{false}, options_.max_tokens);
  const std::vector<PackedSample> pack = single.load(single.packs().front(), tape_);
  lm_head_.score(model_.forward(tape_), pack, std::ref(progress_->difference));
}

void Trainer::begin_pack(const PackPlan& plan, const PlannedPack& pack) {
  progress_->pass.emplace(Progress::Pass{.pack = pack, .samples = plan.load(pack, tape_)});
  progress_->pass->is_teacher = teacher_tape_ && pack.learns;
  if (progress_->pass->is_teacher) plan.load(pack, *teacher_tape_);
}

// Goes one layer further; false: the pack is done, and its gradients are in sum_.
bool Trainer::advance_pack() {
  report_progress();
  Progress::Pass& pass = *progress_->pass;
  if (pass.pack.is_known) {
    measure_rollouts();
    end_pack();
    return false;
  }
  pass.done += pass.d_hidden ? 2 : 1;
  if (pass.d_hidden) {
    const bool is_last = !model_.backward_layer(tape_, *pass.d_hidden, backward_);
    staged_.end_stage(sum_);
    if (is_last) end_pack();
    return !is_last;
  }
  if (advance_forward()) return true;
  OutputHead::See see = std::ref(progress_->difference);
  if (run_.critic) see = [](const TrainSample&, int64_t, std::span<const float>) {};
  TokenLoss& loss = *progress_->loss;
  if (pass.pack.learns) {
    pass.d_hidden = &head_.backward(tape_.hidden(), pass.samples, loss, backward_, see);
    staged_.end_stage(sum_);
    return true;
  }
  head_.measure(tape_.hidden(), pass.samples, loss, see);
  end_pack();
  return false;
}

// The pack in progress, as a forward pass would.
void Trainer::measure_rollouts() {
  const std::vector<PackedSample>& samples = progress_->pass->samples;
  TokenLoss& loss = *progress_->loss;
  if (loss.wants_preview())
    for (const PackedSample& packed : samples)
      loss.preview(*packed.sample, /*first=*/0, packed.sample->rollout_logprobs);
  std::vector<float> zeros;
  for (const auto& [sample, row] : samples) {
    zeros.resize(sample->rollout_logprobs.size());
    loss.add({.sample = *sample,
              .first = 0,
              .logprobs = sample->rollout_logprobs,
              .entropies = sample->rollout_entropies},
             {.d_logprob = zeros, .d_entropy = zeros});
  }
}

// A layer of the model, then of the teacher; false: both are done.
bool Trainer::advance_forward() {
  Progress::Pass& pass = *progress_->pass;
  if (pass.is_forward) {
    pass.is_forward = model_.forward_layer(tape_);
    return pass.is_forward || pass.is_teacher;
  }
  pass.is_teacher = run_.teacher->forward_layer(*teacher_tape_);
  if (!pass.is_teacher) lm_head_.show_teacher(teacher_tape_->hidden());
  return pass.is_teacher;
}

// Of the pack in progress.
double Trainer::cost_left() const {
  if (!progress_->pass) return 0;
  const Progress::Pass& pass = *progress_->pass;
  const int64_t teacher = teacher_tape_ ? run_.teacher->config().layers : 0;
  const auto layers = static_cast<double>(pass.pack.learns ? 3 * model_.config().layers + teacher
                                                           : model_.config().layers);
  return pass.pack.cost * (1 - pass.done / layers);
}

void Trainer::end_pack() {
  progress_->packs[progress_->pass->pack.key()] = progress_->loss->take_sums();
  progress_->pass.reset();
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
  stats.packs = std::ranges::count(plan.packs(), false, &PlannedPack::is_known);
  stats.optimizer_bytes = optimizer_.bytes();
  return stats;
}

namespace {

// What this worker has of the known logprobs is shared, and the packs without them.
std::vector<std::vector<float>> share_scoring(const model::PolicyModel& model,
                                              std::span<const TrainSample> samples,
                                              const Scoring& scoring, cluster::Comm& comm) {
  std::vector<std::vector<float>> logprobs = scoring.known;
  logprobs.resize(samples.size());
  ByteWriter mine;  // (sample, logprobs) of this worker, for the others
  const auto write = [&](size_t i) {
    mine.value(static_cast<int64_t>(i));
    mine.list(logprobs[i]);
  };
  std::vector<double> is_known;
  for (size_t i = 0; i < samples.size(); ++i) {
    is_known.push_back(logprobs[i].empty() ? 0 : 1);
    if (!logprobs[i].empty()) write(i);
    logprobs[i].resize(static_cast<size_t>(samples[i].response_size()));
  }
  is_known = comm.all_reduce_sum(std::move(is_known));
  const PackPlan plan(samples, std::vector<bool>(samples.size()), scoring.max_tokens);
  model::Tape tape(model, /*recompute=*/true);
  HeadLoss lm_head(model, scoring.temperature);
  std::optional<ValueHead> value_head;
  if (scoring.critic) value_head.emplace(*scoring.critic);
  OutputHead& head = value_head ? static_cast<OutputHead&>(*value_head) : lm_head;
  for (const size_t p : plan.share(known_packs(plan, is_known), comm)) {
    report_progress();
    if (scoring.should_stop && scoring.should_stop()) break;
    const std::vector<PackedSample> pack = plan.load(plan.packs()[p], tape);
    const auto index_of = [&](const TrainSample& sample) {
      return static_cast<size_t>(&sample - samples.data());
    };
    head.score(model.forward(tape), pack,
               [&](const TrainSample& sample, int64_t first, std::span<const float> values) {
                 std::ranges::copy(values, logprobs[index_of(sample)].begin() + first);
               });
    for (const PackedSample& packed : pack) write(index_of(*packed.sample));
  }
  for (const std::string& bytes : comm.all_gather_bytes(mine.take()))
    for (ByteReader in(bytes); !in.at_end();) {
      const auto i = in.value<int64_t>();
      logprobs.at(static_cast<size_t>(i)) = in.list<std::vector<float>>();
    }
  return logprobs;
}

}  // namespace

std::vector<std::vector<float>> score_samples(const model::PolicyModel& model,
                                              std::span<const TrainSample> samples,
                                              const Scoring& scoring, cluster::Comm& comm) {
  std::vector<std::vector<float>> logprobs;
  comm.section("logprobs", [&] { logprobs = share_scoring(model, samples, scoring, comm); });
  return logprobs;
}

}  // namespace tlt::train
