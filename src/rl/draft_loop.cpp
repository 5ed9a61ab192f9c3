// SPDX-License-Identifier: Apache-2.0
#include "rl/draft_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/sentence.h"
#include "data/sampler.h"
#include "model/draft_eagle.h"
#include "model/draft_eagle3.h"
#include "model/draft_folder.h"
#include "model/draft_hot_tokens.h"
#include "rl/draft_data.h"
#include "rl/loop_state.h"
#include "rl/resume.h"
#include "rl/run_folder.h"
#include "rl/run_length.h"
#include "rl/workplace.h"
#include "spot/acceptance_probe.h"
#include "spot/draft_trainer.h"
#include "spot/token_ranking.h"
#include "train/checkpoint.h"

namespace tlt::rl {
namespace {

// Without weights: its head is that of tokens which are known when the samples are (prepare()).
std::unique_ptr<model::DraftNetwork> make_eagle3(const spot::WarmupOptions& options,
                                                 const model::PolicyModel& target) {
  const int64_t all = target.config().vocabulary, wanted = options.draft_vocab_size;
  return std::make_unique<model::Eagle3Network>(
      target, model::Eagle3Config::make(target.config(), wanted > 0 ? std::min(wanted, all) : all));
}

std::unique_ptr<model::DraftNetwork> make_drafter(const RunOptions& options,
                                                  const model::PolicyModel& target) {
  const spot::WarmupOptions& warmup = options.speculative.train.warmup;
  const std::string& init = warmup.init;
  if (init != "target" && init != "random") {
    auto network = model::load_drafter(init, target);
    TLT_CHECK_INPUT(network->algorithm() == warmup.algorithm, "speculative.train.algorithm is ",
                    warmup.algorithm, " and the drafter in ", init, " is of ", network->algorithm(),
                    "; set it to that");
    return network;
  }
  if (warmup.algorithm == "eagle3") return make_eagle3(warmup, target);
  auto network = std::make_unique<model::EagleNetwork>(
      target, model::EagleNetwork::config_for(target.config()));
  const auto seed = static_cast<uint64_t>(options.speculative.train.trainer.seed);
  init == "target" ? network->initialize_from_target(seed) : network->initialize(seed);
  return network;
}

class DraftLoop {
 public:
  DraftLoop(const RunOptions& options, const cluster::Launch& launch)
      : options_((options.check(), options)),
        place_(options_, launch),
        network_(make_drafter(options_, *place_.model)),
        data_(options_, place_, spot::layers_to_record(*network_)),
        folder_(options_, *place_.comm) {}

  // Returns the exit code.
  int run();

 private:
  void prepare();
  void rank_tokens();
  void resume();
  void run_step();
  void measure(Metrics& metrics);
  void save();
  void report_step(const spot::DraftStats& stats, Metrics& metrics);
  void report_end() const;
  bool is_due(int64_t frequency) const {
    return frequency > 0 && (state_.step % frequency == 0 || state_.step == total_steps_);
  }

  const RunOptions options_;
  Workplace place_;
  std::unique_ptr<model::DraftNetwork> network_;
  DraftData data_;
  RunFolder folder_;  // after what can fail
  // Made by prepare(), when the samples are known.
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<spot::DraftTrainer> trainer_;
  std::unique_ptr<train::CheckpointWriter> checkpoints_;
  std::unique_ptr<Progress> progress_;
  int64_t total_steps_ = 0;
  LoopState state_;
  Stopwatch watch_;
  int64_t tokens_ = 0;    // since the watch was started
  Metrics before_, now_;  // of the held-out samples
};

int DraftLoop::run() {
  if (!data_.try_make()) {
    if (place_.is_first()) log_info("stopped; the same command resumes");
    return place_.exit_code_of_stop();
  }
  prepare();
  const int64_t first = state_.step;
  if (first >= total_steps_) return log_complete(place_, first, total_steps_), 0;
  if (first == 0 && options_.trainer.val_before_train) {
    Metrics metrics;
    measure(metrics);
    folder_.write_metrics(0, metrics);
  }
  if (place_.is_first()) progress_ = std::make_unique<Progress>("draft", total_steps_ - first);
  watch_.restart();
  while (state_.step < total_steps_ && !place_.anyone_interrupted()) run_step();
  progress_.reset();
  if (state_.step > first && !is_due(options_.trainer.save_freq)) save();
  if (checkpoints_) {
    checkpoints_->drain();
    model::save_drafter(*network_, folder_.path() + "/drafter");
  }
  report_end();
  return state_.step < total_steps_ ? report_stop(place_, state_.step, total_steps_) : 0;
}

void DraftLoop::prepare() {
  const spot::DraftTrainOptions& options = options_.speculative.train.trainer;
  const std::vector<spot::DraftSample>& training = data_.training();
  TLT_CHECK_INPUT(std::ssize(training) >= options.batch_size, "speculative.train.batch_size is ",
                  options.batch_size, " and there are ", training.size(),
                  " sequences to learn from; lower it or give more prompts");
  spot::check_samples(training, options);
  if (!data_.held_out().empty()) spot::check_samples(data_.held_out(), options);
  rank_tokens();
  sampler_.emplace(std::ssize(training), options_.data.shuffle, options_.data.seed);
  total_steps_ =
      options_.trainer.total_training_steps > 0
          ? options_.trainer.total_training_steps
          : options_.trainer.total_epochs * sampler_->batches_per_epoch(options.batch_size);
  trainer_ = std::make_unique<spot::DraftTrainer>(*network_, options, *place_.comm, total_steps_);
  resume();
  if (place_.is_first())
    checkpoints_ = std::make_unique<train::CheckpointWriter>(
        folder_.checkpoints(), options_.trainer.max_ckpt_to_keep, state_.step);
  folder_.start(options_, state_.step);
  place_.comm->barrier("run folder");
  if (place_.is_first())
    log_info("{}: drafter steps {} to {} on {}, {} sequences of {}, {} held out",
             options_.model.path, state_.step + 1, total_steps_,
             counted(place_.comm->size(), "worker"), options.batch_size, training.size(),
             data_.held_out().size());
}

// A new EAGLE-3 drafter's head is that of the samples' tokens, and its first rows the target's; an
// EAGLE drafter's folder says which tokens they are.
void DraftLoop::rank_tokens() {
  const model::ModelConfig& target = place_.model->config();
  std::vector<int32_t> ranked =
      spot::rank_tokens(data_.training(), target.eos_tokens, target.vocabulary);
  auto* eagle3 = dynamic_cast<model::Eagle3Network*>(network_.get());
  if (!eagle3) return network_->set_hot_tokens(std::move(ranked));
  if (options_.speculative.train.warmup.init != "random") return;
  eagle3->set_head_tokens(model::hottest(ranked, eagle3->head_rows()));
  eagle3->initialize(static_cast<uint64_t>(options_.speculative.train.trainer.seed));
}

void DraftLoop::run_step() {
  std::vector<spot::DraftSample> batch;
  for (const int64_t index : sampler_->next_batch(options_.speculative.train.trainer.batch_size))
    batch.push_back(data_.training()[static_cast<size_t>(index)]);
  const spot::DraftStats stats = trainer_->step(batch);
  ++state_.step;
  state_.cursor = sampler_->cursor();
  Metrics metrics;
  report_step(stats, metrics);
  if (is_due(options_.trainer.test_freq) || state_.step == total_steps_) measure(metrics);
  if (is_due(options_.trainer.save_freq)) save();
  folder_.write_metrics(state_.step, metrics);
}

void DraftLoop::measure(Metrics& metrics) {
  if (data_.held_out().empty()) return;
  const SpeculativeTrainOptions& options = options_.speculative.train;
  now_ = {};
  const spot::DraftSums sums = trainer_->measure(data_.held_out());
  for (const auto& [name, value] : sums.metrics(trainer_->loss_weights(), "val-drafter/"))
    now_.set(name, value);
  spot::AcceptanceProbe probe(*network_, options.warmup.val_steps);
  const spot::Acceptance acceptance = probe.measure(data_.held_out(), *place_.comm);
  now_.set("val-drafter/mean_acceptance_length", acceptance.tokens_per_forward());
  for (size_t k = 0; k < acceptance.accepted.size(); ++k)
    now_.set(fmt::format("val-drafter/acceptance_rate_pos_{}", k + 1), acceptance.rate(k));
  if (state_.step == 0) before_ = now_;
  metrics.merge(now_);
}

void DraftLoop::report_step(const spot::DraftStats& stats, Metrics& metrics) {
  for (const auto& [name, value] : stats.metrics) metrics.set(name, value);
  tokens_ += stats.tokens;
  const double rate = static_cast<double>(tokens_) / watch_.seconds();
  metrics.set("drafter/tokens", static_cast<double>(stats.tokens));
  metrics.set("perf/throughput", rate);
  if (progress_)
    progress_->advance(
        1, fmt::format("loss {:.4f}, top-1 {:.3f}, {:.0f} tokens/s", metrics.at("drafter/loss"),
                       metrics.at("drafter/top1_accuracy"), rate));
}

// The held-out figures at the run's start, where this process saw it, and now.
void DraftLoop::report_end() const {
  if (!place_.is_first()) return;
  log_info("the drafter is in {}/drafter", folder_.path());
  for (const auto& [name, value] : now_) {
    const auto before = before_.find(name);
    log_info("  {:<40} {} {:.3f}", name, before ? fmt::format("{:.3f} ->", *before) : "", value);
  }
}

void DraftLoop::save() {
  if (!checkpoints_) return;
  const auto snapshot = std::make_shared<model::DraftSnapshot>(model::snapshot_drafter(*network_));
  checkpoints_->save(state_.step,
                     [snapshot](const std::string& folder) {
                       model::save_drafter(*snapshot, folder + "/drafter");
                     },
                     trainer_->optimizer().snapshot(),
                     {{train::kLoopText,
                       to_json(state_, resume_digest(options_), trainer_->optimizer().steps())}});
}

void DraftLoop::resume() {
  const auto point =
      find_resume_point(options_, folder_.path(), folder_.checkpoints(), *place_.comm);
  if (!point) return;
  train::load_checkpoint(point->place, trainer_->optimizer(), point->saved.optimizer_steps);
  state_ = point->saved.state;
  sampler_->restore(state_.cursor);
}

}  // namespace

int draft(const RunOptions& options, const cluster::Launch& launch) {
  return DraftLoop(options, launch).run();
}

}  // namespace tlt::rl
