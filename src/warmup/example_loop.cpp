// SPDX-License-Identifier: Apache-2.0
#include "warmup/example_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "run/run_length.h"

namespace tlt::warmup {

train::TrainSample to_sample(data::SftExample example) {
  train::TrainSample sample;
  sample.tokens = std::move(example.tokens);
  sample.response_begin = static_cast<int32_t>(example.response_begin);
  sample.weights.assign(example.weights.begin() + example.response_begin, example.weights.end());
  return sample;
}

ExampleLoop::ExampleLoop(const run::RunOptions& options, const cluster::Launch& launch,
                         const ExampleCommand& command)
    : options_((options.check(), options)),
      context_(options_, launch),
      row_(command.row),
      objective_(command.make_objective(options_, context_)),
      sampler_(objective_->parts(), options_.data.shuffle, options_.data.seed),
      total_steps_(run::count_data_steps(options_, sampler_, objective_->left_out())),
      trainer_(*context_.model, options_.trainer_options(), *context_.comm,
               {.total_steps = total_steps_,
                .adapter = context_.adapter.get(),
                .teacher = objective_->teacher()}),
      policy_files_(context_, options_.model.path),
      run_(command.name, options_, context_, policy_files_.describe_adapter()) {
  trainer_.set_on_pack([this](int64_t done, int64_t packs) {
    run_.show(fmt::format("update, packs {}/{}", done, packs));
  });
}

int ExampleLoop::run() {
  if (!try_start()) {
    if (context_.is_first()) log_info("interrupted: the same command resumes");
    return context_.exit_code_of_stop();
  }
  if (!run_.begin(counted(options_.data.train_batch_size, row_) + " per step")) return 0;
  if (run_.step() == 0 && options_.trainer.val_before_train) {
    Metrics metrics;
    validate(metrics);
    run_.report(metrics);
  }
  while (run_.has_next_step()) run_step();
  if (run_.has_new_steps() && context_.is_first()) policy_files_.write(run_.folder().path());
  if (run_.is_unsaved()) save();
  const int exit_code = run_.end();
  if (run_.is_complete() && context_.is_first()) summarize();
  return exit_code;
}

// False: interrupted.
bool ExampleLoop::try_start() {
  if (!objective_->try_prepare(run_.folder().path(), rows_of_all_steps())) return false;
  run_.resume(trainer_.optimizer(), sampler_);
  run_.start(total_steps_);
  return true;
}

// In the order in which they are used first. REQUIRES: no checkpoint is loaded.
std::vector<int64_t> ExampleLoop::rows_of_all_steps() const {
  data::Sampler sampler = sampler_;
  int64_t all = 0;
  for (const data::SamplerPart& part : objective_->parts()) all += part.size;
  std::unordered_set<int64_t> known;
  std::vector<int64_t> rows;
  for (int64_t step = 0; step < total_steps_ && std::ssize(rows) < all; ++step)
    for (const int64_t row : sampler.next_batch(options_.data.train_batch_size))
      if (known.insert(row).second) rows.push_back(row);
  return rows;
}

void ExampleLoop::run_step() {
  const Stopwatch watch;
  const std::vector<train::TrainSample> samples =
      objective_->samples(sampler_.next_batch(options_.data.train_batch_size));
  const train::TrainStats stats = trainer_.update(samples, objective_->loss());
  run_.check_skipped(stats, trainer_.optimizer(),
                     {run_.step() + 1, /*prompts=*/{}, /*rollouts=*/{}, samples});
  run_.advance(sampler_.cursor());

  Metrics metrics;
  for (const auto& [name, value] : stats.metrics) metrics.set(name, value);
  const double seconds = watch.seconds(), tokens = static_cast<double>(stats.tokens);
  metrics.set("actor/skipped_steps", static_cast<double>(stats.skipped_steps));
  metrics.set("train/tokens", tokens);
  metrics.set("train/tokens_per_second", tokens / seconds);
  run_.report_pace(seconds, tokens, metrics);
  if (run_.is_due(options_.trainer.test_freq)) validate(metrics);
  run_.report(metrics);
  if (run_.is_save_due()) save();
}

void ExampleLoop::validate(Metrics& metrics) {
  const Stopwatch watch;
  const size_t before = metrics.size();
  objective_->validate(metrics, [this](const std::string& doing) { run_.show(doing); });
  if (metrics.size() > before) metrics.set("timing_s/testing", watch.seconds());
}

void ExampleLoop::save() {
  run_.save(trainer_.optimizer(), [this](train::CheckpointParts& parts) {
    parts.files.push_back(policy_files_.snapshot());
  });
}

void ExampleLoop::summarize() {
  const std::string policy = run_.folder().path() + "/policy";
  run_.summarize({.result = policy, .policy = policy}, {{"tokens", objective_->example_prompt()}});
}

}  // namespace tlt::warmup
