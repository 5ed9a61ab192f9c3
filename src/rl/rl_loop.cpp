// SPDX-License-Identifier: Apache-2.0
#include "rl/rl_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "cluster/control.h"
#include "rl/advantages.h"
#include "rl/first_draft_network.h"
#include "rl/idle_report.h"
#include "rl/step_report.h"
#include "rollout/make_speculation.h"
#include "run/report/timeline_picture.h"
#include "run/run_length.h"

namespace tlt::rl {
namespace {

// The RL step of validation's uniforms; no training step uses it. The same in each validation.
constexpr uint32_t kValidationStep = uint32_t{1} << 31;

// The file of a checkpoint with the state of the tuner and the drafters.
constexpr const char* kSpeculationText = "speculation.json";

// Called before the model is loaded, so that a reward that cannot run fails within a second.
std::shared_ptr<const reward::Reward> start_reward(const reward::RewardOptions& options) {
  std::shared_ptr<const reward::Reward> reward = reward::make_reward(options);
  reward->start();
  return reward;
}

data::RequiredFields fields_for(const reward::Reward& reward) {
  const reward::RewardNeeds needs = reward.needs();
  return {.ground_truth = needs.ground_truth, .data_source = needs.data_source};
}

// Refuses, before the first step, rows whose answer the reward cannot use.
data::RowCheck row_check(const reward::Reward& reward, int64_t max_response_tokens) {
  return [&reward, max_response_tokens](const data::Prompt& prompt) {
    reward.check_row({.data_source = prompt.data_source,
                      .ground_truth = prompt.ground_truth,
                      .extra_info = &prompt.extra_info,
                      .prompt = prompt.text,
                      .max_response_tokens = max_response_tokens});
  };
}

std::unique_ptr<data::Dataset> load_held_out(const run::RunOptions& options,
                                             const tokenizer::Tokenizer& tokenizer,
                                             const reward::Reward& reward) {
  if (options.data.val_files.empty()) return nullptr;
  return std::make_unique<data::Dataset>(
      data::Dataset::load(options.data, tokenizer, data::Split::kValidation, fields_for(reward),
                          row_check(reward, options.data.max_response_length)));
}

std::vector<double> scores_of(std::span<const run::Rollout> rollouts) {
  std::vector<double> scores;
  for (const run::Rollout& rollout : rollouts) scores.push_back(rollout.score);
  return scores;
}

std::unique_ptr<drafter_training::IdleTrainer> make_idle_trainer(
    const std::shared_ptr<drafter::DraftNetwork>& network, const run::RunOptions& options) {
  const run::SpeculativeTrainOptions& train = options.speculative.train;
  if (!network || !train.idle.enable_drafter_training) return nullptr;
  const bool is_warm =
      !options.speculative.eagle.spec_model_path.empty() || !train.network_plan().folder.empty();
  return std::make_unique<drafter_training::IdleTrainer>(network, train.trainer, train.idle,
                                                         is_warm);
}

cluster::ControlOptions control_options(const run::RunOptions& options, bool trains_drafter) {
  cluster::ControlOptions control;
  if (trains_drafter)
    control.min_workers_for_training = options.speculative.train.idle.min_workers_for_training;
  return control;
}

std::optional<GroupFilter> make_filter(const run::RunOptions& options) {
  if (!options.algorithm.filter_groups.enable) return std::nullopt;
  return GroupFilter(options.algorithm.filter_groups, options.reward);
}

}  // namespace

RlLoop::RlLoop(const run::RunOptions& options, const cluster::Launch& launch)
    : options_((options.check(), options)),
      reward_(start_reward(options_.reward)),
      context_(options_, launch),
      prompts_(data::Dataset::load(options_.data, context_.tokenizer, data::Split::kTrain,
                                   fields_for(*reward_),
                                   row_check(*reward_, options_.data.max_response_length))),
      held_out_(load_held_out(options_, context_.tokenizer, *reward_)),
      sampler_(prompts_.parts(), options_.data.shuffle, options_.data.seed),
      total_steps_(run::count_data_steps(options_, sampler_, prompts_.left_out())),
      filter_(make_filter(options_)),
      reference_(options_.actor.loss.use_kl_loss || options_.algorithm.use_kl_in_reward
                     ? run::make_policy(options_, context_.device)
                     : nullptr),
      stop_string_(context_.tokenizer),
      draft_network_(first_draft_network(options_, *context_.model, prompts_)),
      idle_trainer_(make_idle_trainer(draft_network_, options_)),
      speculation_(rollout::make_speculation(
          options_.speculative, *context_.model, options_.rollout.engine,
          {.network = draft_network_, .seed = static_cast<uint64_t>(options_.trainer.seed)})),
      engine_(*context_.model, options_.rollout.engine, &stop_string_,
              idle_trainer_ ? idle_trainer_->observer() : nullptr, speculation_.get()),
      rewards_(reward_, options_.reward),
      groups_(cluster::make_group_source(*context_.comm, launch,
                                         control_options(options_, idle_trainer_ != nullptr))),
      phase_(engine_, rewards_, *groups_, *context_.comm, context_.tokenizer, idle_trainer_.get()),
      trainer_(*context_.model, options_.trainer_options(), *context_.comm, total_steps_,
               options_.rollout.sampling.rule().logprob_temperature(), context_.adapter.get()),
      policy_files_(context_, options_.model.path),
      run_("train", options_, context_, policy_files_.describe_adapter()) {
  if (prompts_.leaves_out_template() && context_.is_first())
    log_warning(
        "prompts are plain text, so the chat template of {} is not applied; set "
        "data.chat_template=model for a chat model, or none if this is meant",
        options_.model.path);
  if (speculation_) speculation_report_ = std::make_unique<SpeculationReport>(*speculation_);
  resume();
  run_.start(total_steps_);
  const std::string& folder = run_.folder().path();
  if (context_.is_first() && run_.step() > 0) replay(score_alarm_, folder + "/metrics.jsonl");
  timeline_ = std::make_unique<Timeline>(folder + "/timeline.json", context_.comm->rank());
  if (idle_trainer_) idle_trainer_->set_timeline(timeline_.get());
  phase_.set_timeline(timeline_.get());
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
  if (run_.step() == 0 && options_.trainer.val_before_train) {
    Metrics metrics;
    validate(metrics);
    run_.report(metrics);
  }
  while (run_.goes_on()) run_step();
  // Disconnects, so that the coordinator does not wait for this worker while it saves.
  groups_.reset();
  if (idle_trainer_ && run_.has_new_steps() && context_.is_first())
    idle_trainer_->write_drafter(run_.folder().path() + "/drafter");
  if (run_.is_unsaved()) save();
  timeline_->flush();
  context_.comm->barrier("timeline");  // draw() reads what all workers wrote
  run_.folder().draw();
  const int exit_code = run_.end();
  if (run_.is_complete() && context_.is_first()) summarize_run();
  return exit_code;
}

void RlLoop::run_step() {
  Metrics metrics;
  const Stopwatch whole;

  Stopwatch watch;
  if (idle_trainer_) idle_trainer_->begin_step(run_.step());
  const std::optional<StepRollouts> rolled_out = roll_out();
  if (!rolled_out) return;
  metrics.set("timing_s/gen", watch.restart());
  if (idle_trainer_) end_idle_step(*idle_trainer_, *context_.comm, rolled_out->times, metrics);
  watch.restart();
  const StepGroups& groups = rolled_out->groups;
  const std::vector<data::Prompt>& prompts = groups.prompts();
  const std::vector<run::Rollout>& rollouts = groups.rollouts();

  std::vector<train::TrainSample> samples = make_samples(prompts, rollouts);
  add_reference(samples);
  metrics.set("timing_s/ref", watch.restart());
  const std::vector<double> rewards =
      add_advantages(options_.algorithm, scores_of(rollouts), options_.rollout.n, samples);

  const train::TrainStats stats = update(samples);
  metrics.set("timing_s/update_actor", watch.restart());
  if (speculation_) speculation_->new_weights();

  run_.advance(sampler_.cursor(), groups.generated().batches);
  report_rollouts(prompts, rollouts, options_.data.max_response_length, metrics);
  report_generated(groups.generated(), filter_.has_value(), metrics);
  report_advantages(rewards, samples, metrics);
  report_training(stats, metrics);
  if (speculation_report_) speculation_report_->add_step(*context_.comm, metrics);
  report_times(rolled_out->times, whole.seconds(), metrics);
  if (options_.trainer.dump_rollouts)
    run_.folder().write_rollouts({run_.step(), prompts, rollouts, samples}, context_.tokenizer);
  if (run_.is_due(options_.trainer.test_freq)) validate(metrics);
  watch_scores(metrics);
  run_.report(metrics);
  if (run_.is_save_due()) save();
}

train::TrainStats RlLoop::update(std::span<const train::TrainSample> samples) {
  const TimelineSpan span(timeline_.get(), run::kUpdateLane,
                          fmt::format("step {}", run_.step() + 1));
  return trainer_.update(samples, train::LossKind::kPolicy,
                         options_.actor.ppo_mini_batch_size * options_.rollout.n);
}

std::optional<RlLoop::StepRollouts> RlLoop::roll_out() {
  StepRollouts result{
      StepGroups(filter_ ? &*filter_ : nullptr, options_.data.train_batch_size, options_.rollout.n),
      {}};
  StepGroups& groups = result.groups;
  while (!groups.is_full()) {
    const int64_t batches = groups.generated().batches;
    if (batches > 0) {
      check_generation_limit(groups);
      if (context_.anyone_interrupted()) return std::nullopt;
    }
    std::vector<data::Prompt> prompts = next_prompts();
    std::vector<run::Rollout> rollouts =
        phase_.run(prompts, training_plan(run_.state().gen_batches + batches));
    result.times += phase_.times();
    warn_unscored(prompts, rollouts);
    check_scored(prompts, rollouts);
    groups.add(std::move(prompts), std::move(rollouts));
  }
  return result;
}

// A failed reward does not end the run; its sample has no score. Warns whenever their number has
// doubled.
void RlLoop::warn_unscored(std::span<const data::Prompt> prompts,
                           std::span<const run::Rollout> rollouts) {
  const run::Rollout* first = nullptr;
  for (const run::Rollout& rollout : rollouts) {
    if (rollout.fault.empty()) continue;
    if (first == nullptr) first = &rollout;
    ++unscored_;
  }
  if (first == nullptr || unscored_ < next_unscored_warning_ || !context_.is_first()) return;
  next_unscored_warning_ = 2 * unscored_;
  log_warning(
      "{} responses so far have no score and count as reward.failed_score={}; {}, sample {}: {}",
      unscored_, options_.reward.failed_score, prompts[first->prompt].place, first->response.sample,
      first->fault);
}

void RlLoop::check_scored(std::span<const data::Prompt> prompts,
                          std::span<const run::Rollout> rollouts) const {
  if (std::ranges::any_of(rollouts, [](const run::Rollout& r) { return r.fault.empty(); })) return;
  const run::Rollout& first = rollouts.front();
  throw Error(fmt::format(
      "none of the {} responses after step {} has a score, so there is nothing to train on ({}, "
      "sample {}: {}); repair the reward and start again with the same command: it resumes from "
      "the last checkpoint",
      rollouts.size(), run_.step(), prompts[first.prompt].place, first.response.sample,
      first.fault));
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
  const data::DataOptions& data = options_.data;
  std::vector<data::Prompt> prompts;
  for (const int64_t index : sampler_.next_batch(
           filter_ && data.gen_batch_size > 0 ? data.gen_batch_size : data.train_batch_size))
    prompts.push_back(prompts_.prompt(index));
  return prompts;
}

SamplingPlan RlLoop::training_plan(int64_t gen_batch) const {
  rollout::SamplingOptions sampling = options_.rollout.sampling;
  sampling.max_new_tokens = options_.data.max_response_length;
  return {.sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling)),
          .samples = options_.rollout.n,
          .rl_step = static_cast<uint32_t>(gen_batch),
          .seed = static_cast<uint64_t>(options_.trainer.seed),
          .name = {run::kRolloutLane, fmt::format("step {}", run_.step() + 1)}};
}

std::vector<train::TrainSample> RlLoop::make_samples(std::span<const data::Prompt> prompts,
                                                     std::span<const run::Rollout> rollouts) const {
  std::vector<train::TrainSample> samples;
  for (const run::Rollout& rollout : rollouts) {
    const std::vector<int32_t>& prompt = prompts[rollout.prompt].tokens;
    const rollout::Response& response = rollout.response;
    train::TrainSample& sample = samples.emplace_back();
    sample.tokens = prompt;
    sample.tokens.insert(sample.tokens.end(), response.tokens.begin(), response.tokens.end());
    sample.response_begin = static_cast<int32_t>(prompt.size());
    sample.rollout_logprobs = response.logprobs;
  }
  return samples;
}

void RlLoop::add_reference(std::vector<train::TrainSample>& samples) {
  if (!reference_) return;
  const TimelineSpan span(timeline_.get(), run::kUpdateLane, "reference");
  auto logprobs = train::score_samples(*reference_, samples,
                                       options_.rollout.sampling.rule().logprob_temperature(),
                                       options_.actor.max_tokens, *context_.comm);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].reference_logprobs = std::move(logprobs[i]);
}

void RlLoop::validate(Metrics& metrics) {
  if (!held_out_) return;
  const Stopwatch watch;
  const run::ValidationSampling& how = options_.rollout.validation;
  rollout::SamplingOptions sampling = options_.rollout.sampling;
  sampling.temperature = how.temperature;
  sampling.top_k = how.top_k;
  sampling.top_p = how.top_p;
  sampling.max_new_tokens = options_.data.max_response_length;
  std::vector<data::Prompt> prompts;
  for (int64_t i = 0; i < held_out_->size(); ++i) prompts.push_back(held_out_->prompt(i));
  const SamplingPlan plan = {
      .sampling = std::make_shared<const rollout::SamplingOptions>(std::move(sampling)),
      .samples = how.n,
      .rl_step = kValidationStep,
      .seed = static_cast<uint64_t>(options_.trainer.seed),
      .name = {run::kValidationLane, run::kValidationLane}};
  const int64_t size = std::ssize(prompts), wanted = options_.data.val_batch_size;
  const int64_t batch = wanted > 0 ? wanted : size;
  std::vector<run::Rollout> rollouts;
  for (int64_t first = 0; first < size; first += batch) {
    const auto part = std::span(prompts).subspan(
        static_cast<size_t>(first), static_cast<size_t>(std::min(batch, size - first)));
    std::vector<run::Rollout> scored = phase_.run(part, plan);
    warn_unscored(part, scored);
    for (run::Rollout& rollout : scored) {
      rollout.prompt += static_cast<uint32_t>(first);
      rollouts.push_back(std::move(rollout));
    }
  }
  check_scored(prompts, rollouts);
  report_validation(prompts, rollouts, how.n, metrics);
  if (options_.trainer.dump_rollouts)
    run_.folder().write_validation({run_.step(), prompts, rollouts}, context_.tokenizer);
  metrics.set("timing_s/testing", watch.seconds());
}

void RlLoop::save() {
  if (idle_trainer_) idle_trainer_->gather_buffers(*context_.comm);
  const TimelineSpan span(context_.is_first() ? timeline_.get() : nullptr, run::kSaveLane,
                          "checkpoint");
  run_.save(trainer_.optimizer(), [this](train::CheckpointParts& parts) {
    parts.files.push_back(policy_files_.snapshot());
    if (speculation_) parts.texts[kSpeculationText] = speculation_->save();
    if (!idle_trainer_) return;
    parts.texts[drafter_training::IdleTrainer::kStateFile] = idle_trainer_->save();
    parts.files.push_back(idle_trainer_->snapshot());
  });
}

void RlLoop::resume() {
  const auto checkpoint = run_.resume(trainer_.optimizer(), sampler_);
  if (!checkpoint) return;
  if (idle_trainer_) idle_trainer_->resume(*checkpoint, *context_.comm);
  // Every worker restores the state of rank 0: the workers' states are alike.
  if (const auto learned = train::read_text(*checkpoint, kSpeculationText); learned && speculation_)
    speculation_->restore(*learned, checkpoint->folder + "/state/" + kSpeculationText);
}

int train(const run::RunOptions& options, const cluster::Launch& launch) {
  return RlLoop(options, launch).run();
}

}  // namespace tlt::rl
