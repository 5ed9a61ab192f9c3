// SPDX-License-Identifier: Apache-2.0
#include "rl/rollout_phase.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/watchdog.h"
#include "cluster/coordinator.h"
#include "rl/idle_choice.h"
#include "run/report/timeline_steps.h"
#include "run/run_folder.h"

namespace tlt::rl {
namespace {

// How long a worker with an empty engine sleeps before it checks for work again.
constexpr double kIdleWaitSeconds = 0.01;
// How long it computes early gradients before it does; a layer that has begun ends later.
constexpr double kGradientSliceSeconds = 0.02;
// After a wait of this time the environment will hardly answer within the time of a slice in which
// the draft model is trained.
constexpr double kLongWaitSeconds = 0.1;
constexpr std::chrono::milliseconds kRewardWait(1);
// How long an interrupted worker waits for the scores of finished responses. Those that come later
// are computed again after the resume.
constexpr double kLastScoresSeconds = 5;
constexpr int64_t kFewSequences = 64;    // a worker reports its load at or below this many …
constexpr int64_t kReportInterval = 32;  // … and repeats an unchanged report after this many steps

rollout::Group group_of(const data::Prompt& prompt, const SamplingPlan& plan) {
  return {.prompt_id = prompt.id,
          .rl_step = plan.rl_step,
          .tokens = prompt.tokens,
          .samples = plan.samples,
          .sampling = plan.sampling,
          .seed = plan.seed,
          .first_greedy_sample = plan.first_greedy_sample};
}

// The prompts, by index, that do not have all their samples. `rollouts` has none twice.
std::vector<uint32_t> incomplete_groups(std::span<const run::Rollout> rollouts, size_t prompts,
                                        int64_t samples) {
  std::vector<int64_t> found(prompts);
  for (const run::Rollout& rollout : rollouts) ++found.at(rollout.prompt);
  std::vector<uint32_t> incomplete;
  for (uint32_t i = 0; i < prompts; ++i)
    if (found[i] < samples) incomplete.push_back(i);
  return incomplete;
}

}  // namespace

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& more) {
  add_counters(*this, more);
  preemption_seconds.insert(preemption_seconds.end(), more.preemption_seconds.begin(),
                            more.preemption_seconds.end());
  return *this;
}

RolloutPhase::RolloutPhase(rollout::Engine& engine, reward::RewardPool& rewards,
                           cluster::GroupSource& groups, cluster::Comm& comm,
                           const tokenizer::Tokenizer& tokenizer)
    : engine_(engine), rewards_(rewards), groups_(groups), comm_(comm), tokenizer_(tokenizer) {}

void RolloutPhase::begin(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  times_ = {};
  finished_.begin(plan.samples, [early = plan.early_gradients](uint32_t prompt) {
    return early && early->takes(prompt);
  });
  index_of_.clear();
  source_of_.clear();
  since_begin_.restart();
  most_running_ = 0;
  wants_finished_ = false;
  unfinished_.clear();
  known_.clear();
  rest_.clear();
  was_stopped_ = false;
  stop_seen_.reset();
  waits_since_.reset();
  cancelled_.clear();
  reported_sequences_ = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool is_new = index_of_.emplace(prompts[i].id, static_cast<uint32_t>(i)).second;
    TLT_CHECK(is_new, "prompt ", prompts[i].id, " twice in one step");
  }
}

// Sorts what exists already. Returns the indices of the prompts that have responses to decode. Each
// worker requests the missing scores of its part of the prompts.
std::vector<uint32_t> RolloutPhase::adopt(std::span<const data::Prompt> prompts,
                                          const SamplingPlan& plan,
                                          std::vector<run::Rollout> known) {
  std::map<uint32_t, std::map<uint32_t, rollout::Response>> left;  // by prompt and sample
  for (const run::Rollout& rollout : known)
    for (uint32_t sample = 0; sample < plan.samples; ++sample) {
      rollout::Response& response = left[rollout.prompt][sample];
      response.prompt_id = prompts[rollout.prompt].id;
      response.rl_step = plan.rl_step;
      response.sample = sample;
    }
  for (run::Rollout& rollout : known) {
    const uint32_t index = rollout.prompt, sample = rollout.response.sample;
    if (rollout.response.finish == rollout::FinishReason::kCancelled) {
      left[index][sample] = std::move(rollout.response);
      continue;
    }
    left[index].erase(sample);
    if (rollout.is_scored)
      known_.push_back(std::move(rollout));
    else if (static_cast<int>(index % static_cast<uint32_t>(comm_.size())) == comm_.rank())
      submit_for_score(std::move(rollout), prompts[index], plan);
  }
  std::vector<uint32_t> pending;
  for (uint32_t index = 0; index < prompts.size(); ++index) {
    const auto found = left.find(index);
    if (found == left.end() || !found->second.empty()) pending.push_back(index);
    if (found == left.end()) continue;
    for (auto& [sample, response] : found->second) rest_[index].push_back(std::move(response));
  }
  return pending;
}

std::vector<run::Rollout> RolloutPhase::run(std::span<const data::Prompt> prompts,
                                            const SamplingPlan& plan,
                                            std::vector<run::Rollout> known) {
  begin(prompts, plan);
  std::vector<uint32_t> pending = adopt(prompts, plan, std::move(known));
  roll_out(pending, prompts, plan);
  attach_scores(prompts, plan);
  std::vector<run::Rollout> all;
  comm_.section("rollouts", [&] {
    for (;;) {
      comm_.check_lost(groups_.lost_workers());
      all = exchange();
      pending = incomplete_groups(all, prompts.size(), plan.samples);
      if (pending.empty() || !begins_again(pending)) return;
      roll_out(pending, prompts, plan);
      attach_scores(prompts, plan);
    }
  });
  if (was_stopped_) keep_rest(all);
  // A worker that was interrupted after the last token has not waited for its scores.
  was_stopped_ =
      was_stopped_ || !std::ranges::all_of(all, [](const run::Rollout& r) { return r.is_scored; });
  return all;
}

// Whether these groups are rolled out again; not if the phase was stopped, where they are missing
// for that reason. All workers agree: one may have begun another phase, before another one had to
// repeat the section.
bool RolloutPhase::begins_again(std::span<const uint32_t> pending) {
  at::Tensor agreed = at::tensor({phases_, int64_t{was_stopped_}}, at::kLong);
  comm_.all_reduce_max(agreed);
  phases_ = agreed[0].item<int64_t>();
  was_stopped_ = agreed[1].item<int64_t>() > 0;
  if (was_stopped_) return false;
  TLT_CHECK(comm_.continues_after_loss(), pending.size(), " groups of the step have no responses");
  for (const uint32_t index : pending) {
    rest_.erase(index);  // all samples, not only the rest
    finished_.begin_again(index);
  }
  if (comm_.rank() == 0)
    log_warning("{} of a lost worker {} rolled out again",
                counted(std::ssize(pending), "finished group"), pending.size() == 1 ? "is" : "are");
  return true;
}

// Decodes the groups of the prompts with these indices: group g of the group source is that of
// prompt pending[g].
void RolloutPhase::roll_out(std::span<const uint32_t> pending,
                            std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  share_ = times_.groups +
           cluster::Coordinator::share_of(comm_.rank(), std::ssize(pending), comm_.size());
  groups_.begin_step(phases_++, std::ssize(pending));
  for (const int worker : comm_.lost_workers()) groups_.lose(worker);
  const rollout::EngineStats before = engine_.stats();
  PhaseWatch watcher(timeline_, plan.name, progress_label(plan.name));
  while (!groups_.step_done()) {
    report_progress();
    if (!comm_.continues_after_loss()) comm_.check_lost(groups_.lost_workers());
    if (wants_stop(plan)) groups_.stop();
    Stopwatch watch;
    take_groups(pending, prompts, plan);
    const bool worked = engine_.step();
    watcher.set_busy(worked);
    collect(prompts, plan);
    share_finished();
    if (watcher.wants_line()) show(watcher, plan, before.tokens);
    if (groups_.should_migrate())
      migrate_unfinished();
    else
      report_load();
    if (worked) {
      waits_since_.reset();
      count_decoding(watch.seconds());
    } else if (!groups_.step_done()) {
      be_idle(prompts, plan);
      times_.idle_seconds += watch.seconds();
    }
  }
  watcher.set_busy(false);
  const rollout::EngineStats after = engine_.stats();
  times_.forward_seconds += after.forward_seconds - before.forward_seconds;
  times_.sample_seconds += after.sample_seconds - before.sample_seconds;
  times_.cached_tokens += after.prefix_cache.hits - before.prefix_cache.hits;
  if (!comm_.continues_after_loss()) comm_.check_lost(groups_.lost_workers());
  was_stopped_ = groups_.was_stopped();
  if (was_stopped_) cancelled_ = cancel_unfinished();
}

// Whether this worker was interrupted in a phase that may stop.
bool RolloutPhase::wants_stop(const SamplingPlan& plan) {
  if (!plan.may_stop || !(interrupted() || groups_.is_interrupted())) return false;
  if (!stop_seen_) stop_seen_ = since_begin_.seconds();
  return true;
}

bool RolloutPhase::is_interrupted() {
  if (interrupted()) groups_.stop();
  return interrupted() || groups_.is_interrupted();
}

void RolloutPhase::count_decoding(double seconds) {
  const int64_t running = engine_.stats().running;
  most_running_ = std::max(most_running_, running);
  times_.decode_seconds += seconds;
  if (2 * running <= most_running_) times_.half_empty_seconds += seconds;
}

std::string RolloutPhase::progress_label(const PhaseName& name) const {
  if (comm_.rank() != 0 || !log_is_terminal()) return "";
  return name.lane + (name.span.empty() || name.span == name.lane ? "" : " of " + name.span) +
         (comm_.size() > 1 ? ", responses of this worker" : ", responses");
}

void RolloutPhase::show(PhaseWatch& watch, const SamplingPlan& plan, int64_t tokens_before) const {
  const rollout::EngineStats stats = engine_.stats();
  const auto done = std::ssize(finished_.rollouts());
  watch.show({.done = done,
              .expected = std::max(share_ * plan.samples, done + stats.running + stats.waiting),
              .running = stats.running,
              .tokens = stats.tokens - tokens_before});
}

void RolloutPhase::take_groups(std::span<const uint32_t> pending,
                               std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  while (groups_.has_migration() || engine_.free_slots() > waiting_episodes()) {
    // Beyond its share a worker steals groups only when it is about to become idle: the other one
    // may be late, not slow.
    const rollout::EngineStats stats = engine_.stats();
    if (!groups_.has_migration() && times_.groups >= share_ &&
        stats.running + stats.waiting + waiting_episodes() >= plan.samples)
      return;
    const std::optional<int64_t> group = groups_.try_take();
    if (!group) return;
    if (*group < std::ssize(pending))
      start_group(pending[static_cast<size_t>(*group)], *group, prompts, plan);
    else
      resume_migrated(prompts, plan, *group);
  }
}

void RolloutPhase::start_group(uint32_t index, int64_t group, std::span<const data::Prompt> prompts,
                               const SamplingPlan& plan) {
  source_of_[index] = group;
  ++times_.groups;
  if (episodes_) return start_episodes(index, group, prompts[index], plan);
  if (const auto rest = rest_.find(index); rest != rest_.end()) {
    unfinished_[group] = std::ssize(rest->second);
    engine_.resume(group_of(prompts[index], plan), rest->second);
  } else {
    unfinished_[group] = plan.samples;
    engine_.submit(group_of(prompts[index], plan));
  }
}

// The samples that are known already, of a step that was interrupted, are not begun.
void RolloutPhase::start_episodes(uint32_t index, int64_t group, const data::Prompt& prompt,
                                  const SamplingPlan& plan) {
  std::vector<uint32_t> samples;
  if (const auto rest = rest_.find(index); rest != rest_.end()) {
    for (const rollout::Response& response : rest->second) samples.push_back(response.sample);
  } else {
    for (int64_t i = 0; i < plan.samples; ++i) samples.push_back(static_cast<uint32_t>(i));
  }
  unfinished_[group] = std::ssize(samples);
  episodes_->start(prompt, group_of(prompt, plan), samples);
}

void RolloutPhase::resume_migrated(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                                   int64_t migration) {
  std::map<uint32_t, std::vector<rollout::Response>> unfinished;
  for (run::Rollout& rollout : run::unpack(groups_.take_migration())) {
    unfinished[rollout.prompt].push_back(std::move(rollout.response));
    ++unfinished_[migration];
  }
  // A lost worker may have finished some of the migration's groups, and have handed them over,
  // before it was lost with the rest.
  const bool is_again = !groups_.lost_workers().empty();
  for (auto& [index, responses] : unfinished) {
    if (is_again) finished_.begin_again(index);
    source_of_[index] = migration;
    engine_.resume(group_of(prompts[index], plan), std::move(responses));
  }
}

void RolloutPhase::migrate_unfinished() {
  const std::vector<run::Rollout> migrated = cancel_unfinished();
  unfinished_.clear();
  source_of_.clear();
  reported_sequences_ = 0;
  times_.moved_sequences += std::ssize(migrated);
  groups_.move(run::pack(migrated));
}

// Ends what the engine has, with the tokens so far.
std::vector<run::Rollout> RolloutPhase::cancel_unfinished() {
  engine_.cancel_all();
  std::vector<rollout::Response> responses = engine_.take_finished();
  std::vector<run::Rollout> unfinished;
  if (episodes_) {
    episodes_->drop_all();
    return unfinished;
  }
  for (rollout::Response& response : responses) {
    run::Rollout& rollout = unfinished.emplace_back();
    rollout.prompt = index_of_.at(response.prompt_id);
    rollout.response = std::move(response);
  }
  return unfinished;
}

// Reports the load to the coordinator when the number of sequences changes, and every
// kReportInterval steps.
void RolloutPhase::report_load() {
  if (!idle_trainer_ || comm_.size() == 1 || episodes_) return;  // none: nothing migrates
  const int64_t below = idle_trainer_->consolidate_below();
  const rollout::EngineStats stats = engine_.stats();
  const int64_t sequences = stats.running + stats.waiting;
  if (sequences == 0 || sequences > (below < 0 ? kFewSequences : below)) return;
  if (sequences == reported_sequences_ && ++steps_since_report_ < kReportInterval) return;
  reported_sequences_ = sequences;
  steps_since_report_ = 0;
  const rollout::Unfinished left = engine_.unfinished();
  groups_.report({.sequences = left.sequences,
                  .tokens = left.tokens,
                  .remaining = left.remaining,
                  .room = below < 0 ? engine_.spare_capacity() : below - left.sequences});
}

void RolloutPhase::submit_for_score(run::Rollout rollout, const data::Prompt& prompt,
                                    const SamplingPlan& plan) {
  const size_t id = finished_.add(std::move(rollout));
  const run::Rollout& added = finished_.rollouts().back();
  const rollout::Response& response = added.response;
  rewards_.submit(
      id, {.data_source = prompt.data_source,
           .response = tokenizer_.decode(response.tokens, /*skip_special=*/true),
           .raw_response = tokenizer_.decode(response.tokens),
           .ground_truth = prompt.ground_truth,
           .extra_info = std::make_shared<const nlohmann::ordered_json>(prompt.extra_info),
           .prompt = run::text_of_prompt(added, prompt, tokenizer_),
           .messages = prompt.messages.is_null() || !added.own_prompt.empty()
                           ? nullptr
                           : std::make_shared<const nlohmann::ordered_json>(prompt.messages),
           .response_ids = response.tokens,
           .truncated = response.finish == rollout::FinishReason::kLength,
           .response_tokens = std::ssize(response.tokens),
           .max_response_tokens = plan.sampling->max_new_tokens,
           .episode = added.episode ? std::make_shared<const reward::EpisodeOutcome>(*added.episode)
                                    : nullptr});
}

void RolloutPhase::collect(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  for (run::Rollout& rollout : take_finished()) {
    // The signal may have ended the environment too: the episode begins again after the resume.
    if (rollout.episode && !rollout.episode->fault.empty() && wants_stop(plan)) continue;
    const uint32_t index = index_of_.at(rollout.response.prompt_id);
    rollout.prompt = index;
    rollout.finish_seconds = since_begin_.seconds();
    submit_for_score(std::move(rollout), prompts[index], plan);
    const int64_t source = source_of_.at(index);
    if (--unfinished_.at(source) > 0) continue;
    unfinished_.erase(source);
    groups_.done(source);
  }
}

std::vector<run::Rollout> RolloutPhase::take_finished() {
  std::vector<run::Rollout> rollouts;
  if (episodes_) {
    for (FinishedEpisode& finished : episodes_->advance()) {
      run::Rollout& rollout = rollouts.emplace_back();
      rollout.response = std::move(finished.response);
      rollout.episode = std::move(finished.outcome);
      rollout.own_prompt = std::move(finished.own_prompt);
    }
    return rollouts;
  }
  for (rollout::Response& response : engine_.take_finished())
    rollouts.emplace_back().response = std::move(response);
  return rollouts;
}

void RolloutPhase::be_idle(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  if (waiting_episodes() > 0) {
    if (!waits_since_) waits_since_ = since_begin_.seconds();
    if (episodes_->wait(kIdleWaitSeconds)) return waits_since_.reset();
    if (finished_.complete() > 0) begin_finished(prompts, plan);
    if (!try_early_gradients(plan)) train_while_waiting(plan);
    return;
  }
  begin_finished(prompts, plan);
  if (prefers_gradients(plan) && try_early_gradients(plan)) return;
  if (try_training(plan) || try_early_gradients(plan)) return;
  groups_.wait_for_news(kIdleWaitSeconds);
}

// Offers other workers this one's finished groups, and hands over those that were asked for. It
// computes what is left when it is idle itself.
void RolloutPhase::share_finished() {
  engine_.keep_alive();
  attach(rewards_.poll());
  groups_.offer(finished_.complete());
  while (groups_.should_hand_over()) {
    const std::vector<run::Rollout> group = finished_.take_newest();
    std::string rollouts = group.empty() ? "" : run::pack(group);
    // The update computes a group that is too large for a message.
    if (std::ssize(rollouts) > cluster::kMaxMigrationBytes) rollouts.clear();
    groups_.hand_over(std::move(rollouts));
  }
}

// Begins early gradients of a finished group, if there is one and none is in progress.
void RolloutPhase::begin_finished(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  if (!plan.early_gradients || plan.early_gradients->has_work()) return;
  std::vector<run::Rollout> rollouts = finished_.take_oldest();
  if (rollouts.empty() && (wants_finished_ || are_gradients_first())) {
    // One that was asked for is taken, whatever is first by now: this worker has it for good, and
    // wait_for_news() returns at once until it is taken.
    const std::string bytes = groups_.take_finished();
    wants_finished_ = bytes.empty();
    if (!bytes.empty()) rollouts = run::unpack(bytes), ++times_.moved_groups;
  }
  if (rollouts.empty()) return;
  const uint32_t prompt = rollouts.front().prompt;
  TLT_CHECK(prompt < prompts.size(), "a finished group of prompt ", prompt);
  // Nothing is unfinished here. The next turn of an episode would find its pages.
  if (!episodes_) engine_.release_memory();
  plan.early_gradients->begin(prompts[prompt].tokens, rollouts);
}

bool RolloutPhase::prefers_gradients(const SamplingPlan& plan) const {
  const bool has_work =
      plan.early_gradients && (plan.early_gradients->has_work() || finished_.complete() > 0);
  return has_work && are_gradients_first();
}

bool RolloutPhase::are_gradients_first() const {
  return !idle_trainer_ || gradients_first({.workers = comm_.size(),
                                            .rollout_seconds = since_begin_.seconds(),
                                            .draft_model_share = draft_model_share_,
                                            .trained_share = idle_trainer_->trained_share(),
                                            .acceptance_gain = idle_trainer_->acceptance_gain()});
}

bool RolloutPhase::try_training(const SamplingPlan& plan) {
  bool worked = false;
  while (idle_trainer_ && groups_.may_train() && !wants_stop(plan) && idle_trainer_->try_slice()) {
    report_progress();
    worked = true;
    share_finished();
    if (prefers_gradients(plan)) break;
  }
  if (!worked) return false;
  idle_trainer_->pause();
  if (!groups_.may_train())
    times_.preemption_seconds.push_back(steady_clock().seconds() - groups_.training_ended_at());
  return true;
}

// A slice of bounded time, after which the environment may have answered. The coordinator allows
// training to workers without a group; this one has some, and need not ask.
void RolloutPhase::train_while_waiting(const SamplingPlan& plan) {
  if (!idle_trainer_ || wants_stop(plan) ||
      since_begin_.seconds() - *waits_since_ < kLongWaitSeconds || !idle_trainer_->try_slice())
    return;
  report_progress();
  idle_trainer_->pause();
}

bool RolloutPhase::try_early_gradients(const SamplingPlan& plan) {
  if (!plan.early_gradients) return false;
  const bool is_reference = plan.early_gradients->is_at_reference();
  const double start = steady_clock().seconds();
  double end = start;
  while (end - start < kGradientSliceSeconds &&
         plan.early_gradients->is_at_reference() == is_reference &&
         plan.early_gradients->try_part())
    end = steady_clock().seconds();
  if (end == start) return false;
  (is_reference ? times_.reference_seconds : times_.gradient_seconds) += end - start;
  if (timeline_)
    timeline_->span(is_reference ? run::kReferenceLane : run::kGradientLane, plan.name.span, start,
                    end);
  return true;
}

void RolloutPhase::attach(const std::vector<reward::ScoredSample>& samples) {
  for (const reward::ScoredSample& sample : samples) finished_.attach(sample);
}

void RolloutPhase::attach_scores(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  const TimelineSpan span(timeline_, run::kRewardLane, plan.name.span);
  const Stopwatch watch;
  attach(rewards_.poll());
  while (!finished_.are_scored()) {
    begin_finished(prompts, plan);
    engine_.keep_alive();
    report_progress();  // a reward has a timeout of its own
    if (wants_stop(plan)) {
      groups_.stop();  // so that the others do not wait for their scores either
      if (since_begin_.seconds() - *stop_seen_ > kLastScoresSeconds) break;
      std::this_thread::sleep_for(kRewardWait);
    } else if (!try_early_gradients(plan) && !(idle_trainer_ && idle_trainer_->try_slice())) {
      std::this_thread::sleep_for(kRewardWait);
    }
    attach(rewards_.poll());
  }
  if (idle_trainer_) idle_trainer_->pause();
  times_.reward_seconds = watch.seconds();
}

// Adds what was known of the groups that no worker has begun again before the phase was stopped.
void RolloutPhase::keep_rest(std::vector<run::Rollout>& all) {
  std::set<std::pair<uint32_t, uint32_t>> present;
  for (const run::Rollout& rollout : all) present.emplace(rollout.prompt, rollout.response.sample);
  for (auto& [index, responses] : rest_)
    for (rollout::Response& response : responses) {
      if (response.tokens.empty() || present.contains({index, response.sample})) continue;
      run::Rollout& rollout = all.emplace_back();
      rollout.prompt = index;
      rollout.response = std::move(response);
    }
}

// The same list on all workers. A response that two of them have, because a worker was lost, has
// the same tokens; a finished one counts before an unfinished one, and the first one's score.
std::vector<run::Rollout> RolloutPhase::exchange() {
  const auto place = [](const run::Rollout& rollout) {
    return std::pair(rollout.prompt, rollout.response.sample);
  };
  const auto order = [&](const run::Rollout& rollout) {
    return std::pair(place(rollout), rollout.response.finish == rollout::FinishReason::kCancelled);
  };
  std::vector<run::Rollout> mine = finished_.rollouts(),
                            all = known_;  // copies: the section may be repeated
  mine.insert(mine.end(), cancelled_.begin(), cancelled_.end());
  for (const std::string& bytes : comm_.all_gather_bytes(run::pack(mine)))
    for (run::Rollout& rollout : run::unpack(bytes)) all.push_back(std::move(rollout));
  std::ranges::stable_sort(all, {}, order);
  const auto end = std::unique(all.begin(), all.end(),
                               [&](const auto& a, const auto& b) { return place(a) == place(b); });
  TLT_CHECK(end == all.end() || comm_.continues_after_loss(), all.end() - end, " rollouts twice");
  all.erase(end, all.end());
  return all;
}

}  // namespace tlt::rl
