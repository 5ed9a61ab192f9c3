// SPDX-License-Identifier: Apache-2.0
#include "rl/rollout_worker.h"

#include <algorithm>

#include "base/log.h"
#include "cluster/control.h"
#include "cluster/spawn.h"
#include "rl/first_draft_network.h"
#include "rl/idle_report.h"
#include "rl/worker_sums.h"
#include "rollout/make_speculation.h"

namespace tlt::rl {
namespace {

// The file of a checkpoint with the state of the tuner and the drafters.
constexpr const char* kSpeculationText = "speculation.json";

// What a leader gives its followers after a phase: one of these, then the rollouts.
constexpr char kWasStopped = 's', kWasFinished = 'f';

std::unique_ptr<drafter_training::IdleTrainer> make_idle_trainer(
    const std::shared_ptr<drafter::DraftNetwork>& network, const run::RunOptions& options) {
  const run::SpeculativeTrainOptions& train = options.speculative.train;
  if (!network || !train.idle.enable_drafter_training) return nullptr;
  const bool is_warm =
      !options.speculative.eagle.spec_model_path.empty() || !train.network_plan().folder.empty();
  drafter_training::IdleTrainOptions idle = train.idle;
  idle.buffer_bytes = options.speculative.training_bytes();
  return std::make_unique<drafter_training::IdleTrainer>(network, train.trainer, idle, is_warm);
}

cluster::ControlOptions control_options(const run::RunOptions& options, bool trains_drafter) {
  cluster::ControlOptions control{.lost_after_seconds = options.trainer.lost_after_seconds()};
  if (trains_drafter) control.min_workers_for_training = 1;
  return control;
}

std::unique_ptr<cluster::GroupSource> make_groups(const run::RunOptions& options,
                                                  const cluster::Launch& launch,
                                                  const RolloutRanks& ranks, bool trains_drafter) {
  if (ranks.follows()) return std::make_unique<cluster::LocalGroups>();
  return cluster::make_group_source(ranks.leaders(), launch,
                                    control_options(options, trains_drafter));
}

std::unique_ptr<Episodes> make_episodes(const run::RunOptions& options,
                                        const run::RunContext& context,
                                        const data::Dataset& prompts, rollout::Engine& engine) {
  if (!options.environment.is_on()) return nullptr;
  std::vector<int32_t> stop_tokens;
  const auto append = [&](const auto& tokens) {
    stop_tokens.insert(stop_tokens.end(), tokens.begin(), tokens.end());
  };
  append(options.rollout.sampling.stop_tokens);
  if (!options.rollout.sampling.ignore_eos) append(context.model->config().eos_tokens);
  auto episodes = std::make_unique<Episodes>(options.environment, context.data, context.tokenizer,
                                             engine, stop_tokens);
  episodes->check(prompts.prompt(0));
  return episodes;
}

// The turns of an episode find the pages of those before them. An engine keeps its cache through a
// phase; new_weights() empties it.
rollout::EngineOptions engine_options(const run::RunOptions& options, int64_t most_responses) {
  rollout::EngineOptions engine = options.rollout.engine;
  engine.max_running = std::clamp<int64_t>(most_responses, 1, engine.max_running);
  engine.prefix_cache = options.environment.is_on();
  engine.caches_prompts = false;
  return engine;
}

// A worker that follows has an engine without work.
rollout::EngineOptions without_work(rollout::EngineOptions engine, const run::RunContext& context) {
  engine.max_running = engine.max_batch_tokens = 1;
  engine.kv_memory_bytes = context.model->kv_shape().page_bytes();
  return engine;
}

// The seconds in which only the last tenth of the responses were unfinished.
double tail_seconds(std::span<const run::Rollout> rollouts) {
  if (rollouts.empty()) return 0;
  std::vector<double> seconds;
  for (const run::Rollout& rollout : rollouts) seconds.push_back(rollout.finish_seconds);
  std::ranges::sort(seconds);
  return seconds.back() - seconds[(seconds.size() * 9 + 9) / 10 - 1];
}

}  // namespace

RolloutWorker::RolloutWorker(const run::RunOptions& options, const cluster::Launch& launch,
                             const run::RunContext& context, const Work& work)
    : options_(options),
      context_(context),
      response_text_(context.tokenizer),
      engine_options_(engine_options(options, work.most_responses)),
      ranks_(options, context),
      draft_network_(first_draft_network(options, *context.model, work.prompts)),
      idle_trainer_(make_idle_trainer(draft_network_, options)),
      speculation_(rollout::make_speculation(options.speculative, ranks_.target(), engine_options_,
                                             {.network = draft_network_,
                                              .seed = static_cast<uint64_t>(options.trainer.seed),
                                              .defers_measuring = ranks_.follows()})),
      engine_(ranks_.follows() ? rollout::TargetModel(*context.model) : ranks_.target(),
              ranks_.follows() ? without_work(engine_options_, context) : engine_options_,
              &response_text_, idle_trainer_.get(), speculation_.get()),
      episodes_(ranks_.follows() ? nullptr
                                 : make_episodes(options, context, work.prompts, engine_)),
      rewards_(work.reward, options.reward),
      groups_(make_groups(options, launch, ranks_, idle_trainer_ != nullptr)),
      phase_(engine_, rewards_, *groups_, ranks_.leaders(), context.tokenizer) {
  with_engine([] {});  // followers have waited since the leader's first pass
  phase_.set_idle_trainer(idle_trainer_.get());
  phase_.set_episodes(episodes_.get());
  if (speculation_) speculation_report_.emplace(*speculation_);
  context.comm->continue_after_loss([this](int worker) { return groups_->is_silent(worker); });
  if (context.is_first() && context.comm->continues_after_loss()) cluster::let_workers_fail(launch);
}

void RolloutWorker::disconnect() {
  context_.comm->continue_after_loss(nullptr);
  groups_.reset();
}

void RolloutWorker::set_timeline(Timeline* timeline) {
  if (idle_trainer_) idle_trainer_->set_timeline(timeline);
  phase_.set_timeline(timeline);
}

void RolloutWorker::begin_step(int64_t step) {
  times_ = {};
  tail_seconds_ = 0;
  if (idle_trainer_) idle_trainer_->begin_step(step);
}

void RolloutWorker::end_step(StepReport& report) {
  if (!idle_trainer_) return;
  const auto step = idle_trainer_->end_step(*context_.comm, seconds_for_gap());
  report_idle_step(step, idle_trainer_->buffer(), times_, *context_.comm, report.metrics());
  report.end_phase("drafter");
}

// Seconds of decoding, for a share of which a single engine trains after it. Its followers wait for
// it in a collective meanwhile.
double RolloutWorker::seconds_for_gap() const {
  if (ranks_.engines() > 1) return 0;
  const double share = options_.speculative.train.idle.gap_share;
  return context_.comm->size() == 1 || share <= 0
             ? times_.decode_seconds
             : std::min(times_.decode_seconds, options_.trainer.timeout_seconds / 2 / share);
}

std::vector<run::Rollout> RolloutWorker::run(std::span<const data::Prompt> prompts,
                                             const SamplingPlan& plan,
                                             std::vector<run::Rollout> known) {
  std::vector<run::Rollout> rollouts;
  const std::string result = ranks_.together([&] {
    rollouts = phase_.run(prompts, plan, std::move(known));
    was_stopped_ = phase_.was_stopped();
    if (!ranks_.has_followers()) return std::string();
    return std::string(1, was_stopped_ ? kWasStopped : kWasFinished) + run::pack(rollouts);
  });
  if (ranks_.follows()) {
    was_stopped_ = result.front() == kWasStopped;
    rollouts = run::unpack(std::string_view(result).substr(1));
  }
  if (was_stopped_) return rollouts;
  if (!ranks_.follows()) times_ += phase_.times();
  tail_seconds_ += tail_seconds(rollouts);
  warn_unscored(prompts, rollouts);
  return rollouts;
}

void RolloutWorker::warn_unscored(std::span<const data::Prompt> prompts,
                                  std::span<const run::Rollout> rollouts) {
  const run::Rollout* first = nullptr;
  for (const run::Rollout& rollout : rollouts) {
    if (rollout.fault.empty()) continue;
    if (first == nullptr) first = &rollout;
    ++unscored_;
  }
  if (first == nullptr || unscored_ < next_unscored_warning_ || !context_.is_first()) return;
  next_unscored_warning_ = 2 * unscored_;
  log_warning("{} responses so far have no score and count as 0; {}, sample {}: {}", unscored_,
              prompts[first->prompt].place, first->response.sample, first->fault);
}

void RolloutWorker::report_step(Metrics& metrics) {
  if (speculation_report_) {
    speculation_report_->add_step(*context_.comm, metrics);
    if (idle_trainer_)
      idle_trainer_->add_idle(metrics.at("drafter/idle_seconds"),
                              metrics.at("drafter/used_seconds"));
    phase_.set_draft_model_share(speculation_report_->draft_model_share());
  }
  const PhaseTimes all = sum_over_workers(*context_.comm, times_);
  const auto workers = static_cast<double>(context_.comm->size()),
             engines = static_cast<double>(ranks_.engines());
  const double gen_seconds = metrics.at("timing_s/gen");
  metrics.set("timing_s/reward", all.reward_seconds / engines);
  metrics.set("rollout/decode_seconds", all.decode_seconds);
  metrics.set("rollout/forward_seconds", all.forward_seconds);
  metrics.set("rollout/sample_seconds", all.sample_seconds);
  metrics.set("rollout/idle_seconds", all.idle_seconds);
  metrics.set("rollout/early_gradient_seconds", all.gradient_seconds);
  metrics.set("rollout/early_reference_seconds", all.reference_seconds);
  metrics.set("rollout/moved_sequences", static_cast<double>(all.moved_sequences));
  metrics.set("rollout/moved_groups", static_cast<double>(all.moved_groups));
  if (episodes_) metrics.set("rollout/cached_tokens", static_cast<double>(all.cached_tokens));
  metrics.set("rollout/workers", workers);
  metrics.set("rollout/worker_seconds", workers * gen_seconds);
  // Idle: the engine is empty while others decode, or the worker waits for rewards.
  metrics.set("rollout/idle_share",
              (all.idle_seconds + all.reward_seconds) / std::max(1e-9, engines * gen_seconds));
  metrics.set("rollout/half_empty_share",
              (all.idle_seconds + all.half_empty_seconds) /
                  std::max(1e-9, all.idle_seconds + all.decode_seconds));
  metrics.set("rollout/tail_share", tail_seconds_ / std::max(1e-9, gen_seconds));
  metrics.set("rollout/sequences_per_worker",
              std::min(static_cast<double>(engine_options_.max_running),
                       static_cast<double>(options_.data.train_batch_size *
                                           options_.responses_per_prompt()) /
                           engines));
  metrics.set("rollouter/idle_ratio",
              all.idle_seconds / std::max(1e-9, all.idle_seconds + all.decode_seconds));
  metrics.set("rollout/tokens_per_second", metrics.at("rollout/tokens") / gen_seconds);
}

void RolloutWorker::with_engine(const std::function<void()>& body) {
  ranks_.together([&] {
    body();
    return std::string();
  });
}

void RolloutWorker::new_weights() {
  ranks_.new_weights();
  engine_.new_weights();
  if (speculation_) speculation_->new_weights();
}

void RolloutWorker::gather() {
  if (idle_trainer_) idle_trainer_->gather_buffers(*context_.comm);
}

void RolloutWorker::save(train::CheckpointParts& parts) {
  if (speculation_) parts.texts[kSpeculationText] = speculation_->save();
  if (!idle_trainer_) return;
  parts.texts[drafter_training::IdleTrainer::kStateFile] = idle_trainer_->save();
  parts.files.push_back(idle_trainer_->snapshot());
}

void RolloutWorker::resume(const train::CheckpointPlace& checkpoint) {
  ranks_.new_weights();  // the policy is the checkpoint's
  if (idle_trainer_) idle_trainer_->resume(checkpoint, *context_.comm);
  // Every worker restores the state of rank 0: the workers' states are alike.
  if (const auto learned = train::read_text(checkpoint, kSpeculationText); learned && speculation_)
    speculation_->restore(*learned, checkpoint.folder + "/state/" + kSpeculationText);
}

void RolloutWorker::write_drafter(const std::string& folder) const {
  if (idle_trainer_) idle_trainer_->write_drafter(folder);
}

ReplayEngines RolloutWorker::replay_engines(std::vector<rollout::Group> groups) {
  return {engine_,
          *speculation_,
          {ranks_.target(), engine_options_, &response_text_},
          std::move(groups)};
}

}  // namespace tlt::rl
