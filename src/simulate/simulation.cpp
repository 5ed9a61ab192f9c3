// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "rl/idle_choice.h"
#include "train/packing.h"

namespace tlt::simulate {
namespace {

constexpr double kNeverLost = 1e18;
constexpr int64_t kTrainingInterval = 10;  // of the paper
constexpr double kGapShare = 0.05;         // of a single worker's rollouts (IdleTrainOptions)
// As rl/rollout_phase.cpp.
constexpr int64_t kFewSequences = 64, kReportInterval = 32;
constexpr double kExchangedBytes = 8;  // of a token: itself and its logprob
constexpr uint32_t kSpeedStream = 0x52u << 24;

CostModel make_costs(const SimulateOptions& options) {
  options.check();
  return CostModel({.device = find_device(options.device),
                    .model = find_model(options.model),
                    .tensor_parallel = options.tensor_model_parallel_size,
                    .constants = options.costs,
                    .measured = options.bench_forward.empty()
                                    ? std::vector<speculation::ForwardCost>()
                                    : read_forward_costs(options.bench_forward)});
}

int64_t workers_that_roll_out(const SimulateOptions& options, const Way& way) {
  if (!way.is_one_step_off) return options.workers;
  TLT_CHECK_INPUT(options.workers >= 2, way.name, " needs a worker that trains; give workers=2");
  const int64_t count = options.rollout_workers > 0 ? options.rollout_workers : options.workers / 2;
  TLT_CHECK_INPUT(count < options.workers, "rollout_workers=", count, " leaves none of ",
                  options.workers, " workers to train; give less");
  return count;
}

}  // namespace

void StepReport::add(const StepReport& more) {
  add_counters(*this, more);
  engines.add(more.engines);
  draft_acceptance = more.draft_acceptance;
}

double StepReport::acceptance_length() const {
  return engines.speculative_sequence_steps > 0
             ? engines.speculative_tokens / engines.speculative_sequence_steps
             : 1;
}

Simulation::Simulation(const SimulateOptions& options, const Way& way, Observer observer)
    : options_(options),
      way_(way),
      rolling_out_(workers_that_roll_out(options, way)),
      observer_(std::move(observer)),
      workload_(options),
      costs_(make_costs(options)),
      table_(costs_.table(way.tuning.eagle.strategies(),
                          std::min<int64_t>(options.max_num_seqs, 1024),
                          std::min<int64_t>(options.max_num_batched_tokens, 4096))),
      coordinator_(static_cast<int>(rolling_out_), kNeverLost,
                   way.trains && rolling_out_ > 1 ? 1 : 0, 0),
      scores_(options.reward_seconds, options.reward_concurrency),
      draft_tokens_(tokens_for(options.draft_acceptance)) {
  const int64_t kv_tokens = costs_.kv_tokens(options_.gpu_memory_utilization);
  RandomStream speeds(static_cast<uint64_t>(options_.seed), {.prompt = kSpeedStream});
  for (int64_t i = 0; i < rolling_out_; ++i) {
    Worker& worker = workers_.emplace_back(
        Worker{.engine = nullptr, .protocol = cluster::WorkerProtocol(static_cast<int>(i))});
    worker.slowness = std::exp(options_.straggler_spread * speeds.normal());
    worker.engine =
        std::make_unique<SimulatedEngine>(SimulatedEngine::Setup{.options = options_,
                                                                 .way = way_,
                                                                 .costs = costs_,
                                                                 .table = table_,
                                                                 .trees = trees_,
                                                                 .worker = i,
                                                                 .kv_tokens = kv_tokens,
                                                                 .slowness = worker.slowness});
    if (!way_.is_one_step_off) trainer_slowness_.push_back(worker.slowness);
  }
  while (way_.is_one_step_off && std::ssize(trainer_slowness_) < options_.workers - rolling_out_)
    trainer_slowness_.push_back(std::exp(options_.straggler_spread * speeds.normal()));
}

StepReport Simulation::run_step() {
  TLT_CHECK(!is_done());
  report_ = {};
  report_.draft_acceptance = acceptance_after(draft_tokens_);
  const double began = now_;
  begin_rollouts();
  while (!wake_ups_.empty()) {
    const WakeUp next = wake_ups_.top();
    wake_ups_.pop();
    now_ = next.at;
    wake(next.worker);
  }
  TLT_CHECK(coordinator_.is_step_done(), "step ", step_, " has groups that no worker rolls out");
  end_rollouts();
  if (way_.is_one_step_off)
    train_on_other_workers();
  else
    train();
  report_.seconds = now_ - began;
  for (Worker& worker : workers_) worker.engine->new_weights();
  ++step_;
  return report_;
}

void Simulation::train() {
  report_.reward = advance("reward", std::max(0.0, scores_.last() - now_));
  report_.exchange =
      advance("exchange", costs_.exchange(kExchangedBytes * report_.tokens, options_.workers));
  report_.logprobs = advance("logprobs", logprob_seconds());
  train_draft_model();
  report_.update = advance("update", update_seconds());
  report_.sync = advance("sync", costs_.weight_sync());
}

void Simulation::train_on_other_workers() {
  train_draft_model();
  report_.update = advance("update", std::max(0.0, training_left_ - report_.rollout));
  // The training of this step begins here; scores may have come in the meantime.
  training_left_ =
      std::max(0.0, scores_.last() - now_) +
      costs_.exchange(kExchangedBytes * report_.tokens, std::ssize(trainer_slowness_)) +
      logprob_seconds() + update_seconds();
  if (step_ + 1 == options_.total_training_steps)
    report_.update += advance("update", training_left_);
  report_.sync = advance("sync", costs_.weight_broadcast());
}

double Simulation::advance(const char* lane, double seconds) {
  if (observer_ && seconds > 0)
    for (size_t i = 0; i < workers_.size(); ++i)
      observer_(static_cast<int64_t>(i), lane, now_, now_ + seconds);
  now_ += seconds;
  return seconds;
}

void Simulation::begin_rollouts() {
  rollout_began_ = now_;
  migrations_.clear();
  scores_.begin_step();
  complete_ = 0;
  groups_ = std::exchange(unfinished_, {});
  const double groups = static_cast<double>(options_.train_batch_size) *
                        (way_.is_partial ? options_.over_sampling : 1);
  for (int64_t prompt = 0; static_cast<double>(std::ssize(groups_)) < groups; ++prompt)
    groups_.push_back({.step = step_, .prompt = prompt, .unfinished = options_.n});
  trains_ = way_.trains &&
            (way_.trains_by_interval ? step_ % kTrainingInterval == 0 : trigger_.wants_training());
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.taken = 0;
    worker.is_idle = false;
    worker.unfinished.clear();
    worker.source_of.clear();
    worker.whole_groups.clear();
    worker.reported_sequences = 0;
    worker.decoding = worker.idle = worker.draft_training = worker.gradients = 0;
    worker.engine->set_draft_acceptance(report_.draft_acceptance);
    worker.protocol.begin_step(step_, std::ssize(groups_), outbox_);
    exchange_messages();
    wake_at(static_cast<int64_t>(i), now_);
  }
}

void Simulation::wake_at(int64_t index, double at) {
  workers_[static_cast<size_t>(index)].is_awake = true;
  wake_ups_.push({at, orders_++, index});
}

// One turn of the loop of RolloutPhase::run.
void Simulation::wake(int64_t index) {
  Worker& worker = workers_[static_cast<size_t>(index)];
  worker.is_awake = false;
  if (worker.is_idle) account_idle(index);
  collect(worker);
  if (!worker.protocol.step_done()) {
    migrate_or_report(worker);
    take_groups(worker);
  }
  if (worker.protocol.step_done()) {
    TLT_CHECK(way_.is_partial || worker.engine->unfinished() == 0,
              "a step ends with unfinished sequences");
    worker.done_at = now_;
    return;
  }
  const double seconds = worker.engine->step();
  if (seconds > 0) {
    worker.decoding += seconds;
    if (observer_) observer_(index, "decode", now_, now_ + seconds);
    wake_at(index, now_ + seconds);
  } else {
    worker.is_idle = true;
    worker.idle_since = now_;
    // It may have got work since it looked.
    if (worker.protocol.has_group()) wake_at(index, now_);
  }
}

void Simulation::collect(Worker& worker) {
  for (const SimulatedSequence& it : worker.engine->take_finished()) {
    ++report_.responses;
    report_.tokens += it.length - it.begun;
    report_.truncated += it.length >= static_cast<double>(options_.max_response_length);
    Group& group = groups_[static_cast<size_t>(it.group)];
    group.scored_at = std::max(group.scored_at, scores_.scored_at(now_));
    if (--group.unfinished == 0) ++complete_;
    if (way_.is_partial) keep_progress(it, it.length);
    const int64_t source = worker.source_of.at(it.group);
    int64_t& left = worker.unfinished.at(source);
    if (--left > 0) continue;
    worker.unfinished.erase(source);
    if (source < std::ssize(groups_)) worker.whole_groups.push_back(source);
    worker.protocol.done(source, outbox_);
  }
  exchange_messages();
  if (!way_.is_partial || complete_ < options_.train_batch_size) return;
  worker.protocol.stop(outbox_);
  exchange_messages();
}

void Simulation::keep_progress(const SimulatedSequence& sequence, double tokens) {
  std::vector<double>& generated = groups_[static_cast<size_t>(sequence.group)].generated;
  generated.resize(static_cast<size_t>(options_.n));
  generated[static_cast<size_t>(sequence.sample)] = tokens;
}

void Simulation::end_rollouts() {
  report_.rollout = now_ - rollout_began_;
  for (Worker& worker : workers_) {
    report_.engines.add(worker.engine->take_counters());
    report_.decoding += worker.decoding;
    report_.idle += worker.idle + now_ - worker.done_at;
    report_.draft_training += worker.draft_training;
    report_.gradients += worker.gradients;
    if (observer_ && now_ > worker.done_at)
      observer_(&worker - workers_.data(), "lost", worker.done_at, now_);
  }
  leave_unfinished_groups();
}

void Simulation::leave_unfinished_groups() {
  const auto leave = [&](const std::vector<SimulatedSequence>& sequences) {
    for (const SimulatedSequence& it : sequences) {
      report_.tokens += it.generated - it.begun;
      keep_progress(it, it.generated);
    }
  };
  for (Worker& worker : workers_) leave(worker.engine->take_unfinished());
  for (const std::vector<SimulatedSequence>& moved : migrations_) leave(moved);
  const auto is_complete = [](const Group& group) { return group.unfinished == 0; };
  std::ranges::remove_copy_if(groups_, std::back_inserter(unfinished_), is_complete);
  std::erase_if(groups_, std::not_fn(is_complete));
  for (const Group& group : groups_)
    for (int64_t i = 0; i < options_.n; ++i)
      report_.updated_tokens += static_cast<double>(workload_.length(group.step, group.prompt, i));
}

void Simulation::take_groups(Worker& worker) {
  const int64_t share = (std::ssize(groups_) + rolling_out_ - 1) / rolling_out_;
  while (worker.protocol.has_migration() || worker.engine->free_slots() > 0) {
    if (!worker.protocol.has_migration() && worker.taken >= share &&
        worker.engine->unfinished() >= options_.n)
      return;
    const std::optional<int64_t> group = worker.protocol.try_take(outbox_);
    exchange_messages();
    if (group)
      start_group(worker, *group);
    else if (!worker.protocol.has_group())
      return;
  }
}

void Simulation::start_group(Worker& worker, int64_t group) {
  std::vector<SimulatedSequence> sequences;
  if (group >= std::ssize(groups_)) {
    const std::string which = worker.protocol.take_migration();
    sequences = std::exchange(migrations_[static_cast<size_t>(std::stoll(which))], {});
  } else {
    ++worker.taken;
    sequences = sequences_of(group);
  }
  worker.unfinished[group] = std::ssize(sequences);
  for (const SimulatedSequence& it : sequences) worker.source_of[it.group] = group;
  worker.engine->submit(sequences);
}

std::vector<SimulatedSequence> Simulation::sequences_of(int64_t index) const {
  const Group& group = groups_[static_cast<size_t>(index)];
  const auto prompt = static_cast<double>(options_.prompt_length);
  std::vector<SimulatedSequence> sequences;
  for (int64_t i = 0; i < options_.n; ++i) {
    const auto length = static_cast<double>(workload_.length(group.step, group.prompt, i));
    const double begun = group.generated.empty() ? 0 : group.generated[static_cast<size_t>(i)];
    if (begun < length)
      sequences.push_back({.group = index,
                           .sample = i,
                           .length = length,
                           .generated = begun,
                           .begun = begun,
                           .to_prefill = begun + (i == 0 || begun > 0 ? prompt : 0)});
  }
  return sequences;
}

void Simulation::migrate_or_report(Worker& worker) {
  if (!way_.migrates || rolling_out_ == 1) return;
  if (worker.protocol.should_migrate()) {
    std::vector<SimulatedSequence> moved = worker.engine->take_unfinished();
    for (SimulatedSequence& it : moved)
      it.to_prefill = static_cast<double>(options_.prompt_length) + it.generated;
    report_.migrated += std::ssize(moved);
    worker.unfinished.clear();
    worker.reported_sequences = 0;
    worker.protocol.move(std::to_string(migrations_.size()), outbox_);
    migrations_.push_back(std::move(moved));
    exchange_messages();
    return;
  }
  const int64_t sequences = worker.engine->unfinished();
  if (sequences == 0 || sequences > kFewSequences) return;
  if (sequences == worker.reported_sequences && ++worker.steps_since_report < kReportInterval)
    return;
  worker.reported_sequences = sequences;
  worker.steps_since_report = 0;
  worker.protocol.report(worker.engine->load(), outbox_);
  exchange_messages();
}

// Until nothing is left to say. A message arrives at once.
void Simulation::exchange_messages() {
  while (!outbox_.empty()) {
    const std::vector<cluster::Event> events = std::exchange(outbox_, {});
    for (const cluster::Event& event : events)
      for (const cluster::WorkerCommand& command : coordinator_.on(event, now_)) {
        Worker& worker = workers_[static_cast<size_t>(command.worker)];
        const bool could_train = worker.protocol.may_train();
        worker.protocol.on(command, outbox_);
        if (!could_train && worker.protocol.may_train()) worker.may_train_since = now_;
        if (worker.is_idle && !worker.is_awake &&
            (worker.protocol.has_group() || worker.protocol.step_done()))
          wake_at(command.worker, now_);
      }
  }
}

bool Simulation::prefers_gradients() const {
  return way_.early_gradients &&
         rl::gradients_first({.workers = static_cast<int>(rolling_out_),
                              .rollout_seconds = now_ - rollout_began_,
                              .draft_model_share = draft_model_share_,
                              .trained_share = trained_seconds_ / std::max(1e-9, idle_seconds_),
                              .acceptance_gain = !trains_ ? 0
                                                 : way_.trains_by_interval
                                                     ? std::numeric_limits<double>::infinity()
                                                     : trigger_.gain_per_second()});
}

// The idle time that ends now: gradients, training, or first one and then the other. The choice is
// made once for all of it, with the rollout seconds at its end.
void Simulation::account_idle(int64_t index) {
  Worker& worker = workers_[static_cast<size_t>(index)];
  worker.is_idle = false;
  const double idle = now_ - worker.idle_since;
  double left = idle, trained = 0, computed = 0;
  if (prefers_gradients()) left -= computed = compute_gradients(worker, left);
  if (trains_ && worker.may_train_since >= rollout_began_)
    left -= trained = std::min(left, now_ - std::max(worker.may_train_since, worker.idle_since));
  if (way_.early_gradients && computed == 0) {
    computed = compute_gradients(worker, left);
    left -= computed;
  }
  worker.idle += idle;
  worker.draft_training += trained;
  worker.gradients += computed;
  report_.trained_tokens += trained / (costs_.draft_training(1) * worker.slowness);
  if (!observer_ || idle <= 0) return;
  double at = worker.idle_since;
  for (const auto& [lane, seconds] :
       {std::pair("lost", left), std::pair("gradients", computed), std::pair("draft", trained)})
    if (seconds > 0) observer_(index, lane, at, at + seconds), at += seconds;
}

// Returns the seconds used, at most `seconds`.
double Simulation::compute_gradients(Worker& worker, double seconds) {
  double used = 0;
  std::erase_if(worker.whole_groups, [&](int64_t index) {
    Group& group = groups_[static_cast<size_t>(index)];
    const double until =
        std::min(seconds - used, now_ - std::max(group.scored_at, worker.idle_since) - used);
    if (until <= 0) return false;
    const std::vector<double> packs = pack_costs(group);
    const double all = std::accumulate(packs.begin(), packs.end(), 0.0) * worker.slowness;
    const double part = std::min(until, all - group.gradients * worker.slowness);
    group.gradients += part / worker.slowness;
    used += part;
    return group.gradients * worker.slowness >= all * (1 - 1e-9);
  });
  return used;
}

std::vector<double> Simulation::pack_costs(const Group& group) const {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < options_.n; ++i)
    lengths.push_back(workload_.length(group.step, group.prompt, i) +
                      (i == 0 ? options_.prompt_length : 0));
  std::vector<double> seconds;
  for (const train::Pack& pack : train::plan_packs(lengths, options_.ppo_max_token_len_per_gpu)) {
    double tokens = 0, squares = 0;
    for (const int64_t i : pack) {
      const auto length = static_cast<double>(lengths[static_cast<size_t>(i)]);
      tokens += length;
      squares += length * length;
    }
    if (tokens > 0) seconds.push_back(costs_.training(tokens, squares / tokens));
  }
  return seconds;
}

double Simulation::logprob_seconds() const {
  const auto groups = static_cast<double>(std::ssize(groups_));
  const double prompts = groups * static_cast<double>(options_.prompt_length),
               mean_length = report_.updated_tokens / (groups * static_cast<double>(options_.n));
  return options_.logprob_passes / 3 *
         costs_.training(report_.updated_tokens + prompts, mean_length) /
         static_cast<double>(std::ssize(trainer_slowness_));
}

// The worker with the most work ends last. What idle workers have computed of a group's packs, the
// first ones, is not computed again.
double Simulation::update_seconds() {
  std::vector<train::Pack> packs;
  std::vector<double> costs;
  for (const Group& group : groups_) {
    double done = group.gradients;
    for (const double cost : pack_costs(group)) {
      const double left = std::max(0.0, cost - done);
      done = std::max(0.0, done - cost);
      if (left <= 0) continue;
      packs.push_back({std::ssize(costs)});
      costs.push_back(left);
    }
  }
  const int64_t workers = std::ssize(trainer_slowness_);
  std::vector<double> loads(trainer_slowness_.size(), 0);
  const std::vector<int> owners = train::assign_packs(packs, costs, static_cast<int>(workers));
  for (size_t i = 0; i < owners.size(); ++i)
    loads[static_cast<size_t>(owners[i])] +=
        costs[i] * trainer_slowness_[static_cast<size_t>(owners[i])];
  return *std::ranges::max_element(loads) + costs_.optimizer(workers);
}

void Simulation::train_draft_model() {
  draft_model_share_ = report_.engines.steps > 0
                           ? static_cast<double>(report_.engines.draft_model_steps) /
                                 static_cast<double>(report_.engines.steps)
                           : 0;
  idle_seconds_ += report_.idle;
  trained_seconds_ += report_.draft_training;
  double seconds = report_.draft_training;
  if (trains_ && rolling_out_ == 1) {
    seconds = report_.draft_gap = advance("draft", kGapShare * report_.rollout);
    report_.trained_tokens = seconds / costs_.draft_training(1);
  }
  const double before = chain_length(acceptance_after(draft_tokens_));
  draft_tokens_ += report_.trained_tokens;
  const double after = chain_length(acceptance_after(draft_tokens_));
  if (report_.trained_tokens > 0)
    trigger_.trained(before, after, seconds);
  else
    trigger_.rested(before);
  draft_tokens_ *= 1 - options_.drift;
}

}  // namespace tlt::simulate
