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
// As rl/rollout_phase.cpp.
constexpr int64_t kFewSequences = 64, kReportInterval = 32;
constexpr uint32_t kSpeedStream = 0x52u << 24;

CostModel make_costs(const SimulateOptions& options) {
  options.check();
  const auto read = [](const std::string& path) {
    return path.empty() ? std::vector<speculation::ForwardCost>() : read_forward_costs(path);
  };
  return CostModel({.device = find_device(options.device),
                    .model = find_model(options.model),
                    .tensor_parallel = options.tensor_model_parallel_size,
                    .constants = options.costs,
                    .measured = read(options.bench_forward),
                    .measured_alone = read(options.bench_forward_alone)});
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
      scores_(options.reward_seconds, options.reward_concurrency),
      losses_(options),
      may_lose_(std::isfinite(losses_.next_at())),
      disk_(costs_.checkpoint_copy(way.trains),
            costs_.checkpoint_bytes(way.trains) / options.disk_bandwidth),
      draft_tokens_(tokens_for(options.draft_acceptance)) {
  TLT_CHECK_INPUT(!may_lose_ || !(way_.is_partial || way_.is_one_step_off), way_.name,
                  ": lost workers are not simulated with what-ifs; give ways without +, or "
                  "neither lost_workers nor losses_per_worker_day");
  make_coordinator();
  RandomStream speeds(static_cast<uint64_t>(options_.seed), {.prompt = kSpeedStream});
  for (int64_t i = 0; i < rolling_out_; ++i) {
    Worker& worker = workers_.emplace_back();
    worker.slowness = std::exp(options_.straggler_spread * speeds.normal());
    start_worker(i);
    if (!way_.is_one_step_off) trainer_slowness_.push_back(worker.slowness);
  }
  while (way_.is_one_step_off && std::ssize(trainer_slowness_) < options_.workers - rolling_out_)
    trainer_slowness_.push_back(std::exp(options_.straggler_spread * speeds.normal()));
}

void Simulation::make_coordinator() {
  coordinator_.emplace(static_cast<int>(rolling_out_), kNeverLost,
                       way_.trains && rolling_out_ > 1 ? 1 : 0, now_);
}

void Simulation::start_worker(int64_t index) {
  Worker& worker = workers_[static_cast<size_t>(index)];
  worker.lost_at = -1;
  worker.protocol.emplace(static_cast<int>(index));
  worker.engine = std::make_unique<SimulatedEngine>(
      SimulatedEngine::Setup{.options = options_,
                             .way = way_,
                             .costs = costs_,
                             .table = table_,
                             .trees = trees_,
                             .scratch = scratch_,
                             .replays_suffixes = workload_.has_tokens(),
                             .worker = index,
                             .kv_tokens = costs_.kv_tokens(options_.gpu_memory_utilization),
                             .slowness = worker.slowness});
}

StepReport Simulation::run_step() {
  TLT_CHECK(!is_done());
  report_ = {};
  report_.draft_acceptance = acceptance_after(draft_tokens_);
  const double began = now_;
  join_again();
  begin_step();
  roll_out();
  if (way_.is_one_step_off)
    train_on_other_workers();
  else
    train();
  restart();
  save_checkpoint();
  report_.seconds = now_ - began;
  for (Worker& worker : workers_) worker.engine->new_weights();
  ++step_;
  return report_;
}

void Simulation::begin_step() {
  rollout_began_ = now_;
  scores_.begin_step();
  complete_ = 0;
  groups_ = std::exchange(unfinished_, {});
  const double groups = static_cast<double>(options_.train_batch_size) *
                        (way_.is_partial ? options_.over_sampling : 1);
  for (int64_t prompt = 0; static_cast<double>(std::ssize(groups_)) < groups; ++prompt)
    groups_.push_back({.step = step_, .prompt = prompt, .unfinished = options_.n});
  trains_ = way_.trains &&
            (way_.trains_by_interval ? step_ % kTrainingInterval == 0 : trigger_.wants_training());
  for (Worker& worker : workers_) {
    worker.whole_groups.clear();
    worker.finished.clear();
    worker.trained_tokens = 0;
    worker.engine->set_draft_acceptance(report_.draft_acceptance);
  }
}

void Simulation::roll_out() {
  std::vector<int64_t> pending(groups_.size());
  std::iota(pending.begin(), pending.end(), 0);
  for (bool is_first = true; !pending.empty(); is_first = false) {
    begin_round(std::move(pending));
    run_round();
    end_round();
    if (is_first) leave_unfinished_groups();
    if (way_.is_one_step_off) return;
    report_.reward += advance("reward", reward_seconds());
    report_.exchange += advance("exchange", exchange_seconds());
    while (try_lose(now_)) continue;
    pending = take_lost_groups();
    regroup();
  }
}

void Simulation::begin_round(std::vector<int64_t> pending) {
  round_began_ = now_;
  migrations_.clear();
  pending_ = std::move(pending);
  ++rounds_;
  int rank = 0;  // among the living
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.taken = 0;
    worker.is_idle = false;
    worker.done_at = -1;
    worker.unfinished.clear();
    worker.source_of.clear();
    worker.reported_sequences = 0;
    for (Finished& it : worker.finished) it.source = -1;  // of an earlier round
    worker.decoding = worker.idle = worker.draft_training = worker.gradients = 0;
    if (worker.is_lost()) {
      deliver(coordinator_->lose(static_cast<int>(i)));
      continue;
    }
    worker.share =
        cluster::Coordinator::share_of(rank++, std::ssize(pending_), static_cast<int>(living()));
    worker.protocol->begin_step(rounds_, std::ssize(pending_), outbox_);
    exchange_messages();
    wake_at(static_cast<int64_t>(i), now_);
  }
}

void Simulation::run_round() {
  while (!wake_ups_.empty() || !coordinator_->is_step_done()) {
    const double next_wake =
        wake_ups_.empty() ? std::numeric_limits<double>::infinity() : wake_ups_.top().at;
    if (may_lose_ && !wake_ups_.empty() &&
        workers_[static_cast<size_t>(wake_ups_.top().worker)].is_lost()) {
      wake_ups_.pop();
      continue;
    }
    if (try_lose(next_wake)) continue;
    TLT_CHECK(!wake_ups_.empty(), "step ", step_, " has groups that no worker rolls out");
    const WakeUp next = wake_ups_.top();
    wake_ups_.pop();
    now_ = next.at;
    wake(next.worker);
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
  if (!worker.protocol->step_done()) {
    migrate_or_report(worker);
    take_groups(worker);
  }
  if (worker.protocol->step_done()) {
    TLT_CHECK(way_.is_partial || worker.engine->unfinished() == 0,
              "a step ends with unfinished sequences");
    worker.done_at = now_;
    return;
  }
  const double seconds = worker.engine->step(computing_neighbours(index));
  if (seconds > 0) {
    worker.decoding += seconds;
    worker.busy_until = now_ + seconds;
    if (observer_) observer_(index, "decode", now_, now_ + seconds);
    wake_at(index, now_ + seconds);
  } else {
    worker.is_idle = true;
    worker.idle_since = now_;
    // It may have got work since it looked.
    if (worker.protocol->has_group()) wake_at(index, now_);
  }
}

// Idle workers compute too, where there is idle work.
double Simulation::computing_neighbours(int64_t index) const {
  if (options_.bench_forward_alone.empty() || living() == 1 || way_.early_gradients || trains_)
    return 1;
  int64_t others = 0;
  for (int64_t i = 0; i < std::ssize(workers_); ++i) {
    const Worker& other = workers_[static_cast<size_t>(i)];
    others += i != index && !other.is_lost() && !other.is_idle && other.done_at < 0;
  }
  return static_cast<double>(others) / static_cast<double>(living() - 1);
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
    if (may_lose_) worker.finished.push_back({it, source});
    int64_t& left = worker.unfinished.at(source);
    if (--left > 0) continue;
    worker.unfinished.erase(source);
    if (source < std::ssize(pending_))
      worker.whole_groups.push_back(pending_[static_cast<size_t>(source)]);
    worker.protocol->done(source, outbox_);
  }
  exchange_messages();
  if (!way_.is_partial || complete_ < options_.train_batch_size) return;
  worker.protocol->stop(outbox_);
  exchange_messages();
}

void Simulation::keep_progress(const SimulatedSequence& sequence, double tokens) {
  std::vector<double>& generated = groups_[static_cast<size_t>(sequence.group)].generated;
  generated.resize(static_cast<size_t>(options_.n));
  generated[static_cast<size_t>(sequence.sample)] = tokens;
}

void Simulation::end_round() {
  report_.rollout += now_ - round_began_;
  for (Worker& worker : workers_) {
    report_.engines.add(worker.engine->take_counters());
    report_.decoding += worker.decoding;
    report_.draft_training += worker.draft_training;
    report_.gradients += worker.gradients;
    const double end = worker.is_lost() ? std::clamp(worker.lost_at, round_began_, now_) : now_;
    report_.dead += now_ - end;
    const bool is_done = worker.done_at >= 0;
    report_.idle += is_done ? worker.idle + end - worker.done_at : worker.idle;
    if (observer_ && is_done && worker.done_at < end)
      observer_(&worker - workers_.data(), "lost", worker.done_at, end);
  }
}

void Simulation::leave_unfinished_groups() {
  const auto leave = [&](const std::vector<SimulatedSequence>& sequences) {
    for (const SimulatedSequence& it : sequences) {
      report_.tokens += it.generated - it.begun;
      keep_progress(it, it.generated);
    }
  };
  for (Worker& worker : workers_) leave(worker.engine->take_unfinished());
  // Where workers may be lost, nothing is left, and taken ones are kept.
  if (!may_lose_)
    for (const std::vector<SimulatedSequence>& moved : migrations_) leave(moved);
  const auto is_complete = [](const Group& group) { return group.unfinished == 0; };
  std::ranges::remove_copy_if(groups_, std::back_inserter(unfinished_), is_complete);
  std::erase_if(groups_, std::not_fn(is_complete));
  for (const Group& group : groups_)
    for (int64_t i = 0; i < options_.n; ++i)
      report_.updated_tokens += static_cast<double>(workload_.length(group.step, group.prompt, i));
}

void Simulation::take_groups(Worker& worker) {
  while (worker.protocol->has_migration() || worker.engine->free_slots() > 0) {
    if (!worker.protocol->has_migration() && worker.taken >= worker.share &&
        worker.engine->unfinished() >= options_.n)
      return;
    const std::optional<int64_t> group = worker.protocol->try_take(outbox_);
    exchange_messages();
    if (group)
      start_group(worker, *group);
    else if (!worker.protocol->has_group())
      return;
  }
}

void Simulation::start_group(Worker& worker, int64_t group) {
  std::vector<SimulatedSequence> sequences;
  if (group >= std::ssize(pending_)) {
    std::vector<SimulatedSequence>& moved =
        migrations_[static_cast<size_t>(std::stoll(worker.protocol->take_migration()))];
    // If this worker is lost, another one gets it too.
    sequences = may_lose_ ? moved : std::exchange(moved, {});
  } else {
    ++worker.taken;
    sequences = sequences_of(pending_[static_cast<size_t>(group)]);
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
                           .recorded = workload_.tokens(group.step, group.prompt, i),
                           .length = length,
                           .generated = begun,
                           .begun = begun,
                           .received = begun,
                           .to_prefill = begun + (i == 0 || begun > 0 ? prompt : 0)});
  }
  return sequences;
}

void Simulation::migrate_or_report(Worker& worker) {
  if (!way_.migrates || rolling_out_ == 1) return;
  if (worker.protocol->should_migrate()) {
    std::vector<SimulatedSequence> moved = worker.engine->take_unfinished();
    for (SimulatedSequence& it : moved) {
      it.to_prefill = static_cast<double>(options_.prompt_length) + it.generated;
      it.received = it.generated;
    }
    report_.migrated += std::ssize(moved);
    worker.unfinished.clear();
    worker.reported_sequences = 0;
    worker.protocol->move(std::to_string(migrations_.size()), outbox_);
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
  worker.protocol->report(worker.engine->load(), outbox_);
  exchange_messages();
}

// Until nothing is left to say. A message arrives at once.
void Simulation::exchange_messages() {
  while (!outbox_.empty()) {
    const std::vector<cluster::Event> events = std::exchange(outbox_, {});
    for (const cluster::Event& event : events) deliver(coordinator_->on(event, now_));
  }
}

void Simulation::deliver(const std::vector<cluster::WorkerCommand>& commands) {
  for (const cluster::WorkerCommand& command : commands) {
    Worker& worker = workers_[static_cast<size_t>(command.worker)];
    if (worker.is_lost()) continue;
    const bool could_train = worker.protocol->may_train();
    worker.protocol->on(command, outbox_);
    if (!could_train && worker.protocol->may_train()) worker.may_train_since = now_;
    if (worker.is_idle && !worker.is_awake &&
        (worker.protocol->has_group() || worker.protocol->step_done()))
      wake_at(command.worker, now_);
  }
}

bool Simulation::prefers_gradients() const {
  return way_.early_gradients &&
         rl::gradients_first({.workers = static_cast<int>(living()),
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
  const double tokens = trained / (costs_.draft_training(1) * worker.slowness);
  worker.trained_tokens += tokens;
  report_.trained_tokens += tokens;
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
    group.gradients_at = &worker - workers_.data();
    used += part;
    return group.gradients * worker.slowness >= all * (1 - 1e-9);
  });
  return used;
}

std::vector<double> Simulation::pack_costs(const Group& group) const {
  const double share =
      workload_.has_gradient(group.step, group.prompt) ? 1 : options_.zero_std_share();
  if (share == 0) return {};
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
    if (tokens > 0) seconds.push_back(share * costs_.training(tokens, squares / tokens));
  }
  return seconds;
}

}  // namespace tlt::simulate
