// SPDX-License-Identifier: Apache-2.0
#include "run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/sentence.h"
#include "run/find_checkpoint.h"
#include "run/report/step_line.h"

namespace tlt::run {
namespace {

constexpr double kLineSeconds = 1;  // least time between two step lines on the console

RunIdentity identity_of(const std::string& command, const RunOptions& options,
                        const RunContext& context, const std::string& more) {
  if (!context.is_first()) return {};
  RunIdentity identity = identify(command, options, more);
  identity.started = context.started;
  return identity;
}

std::string digest_of(const RunIdentity& identity) {
  return sha256(identity.model + "\n" + identity.options);
}

}  // namespace

Run::Run(const std::string& command, const RunOptions& options, const RunContext& context,
         const std::string& more)
    : options_(options),
      context_(context),
      identity_(identity_of(command, options, context, more)),
      folder_(options, identity_, *context.comm) {}

std::optional<train::CheckpointPlace> Run::resume(train::Optimizer& optimizer,
                                                  data::Sampler& sampler, int64_t total_steps) {
  const WithinStep within{.options = digest_of(identity_), .total_steps = total_steps};
  auto found = find_checkpoint(folder_.checkpoints(), *context_.comm, within);
  if (!found) return std::nullopt;
  const SavedState saved = parse_state(train::read_text(*found, train::kLoopText).value(),
                                       found->folder + "/state/" + train::kLoopText);
  train::load_checkpoint(*found, optimizer, saved.optimizer_steps);
  optimizer.restore_skipped_in_row(saved.skipped_in_row);
  if (context_.adapter) context_.adapter->merge();
  sampler.restore(saved.state.cursor);
  state_ = saved.state;
  is_resumed_ = true;
  if (context_.is_first())
    log_info("resuming from {}, {} {}", found->folder,
             found->is_within_step ? "within the update after step" : "step", state_.step);
  return found;
}

void Run::start(int64_t total_steps) {
  total_steps_ = total_steps;
  first_step_ = saved_step_ = state_.step;
  if (context_.is_first())
    checkpoints_ = std::make_unique<train::CheckpointWriter>(
        folder_.checkpoints(), options_.trainer.max_ckpt_to_keep, state_.step);
  folder_.start(options_, state_.step, is_resumed_);
  context_.comm->barrier("run folder");
}

bool Run::begin(const std::string& step_size) {
  if (!is_complete()) folder_.start_trackers(options_);
  watch_.restart();
  watchdog_.emplace(options_.trainer.watchdog_seconds());
  if (context_.is_first() && is_complete())
    log_info("complete ({} of {} steps); raise trainer.total_training_steps to train further",
             state_.step, total_steps_);
  else if (context_.is_first())
    log_info("{}: steps {} to {} on {}, {}; run folder {}", options_.model.path, state_.step + 1,
             total_steps_, counted(context_.comm->size(), "worker"), step_size, folder_.path());
  return !is_complete();
}

bool Run::has_next_step() const { return !is_complete() && !context_.anyone_interrupted(); }

void Run::advance(const data::SamplerCursor& cursor, int64_t gen_batches) {
  ++state_.step;
  state_.gen_batches += gen_batches;
  state_.cursor = cursor;
}

bool Run::is_due(int64_t frequency) const {
  return frequency > 0 && (state_.step % frequency == 0 || is_complete());
}

bool Run::is_unsaved() const { return options_.trainer.save_freq > 0 && saved_step_ < state_.step; }

// nullopt on the workers that do not write it.
std::optional<train::CheckpointParts> Run::parts_of(const train::Optimizer& optimizer) const {
  train::CheckpointParts parts;
  if (checkpoints_ || optimizer.is_shared()) parts.optimizer = optimizer.snapshot();
  if (!checkpoints_) return std::nullopt;
  parts.texts[train::kLoopText] = to_json({.state = state_,
                                           .optimizer_steps = optimizer.steps(),
                                           .skipped_in_row = optimizer.skipped_in_row()});
  return parts;
}

void Run::save(const train::Optimizer& optimizer,
               const std::function<void(train::CheckpointParts& parts)>& add) {
  const Stopwatch watch;
  saved_step_ = state_.step;
  auto parts = parts_of(optimizer);
  if (!parts) return;
  add(*parts);
  checkpoints_->save(state_.step, std::move(*parts));
  save_seconds_ = watch.seconds();
}

void Run::save_within_step(const train::Optimizer& optimizer,
                           const std::function<void(train::CheckpointParts& parts)>& add) {
  if (options_.trainer.save_freq == 0) return;
  saved_step_ = state_.step;
  auto parts = parts_of(optimizer);
  if (!parts) return;
  parts->texts[train::kOptionsText] = digest_of(identity_);
  add(*parts);
  checkpoints_->save_within_step(std::move(*parts));
}

void Run::check_skipped(const SkippedSteps& skipped) const {
  if (skipped.count == 0) return;
  const std::string what =
      fmt::format("step {}: {}{}", state_.step + 1, skipped.fault,
                  skipped.batch.empty() ? "" : fmt::format(" (the batch is in {})", skipped.batch));
  if (skipped.in_row > train::kMaxSkippedSteps)
    throw Error(fmt::format(
        "{}; {} in a row without a valid gradient, more than {}: start again from the last "
        "checkpoint with {}",
        what, counted(skipped.in_row, "optimizer step"), train::kMaxSkippedSteps, skipped.remedy));
  if (context_.is_first())
    log_warning("{}; {} skipped, and the weights stay as they were", what,
                counted(skipped.count, "optimizer step"));
}

void Run::check_skipped(const train::TrainStats& stats, const train::Optimizer& optimizer,
                        const DumpedStep& batch, const std::string& rate) {
  if (stats.skipped_steps > 0)
    check_skipped({.count = stats.skipped_steps,
                   .fault = stats.fault,
                   .in_row = optimizer.skipped_in_row(),
                   .batch = folder_.write_skipped(batch, context_.tokenizer),
                   .remedy = "--override " + rate + "=… (a lower learning rate)"});
}

void Run::report_pace(double seconds, double tokens, Metrics& metrics) {
  metrics.set("timing_s/step", seconds);
  metrics.set("perf/time_per_step", seconds);
  metrics.set("perf/throughput", tokens / seconds / static_cast<double>(context_.comm->size()));
  metrics.set("training/global_step", static_cast<double>(state_.step));
  metrics.set("training/epoch", static_cast<double>(state_.cursor.epoch));
  if (save_seconds_ > 0) metrics.set("timing_s/save_checkpoint", save_seconds_);
  save_seconds_ = 0;
}

void Run::report(const Metrics& step_metrics) {
  if (!context_.is_first() || step_metrics.size() == 0) return;
  const Metrics metrics = with_main(step_metrics);
  folder_.write_metrics(state_.step, metrics);
  const std::vector<std::string>& loggers = options_.trainer.logger;
  if (std::ranges::find(loggers, "console") == loggers.end()) return;
  const bool is_validation = metrics.find("timing_s/testing").has_value();
  if (!is_validation && !is_complete() && watch_.seconds() - last_line_ < kLineSeconds) return;
  last_line_ = watch_.seconds();
  for (const std::string& line : step_lines(
           {.step = state_.step, .total = total_steps_, .eta_seconds = eta_seconds()}, metrics))
    log_info("{}", line);
}

std::optional<double> Run::eta_seconds() const {
  if (!has_new_steps()) return std::nullopt;
  return watch_.seconds() / static_cast<double>(state_.step - first_step_) *
         static_cast<double>(total_steps_ - state_.step);
}

void Run::show(const std::string& doing) {
  if (!context_.is_first() || !log_is_terminal()) return;
  if (!progress_) {
    progress_.emplace("step", total_steps_, Progress::kTerminalOnly);
    progress_->start_at(state_.step);
  }
  progress_->advance(state_.step - progress_->done(), doing);
}

void Run::close(int exit_code) {
  progress_.reset();
  drain();
  watchdog_.reset();  // a slow tracker is no hang
  folder_.finish_trackers(exit_code);
}

void Run::pause(int64_t workers) {
  close(0);
  if (context_.is_first())
    log_info("step {} of {}: {} from here on", state_.step, total_steps_,
             counted(workers, "worker"));
}

int Run::end() {
  close(is_complete() ? 0 : context_.exit_code_of_stop());
  if (is_complete()) return 0;
  if (context_.is_first()) {
    folder_.write_report();
    log_info("interrupted: stopped at step {} of {}; {}", state_.step, total_steps_,
             saved_step_ == state_.step
                 ? "the same command resumes from there"
                 : "trainer.save_freq=0 keeps no checkpoints: the same command starts again");
  }
  return context_.exit_code_of_stop();
}

void Run::summarize(RunFacts facts, const nlohmann::json& example_prompt) {
  const std::string& folder = folder_.path();
  facts.folder = folder;
  facts.program = program_name();
  facts.report = folder_.report_path();
  facts.has_tensorboard = std::filesystem::exists(folder + "/tensorboard");
  write_file_atomic(folder + "/example_prompt.jsonl", example_prompt.dump() + "\n");
  const std::vector<std::string> lines =
      run::summarize(MetricHistory(folder + "/metrics.jsonl"), facts);
  for (const std::string& line : lines) log_info("{}", line);
  write_file_atomic(folder + "/summary.txt", fmt::format("{}\n", fmt::join(lines, "\n")));
  folder_.write_report();
}

}  // namespace tlt::run
