// SPDX-License-Identifier: Apache-2.0
#include "warmup/draft_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "data/sampler.h"
#include "drafter/files/draft_folder.h"
#include "drafter/make_draft_network.h"
#include "drafter_training/acceptance_probe.h"
#include "drafter_training/draft_trainer.h"
#include "drafter_training/token_ranking.h"
#include "run/run.h"
#include "run/run_context.h"
#include "run/run_length.h"
#include "warmup/draft_data.h"

namespace tlt::warmup {
namespace {

std::unique_ptr<drafter::DraftNetwork> make_network(const drafter::DraftNetworkPlan& plan,
                                                    const model::PolicyModel& target) {
  auto network = drafter::make_draft_network(plan, target);
  TLT_CHECK_INPUT(network->algorithm() == plan.algorithm, "speculative.train.algorithm is ",
                  plan.algorithm, " and the draft model in ", plan.folder, " is of ",
                  network->algorithm(), "; set it to that");
  return network;
}

class DraftLoop {
 public:
  DraftLoop(const run::RunOptions& options, const cluster::Launch& launch)
      : options_((options.check(), options)),
        context_(options_, launch),
        plan_(options_.speculative.train.network_plan()),
        network_(make_network(plan_, *context_.model)),
        data_(options_, context_, drafter_training::layers_to_record(*network_)),
        run_("draft", options_, context_) {}

  // Returns the exit code.
  int run();

 private:
  void prepare();
  void rank_tokens();
  void run_step();
  drafter_training::DraftTrainStats learn();
  void measure(Metrics& metrics);
  void save();
  void write_drafter();
  void summarize();

  const run::RunOptions options_;
  run::RunContext context_;
  const drafter::DraftNetworkPlan plan_;
  std::unique_ptr<drafter::DraftNetwork> network_;
  DraftData data_;
  run::Run run_;  // after all members whose construction can fail
  // Set by prepare(), which needs the samples.
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<drafter_training::DraftTrainer> trainer_;
};

int DraftLoop::run() {
  if (!data_.try_make()) {
    if (context_.is_first()) log_info("interrupted: the same command resumes");
    return context_.exit_code_of_stop();
  }
  prepare();
  if (!run_.begin(fmt::format("draft model, {} of {} sequences per step, {} held out",
                              options_.speculative.train.trainer.batch_size,
                              data_.training().size(), data_.held_out().size())))
    return 0;
  if (run_.step() == 0 && options_.trainer.val_before_train) {
    Metrics metrics;
    measure(metrics);
    run_.report(metrics);
  }
  while (run_.has_next_step()) run_step();
  if (run_.has_new_steps() && context_.is_first()) write_drafter();
  if (run_.is_unsaved()) save();
  const int exit_code = run_.end();
  if (run_.is_complete() && context_.is_first()) summarize();
  return exit_code;
}

void DraftLoop::prepare() {
  const drafter_training::DraftTrainOptions& options = options_.speculative.train.trainer;
  const std::vector<drafter_training::DraftSample>& training = data_.training();
  TLT_CHECK_INPUT(std::ssize(training) >= options.batch_size, "speculative.train.batch_size is ",
                  options.batch_size, " and there are ", training.size(),
                  " sequences to train on; lower it or give more prompts");
  drafter_training::check_samples(training, options);
  if (!data_.held_out().empty()) drafter_training::check_samples(data_.held_out(), options);
  rank_tokens();
  sampler_.emplace(std::ssize(training), options_.data.shuffle, options_.data.seed);
  const int64_t steps = run::count_steps(options_.trainer, *sampler_, options.batch_size);
  trainer_ =
      std::make_unique<drafter_training::DraftTrainer>(*network_, options, *context_.comm, steps);
  run_.resume(trainer_->optimizer(), *sampler_);
  run_.start(steps);
}

// Ranks the tokens by frequency in the samples. The LM head of a new EAGLE-3 draft model has the
// most frequent ones and starts from the target's rows; the folder of an EAGLE draft model lists
// them as hot tokens.
void DraftLoop::rank_tokens() {
  const model::ModelConfig& target = context_.model->config();
  std::vector<int32_t> ranked =
      drafter_training::rank_tokens(data_.training(), target.eos_tokens, target.vocabulary);
  if (drafter::misses_head_tokens(plan_, *network_))
    drafter::choose_head_tokens(plan_, ranked, *network_);
  if (network_->algorithm() == "eagle") network_->set_hot_tokens(std::move(ranked));
}

void DraftLoop::run_step() {
  const Stopwatch watch;
  const drafter_training::DraftTrainStats stats = learn();
  const int64_t skipped = stats.fault.empty() ? 0 : 1;
  run_.check_skipped({.count = skipped,
                      .fault = stats.fault,
                      .in_row = trainer_->optimizer().skipped_in_row(),
                      .remedy = "--override speculative.train.optim.lr=… (a lower learning rate)"});
  run_.advance(sampler_->cursor());

  Metrics metrics;
  for (const auto& [name, value] : stats.metrics) metrics.set(name, value);
  const double seconds = watch.seconds(), tokens = static_cast<double>(stats.tokens);
  metrics.set("main/loss", metrics.at("drafter/loss"));
  metrics.set("drafter/skipped_steps", static_cast<double>(skipped));
  metrics.set("drafter/tokens", tokens);
  metrics.set("train/tokens_per_second", tokens / seconds);
  run_.report_pace(seconds, tokens, metrics);
  if (run_.is_due(options_.trainer.test_freq) || run_.is_complete()) measure(metrics);
  run_.report(metrics);
  if (run_.is_save_due()) save();
}

drafter_training::DraftTrainStats DraftLoop::learn() {
  std::vector<drafter_training::DraftSample> batch;
  for (const int64_t index : sampler_->next_batch(options_.speculative.train.trainer.batch_size))
    batch.push_back(data_.training()[static_cast<size_t>(index)]);
  trainer_->begin(std::move(batch));
  for (int64_t packs = 0; trainer_->run_pack() > 0;)
    run_.show(fmt::format("update, {} done", counted(++packs, "pack")));
  return trainer_->finish();
}

void DraftLoop::measure(Metrics& metrics) {
  if (data_.held_out().empty()) return;
  const Stopwatch watch;
  run_.show("validation");
  const drafter_training::DraftSums sums = trainer_->measure(data_.held_out());
  for (const auto& [name, value] : sums.metrics(trainer_->loss_weights(), "val-drafter/"))
    metrics.set(name, value);
  drafter_training::AcceptanceProbe probe(*network_, options_.speculative.train.warmup.val_steps);
  const drafter_training::Acceptance acceptance = probe.measure(data_.held_out(), *context_.comm);
  metrics.set("val-drafter/mean_acceptance_length", acceptance.tokens_per_forward());
  for (size_t k = 0; k < acceptance.accepted.size(); ++k)
    metrics.set(fmt::format("val-drafter/acceptance_rate_pos_{}", k + 1), acceptance.rate(k));
  metrics.set("main/validation_loss", metrics.at("val-drafter/loss"));
  metrics.set("timing_s/testing", watch.seconds());
}

void DraftLoop::save() {
  run_.save(trainer_->optimizer(), [this](train::CheckpointParts& parts) {
    const auto drafter =
        std::make_shared<drafter::DraftSnapshot>(drafter::snapshot_drafter(*network_));
    parts.files.push_back([drafter](const std::string& folder) {
      drafter::save_drafter(*drafter, folder + "/drafter");
    });
  });
}

void DraftLoop::write_drafter() {
  AtomicFolder drafter(run_.folder().path() + "/drafter");
  drafter::save_drafter(*network_, drafter.path());
  drafter.commit();
}

void DraftLoop::summarize() {
  const std::string drafter = run_.folder().path() + "/drafter";
  run_.summarize(
      {.result = drafter, .policy = options_.model.path, .drafter = drafter, .has_drafter = true},
      {{"tokens", data_.example_prompt()}});
}

}  // namespace

int draft(const run::RunOptions& options, const cluster::Launch& launch) {
  return DraftLoop(options, launch).run();
}

}  // namespace tlt::warmup
