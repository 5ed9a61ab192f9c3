// SPDX-License-Identifier: Apache-2.0
#include "rl/rl_loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/sentence.h"
#include "rl/advantages.h"
#include "rl/step_report.h"
#include "rl/validation.h"
#include "run/report/timeline_steps.h"
#include "run/run_length.h"

namespace tlt::rl {
namespace {

std::unique_ptr<data::Dataset> load_held_out(const run::RunOptions& options,
                                             const run::RunContext& context,
                                             const reward::Reward& reward) {
  if (options.data.val_files.empty()) return nullptr;
  return std::make_unique<data::Dataset>(
      load_rows(options, context, reward, data::Split::kValidation));
}

// The most responses that are decoded together: of a training batch or a validation.
int64_t most_responses(const run::RunOptions& options, const data::Dataset* held_out) {
  const int64_t trained = options.prompts_per_batch() * options.responses_per_prompt();
  const bool validates = options.trainer.val_before_train || options.trainer.test_freq > 0;
  if (!held_out || !validates) return trained;
  return std::max(trained, held_out->size() * options.rollout.validation.n);
}

std::vector<double> scores_of(std::span<const run::Rollout> rollouts) {
  std::vector<double> scores;
  for (const run::Rollout& rollout : rollouts) scores.push_back(rollout.score);
  return scores;
}

std::unique_ptr<model::PolicyModel> make_reference(const run::RunOptions& options,
                                                   const run::RunContext& context) {
  if (options.distillation.is_remote()) return nullptr;
  if (options.distillation.is_estimate()) return run::make_teacher(options, context);
  if (!options.actor.loss.use_kl_loss && !options.algorithm.use_kl_in_reward) return nullptr;
  return run::make_policy(options, context.device, *context.comm);
}

std::optional<GroupFilter> make_filter(const run::RunOptions& options) {
  if (!options.algorithm.filter_groups.enable) return std::nullopt;
  return GroupFilter(options.algorithm.filter_groups, options.reward);
}

std::unique_ptr<RemoteTeacher> make_remote_teacher(const run::RunOptions& options,
                                                   const run::RunContext& context) {
  if (!options.distillation.is_remote()) return nullptr;
  // Less than the time after which the other workers give up waiting for this one.
  constexpr double kShare = 0.5;
  auto teacher = std::make_unique<RemoteTeacher>(options.distillation.teacher,
                                                 kShare * options.trainer.timeout_seconds);
  teacher->start(context.tokenizer);
  return teacher;
}

// Says which ways to train the options rule out. to_early: EarlyGradients::obstacle().
void log_obstacles(const run::RunOptions& options, const std::string& to_early) {
  if (options.actor.early_gradients && !to_early.empty())
    log_info("no gradients during the rollouts: {}", to_early);
  if (const std::string to_groups = options.obstacle_to_group_training(); !to_groups.empty())
    log_info("each worker of a group trains the whole model, because of {}", to_groups);
}

}  // namespace

RlLoop::RlLoop(const run::RunOptions& options, const cluster::Launch& launch)
    : options_((options.check(), run::check_workers(options, launch), options)),
      reward_(start_reward(options_)),
      context_(options_, launch),
      prompts_(load_rows(options_, context_, *reward_, data::Split::kTrain)),
      held_out_(load_held_out(options_, context_, *reward_)),
      sampler_(prompts_.parts(), options_.data.shuffle, options_.data.seed),
      total_steps_(run::count_data_steps(options_, sampler_, prompts_.left_out())),
      filter_(make_filter(options_)),
      reference_(make_reference(options_, context_)),
      remote_teacher_(make_remote_teacher(options_, context_)),
      teacher_(options_.distillation.is_exact() ? run::make_teacher(options_, context_) : nullptr),
      rollouts_(options_, launch, context_,
                {prompts_, reward_, most_responses(options_, held_out_.get())}),
      trainer_(*context_.model, options_.trainer_options(), *context_.comm,
               {.total_steps = total_steps_,
                .temperature = options_.rollout.sampling.rule().logprob_temperature(),
                .adapter = context_.adapter.get(),
                .teacher = teacher_.get(),
                .group = options_.trains_in_groups() ? std::optional(rollouts_.group_training())
                                                     : std::nullopt}),
      critic_(options_.algorithm.has_critic()
                  ? std::make_unique<Critic>(options_, context_, total_steps_,
                                             [this] { return rollouts_.is_interrupted(); })
                  : nullptr),
      policy_files_(context_, options_.model.path),
      run_("train", options_, context_, policy_files_.describe_adapter()) {
  if (prompts_.leaves_out_template() && context_.is_first())
    log_warning(
        "prompts are plain text, so the chat template of {} is not applied; set "
        "data.chat_template=model for a chat model, or none if this is meant",
        options_.model.path);
  const std::string obstacle = EarlyGradients::obstacle(options_);
  if (obstacle.empty()) early_gradients_.emplace(options_, trainer_, reference_.get());
  if (context_.is_first()) log_obstacles(options_, obstacle);
  const std::string& folder = run_.folder().path();
  unfinished_.emplace(options_, context_, folder);
  resume();
  run_.start(total_steps_);
  trainer_.set_should_stop([this] { return rollouts_.is_interrupted(); });
  if (context_.is_first() && run_.step() > 0) replay(score_alarm_, folder + "/metrics.jsonl");
  timeline_ = std::make_unique<Timeline>(folder + "/timeline.json", context_.comm->rank());
  rollouts_.set_timeline(timeline_.get());
  joining_.emplace(options_, context_, folder);
  if (context_.is_first() && log_is_terminal())
    trainer_.set_on_pack([progress = std::make_shared<UpdateProgress>()](
                             int64_t done, int64_t packs) { (*progress)(done, packs); });
}

RlLoop::~RlLoop() = default;

int RlLoop::run() {
  if (!run_.begin(fmt::format("{} with {} each per step",
                              counted(options_.data.train_batch_size, "prompt"),
                              counted(options_.rollout.n, "response"))))
    return 0;
  // The weights of a checkpoint within the first step are not those before it.
  if (run_.step() == 0 && resumed_steps_ == 0 && options_.trainer.val_before_train) {
    StepReport report;
    validate(report);
    run_.report(report.metrics());
  }
  while (run_.has_next_step() && teacher_fault_.empty() && !lets_join()) run_step();
  save_all();
  // Before the barrier: a launcher may end rank 0 as soon as another worker has failed; and workers
  // that meet again wait for each other a short time only, trackers included.
  if (!teacher_fault_.empty()) run_.drain();
  if (next_) run_.pause(next_->with_new.world_size);
  timeline_->flush();
  context_.comm->barrier("timeline");  // the report reads what all workers wrote
  rollouts_.disconnect();
  if (!teacher_fault_.empty()) throw Error(teacher_fault_);
  if (next_) return 0;
  const int exit_code = run_.end();
  if (run_.is_complete())
    rollouts_.with_engine([this] {
      if (context_.is_first()) summarize_run();
    });
  return exit_code;
}

// What the run continues with: the responses first, as a checkpoint takes longer. A checkpoint
// within a step has its responses.
void RlLoop::save_all() {
  if (unfinished_->has_rollouts() && update_.steps() == 0) unfinished_->save();
  if (run_.has_new_steps() && context_.is_first())
    rollouts_.write_drafter(run_.folder().path() + "/drafter");
  if (update_.steps() > resumed_steps_)
    save_within_step();
  else if (run_.is_unsaved())
    save();
}

bool RlLoop::lets_join() {
  next_ = joining_->accept();
  return next_.has_value();
}

void RlLoop::run_step() {
  StepReport report;
  const std::optional<StepGroups> groups = roll_out(report);
  if (!groups) return;
  std::vector<train::TrainSample> samples = make_samples(*groups, report);
  // The logprobs of the reference, or values, may be missing.
  if (!teacher_fault_.empty() || context_.anyone_interrupted()) return;
  const std::vector<double> rewards =
      add_advantages(options_.algorithm, scores_of(groups->rollouts()), options_.rollout.n, samples,
                     scores_of(groups->baselines()));
  add_teacher(options_.distillation, samples);
  if (options_.distillation.is_estimate())
    report.metrics().set("distillation/kl", mean_teacher_kl(options_.distillation, samples));
  if (!try_update(*groups, samples, report)) return;
  run_.advance(sampler_.cursor(), groups->generated().batches);
  unfinished_->finish();
  update_ = {};
  resumed_steps_ = 0;
  report.add_rollouts(groups->prompts(), groups->rollouts(), options_.data.max_response_length);
  report.add_generated(groups->generated(), filter_.has_value());
  report.add_baselines(groups->baselines());
  report.add_advantages(rewards, samples);
  add_worker_metrics(report);
  if (options_.trainer.dump_rollouts) write_rollouts(*groups, samples);
  if (run_.is_due(options_.trainer.test_freq)) validate(report);
  watch_scores(report.metrics());
  run_.report(report.metrics());
  if (run_.is_save_due()) save();
}

std::optional<StepGroups> RlLoop::roll_out(StepReport& report) {
  rollouts_.begin_step(run_.step());
  unfinished_->begin(run_.step());
  if (early_gradients_) early_gradients_->begin_step();
  StepGroups groups(filter_ ? &*filter_ : nullptr, options_.data.train_batch_size,
                    options_.responses_per_prompt(), options_.algorithm.has_greedy_baseline());
  while (!groups.is_full()) {
    const int64_t batches = groups.generated().batches;
    if (batches > 0) {
      check_generation_limit(groups);
      if (context_.anyone_interrupted()) return std::nullopt;
    }
    std::vector<data::Prompt> prompts = next_prompts();
    const SamplingPlan plan = training_plan(run_.state().gen_batches + batches);
    std::vector<run::Rollout> rollouts =
        rollouts_.run(prompts, plan, unfinished_->known(prompts, plan));
    unfinished_->add(prompts, plan, rollouts);
    if (rollouts_.was_stopped()) return std::nullopt;
    check_scored(prompts, rollouts);
    groups.add(std::move(prompts), std::move(rollouts));
  }
  rollouts_.release_memory();
  report.end_phase("gen");
  rollouts_.end_step(report);
  return groups;
}

std::vector<train::TrainSample> RlLoop::make_samples(const StepGroups& groups, StepReport& report) {
  std::vector<train::TrainSample> samples;
  for (const run::Rollout& rollout : groups.rollouts())
    samples.push_back(make_sample(groups.prompts()[rollout.prompt].tokens, rollout));
  if (reference_ || remote_teacher_) add_reference(samples);
  report.end_phase("ref");
  if (critic_) add_values(samples, report);
  return samples;
}

// Those from before the update, if the critic has changed since.
void RlLoop::add_values(std::vector<train::TrainSample>& samples, StepReport& report) {
  const TimelineSpan span(timeline_.get(), run::kUpdateLane,
                          fmt::format("values of step {}", run_.step() + 1));
  if (resumed_steps_ == 0) {
    critic_->add_values(samples);
    for (const train::TrainSample& sample : samples) update_.values.push_back(sample.values);
  }
  const auto fits = [](const std::vector<float>& values, const train::TrainSample& sample) {
    return std::ssize(values) == sample.response_size();
  };
  const bool have_values = std::ranges::equal(update_.values, samples, fits);
  TLT_CHECK_INPUT(have_values || resumed_steps_ == 0, run_.folder().checkpoints(),
                  ": the checkpoint within step ", run_.step() + 1,
                  " does not have the values of its responses; delete it to resume from the one "
                  "before it");
  for (size_t i = 0; i < samples.size(); ++i) samples[i].values = update_.values[i];
  report.end_phase("values");
}

void RlLoop::add_reference(std::vector<train::TrainSample>& samples) {
  const TimelineSpan span(timeline_.get(), run::kReferenceLane,
                          fmt::format("step {}", run_.step() + 1));
  std::vector<std::vector<float>> logprobs = reference_logprobs(samples);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].reference_logprobs = std::move(logprobs[i]);
}

// If the teacher's server fails: sets teacher_fault_, on every worker.
std::vector<std::vector<float>> RlLoop::reference_logprobs(
    std::span<const train::TrainSample> samples) {
  const std::function<bool()> should_stop = [this] { return rollouts_.is_interrupted(); };
  if (remote_teacher_) {
    TeacherScores scores = remote_teacher_->score(samples, *context_.comm, should_stop);
    if (!scores.fault.empty())
      teacher_fault_ = fmt::format(
          "step {} has no logprobs of the teacher: {}; {}", run_.step() + 1, scores.fault,
          options_.trainer.save_freq > 0
              ? "the same command continues with the step's responses"
              : "trainer.save_freq=0 keeps no checkpoints, so the same command starts again");
    return std::move(scores.logprobs);
  }
  train::Scoring scoring{.temperature = options_.rollout.sampling.rule().logprob_temperature(),
                         .max_tokens = options_.actor.max_tokens,
                         .should_stop = should_stop};
  if (early_gradients_) scoring.known = early_gradients_->reference_of(samples);
  return train::score_samples(*reference_, samples, scoring, *context_.comm);
}

// Throws Error, which ends the run, if no rollout has a score and the scores are trained on.
void RlLoop::check_scored(std::span<const data::Prompt> prompts,
                          std::span<const run::Rollout> rollouts) const {
  if (!options_.distillation.use_task_rewards) return;
  if (std::ranges::any_of(rollouts, [](const run::Rollout& r) { return r.fault.empty(); })) return;
  const run::Rollout& first = rollouts.front();
  throw Error(fmt::format(
      "none of the {} responses after step {} has a score, so there is nothing to train on ({}, "
      "sample {}: {}); repair the reward and start again with the same command: it resumes from "
      "the last checkpoint",
      rollouts.size(), run_.step(), prompts[first.prompt].place, first.response.sample,
      first.fault));
}

// Engine and trainer compute the same bits, so a difference is a fault of a machine or its files.
// Ends the run before the step is saved. All workers decide the same.
void RlLoop::check_logprobs(const train::TrainStats& stats) const {
  if (!(stats.logprob_difference > 0)) return;
  const char* cause = context_.comm->size() > 1
                          ? "a worker has other weights, or its memory or processor is faulty"
                          : "memory or processor of this machine may be faulty";
  throw Error(fmt::format(
      "step {}: the trainer's logprobs of the sampled tokens differ from the engine's by up to "
      "{:.2g} and must be the same: {}. The step is not saved; the same command continues from the "
      "last checkpoint",
      run_.step() + 1, stats.logprob_difference, cause));
}

// False: abandoned, because a worker was interrupted; update_ says where.
bool RlLoop::try_update(const StepGroups& groups, std::span<const train::TrainSample> samples,
                        StepReport& report) {
  const run::DumpedStep batch{run_.step() + 1, groups.prompts(), groups.rollouts(), samples};
  if (critic_ && !try_update_critic(batch, report)) return false;
  if (critic_ && !critic_->trains_policy(run_.step())) {
    report.end_phase("update_actor");
    return true;
  }
  if (!try_update_policy(samples, report)) return false;
  run_.check_skipped(update_.policy, trainer_.optimizer(), batch);
  report.add_training(update_.policy);
  return true;
}

bool RlLoop::try_update_critic(const run::DumpedStep& batch, StepReport& report) {
  const TimelineSpan span(timeline_.get(), run::kUpdateLane,
                          fmt::format("critic, step {}", run_.step() + 1));
  train::TrainStats& stats = update_.critic;
  const bool is_done = stats.steps > 0 && !stats.is_abandoned;  // before the run was resumed
  if (!is_done) stats = critic_->update(batch.samples, std::move(stats));
  if (stats.is_abandoned) return false;
  report.end_phase("update_critic");
  run_.check_skipped(stats, critic_->optimizer(), batch, "critic.optim.lr");
  report.add_critic(stats, batch.samples);
  return true;
}

bool RlLoop::try_update_policy(std::span<const train::TrainSample> samples, StepReport& report) {
  const TimelineSpan span(timeline_.get(), run::kUpdateLane,
                          fmt::format("step {}", run_.step() + 1));
  train::TrainStats& stats = update_.policy;
  stats =
      trainer_.update(samples, train::LossKind::kPolicy,
                      options_.actor.ppo_mini_batch_size * options_.rollout.n, std::move(stats));
  check_logprobs(stats);
  if (stats.is_abandoned) return false;
  trainer_.release_memory();
  report.end_phase("update_actor");
  rollouts_.new_weights();
  return true;
}

void RlLoop::add_worker_metrics(StepReport& report) {
  Metrics& metrics = report.metrics();
  rollouts_.report_step(metrics);
  run_.report_pace(report.seconds(), metrics.at("rollout/tokens"), metrics);
}

void RlLoop::write_rollouts(const StepGroups& groups, std::span<const train::TrainSample> samples) {
  run_.folder().write_rollouts({run_.step(), groups.prompts(), groups.rollouts(), samples},
                               context_.tokenizer);
}

// Ends the run, as verl does, because an endless step looks like a slow one. All workers decide the
// same.
void RlLoop::check_generation_limit(const StepGroups& groups) const {
  const Generated& generated = groups.generated();
  if (context_.is_first())
    log_info("step {}: {} of {} groups after {} generation batches, {} filtered out",
             run_.step() + 1, groups.size(), options_.data.train_batch_size, generated.batches,
             generated.filtered);
  const run::FilterGroupsOptions& filter = options_.algorithm.filter_groups;
  TLT_CHECK_INPUT(
      filter.max_num_gen_batches == 0 || generated.batches < filter.max_num_gen_batches, "step ",
      run_.step() + 1, " has only ", groups.size(), " of ", options_.data.train_batch_size,
      " groups after ", generated.batches,
      " generation batches, and algorithm.filter_groups.max_num_gen_batches allows no more: in ",
      generated.filtered, " groups all samples have the same ", filter.metric, " (mean score ",
      generated.score / static_cast<double>(generated.responses),
      "). The prompts are too easy or too hard for this model; change the data, or set "
      "max_num_gen_batches=0 for no limit");
}

std::vector<data::Prompt> RlLoop::next_prompts() {
  std::vector<data::Prompt> prompts;
  for (const int64_t index : sampler_.next_batch(options_.prompts_per_batch()))
    prompts.push_back(prompts_.prompt(index));
  return prompts;
}

SamplingPlan RlLoop::training_plan(int64_t gen_batch) {
  rollout::SamplingOptions sampling = options_.rollout.sampling;
  sampling.max_new_tokens = options_.data.max_response_length;
  return {.sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling)),
          .samples = options_.responses_per_prompt(),
          .first_greedy_sample = options_.rollout.n,
          .rl_step = static_cast<uint32_t>(gen_batch),
          .seed = static_cast<uint64_t>(options_.trainer.seed),
          .name = {run::kRolloutLane, fmt::format("step {}", run_.step() + 1)},
          // Not of another optimizer step than the first one.
          .early_gradients = early_gradients_ && resumed_steps_ == 0 ? &*early_gradients_ : nullptr,
          .may_stop = true};
}

void RlLoop::validate(StepReport& report) {
  if (!held_out_) return;
  const Stopwatch watch;
  std::vector<data::Prompt> prompts;
  for (int64_t i = 0; i < held_out_->size(); ++i) prompts.push_back(held_out_->prompt(i));
  const SamplingPlan plan = validation_plan(options_);
  const std::vector<run::Rollout> rollouts = rollouts_.run(prompts, plan);
  check_scored(prompts, rollouts);
  const GroupFilter accuracy({}, options_.reward);
  report.add_validation(prompt_scores(prompts, rollouts, accuracy), rollouts);
  if (options_.trainer.dump_rollouts)
    run_.folder().write_validation({run_.step(), prompts, rollouts}, context_.tokenizer);
  report.metrics().set("timing_s/testing", watch.seconds());
}

void RlLoop::gather() {
  rollouts_.gather();
  if (critic_) critic_->gather();
}

void RlLoop::save() {
  gather();
  const TimelineSpan span(context_.is_first() ? timeline_.get() : nullptr, run::kSaveLane,
                          "checkpoint");
  run_.save(trainer_.optimizer(), [this](train::CheckpointParts& parts) {
    parts.files.push_back(policy_files_.snapshot());
    if (critic_) critic_->save(parts);
    rollouts_.save(parts);
  });
}

// After some of the update's optimizer steps: without a folder of the policy, which is none of a
// whole step.
void RlLoop::save_within_step() {
  gather();
  run_.save_within_step(trainer_.optimizer(), [this](train::CheckpointParts& parts) {
    parts.files.push_back([update = update_](const std::string& folder) { update.write(folder); });
    parts.files.push_back(unfinished_->snapshot());
    if (critic_) critic_->save(parts);
    rollouts_.save(parts);
  });
}

void RlLoop::resume() {
  const auto checkpoint = run_.resume(trainer_.optimizer(), sampler_, total_steps_);
  if (!checkpoint) return;
  if (critic_) critic_->resume(*checkpoint);
  rollouts_.resume(*checkpoint);
  if (!checkpoint->is_within_step) return;
  unfinished_->require(*checkpoint);
  update_ = UnfinishedUpdate::read(checkpoint->folder);
  resumed_steps_ = update_.steps();
}

namespace {

// Without the workers that were to join if one of them does not come.
std::unique_ptr<RlLoop> start_again(const run::RunOptions& options, const run::NextLaunch& next) {
  const run::RunOptions resumed = run::resumed_options(options);
  std::unique_ptr<RlLoop> loop;
  try {
    loop = std::make_unique<RlLoop>(resumed, next.with_new);
  } catch (const std::exception& error) {
    log_warning("a worker that was to join did not come ({}); continuing with {}", error.what(),
                counted(next.without_new.world_size, "worker"));
    return std::make_unique<RlLoop>(resumed, next.without_new);
  }
  if (next.without_new.listen_fd >= 0) ::close(next.without_new.listen_fd);
  return loop;
}

int run_to_the_end(const run::RunOptions& options, std::unique_ptr<RlLoop> loop) {
  for (;;) {
    const int exit_code = loop->run();
    const std::optional<run::NextLaunch> next = loop->next();
    if (!next) return exit_code;
    loop.reset();  // folder, memory and connections, before they are taken again
    loop = start_again(options, *next);
  }
}

}  // namespace

int train(const run::RunOptions& options, const cluster::Launch& launch) {
  return run_to_the_end(options, std::make_unique<RlLoop>(options, launch));
}

int join(const run::RunOptions& options, const cluster::Launch& launch) {
  const std::optional<cluster::Launch> joined = run::join_run(options, launch);
  if (!joined) return interrupt_exit_code();
  return train(run::resumed_options(options), *joined);
}

}  // namespace tlt::rl
