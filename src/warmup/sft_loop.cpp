// SPDX-License-Identifier: Apache-2.0
#include "warmup/sft_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/sentence.h"
#include "data/sampler.h"
#include "data/sft_dataset.h"
#include "run/policy_files.h"
#include "run/run.h"
#include "run/run_context.h"
#include "run/run_length.h"
#include "train/trainer.h"

namespace tlt::warmup {
namespace {

// Held-out examples per batch: enough to fill packs, and few enough to
// show progress on a terminal.
constexpr int64_t kValidationBatch = 256;

train::TrainSample to_sample(data::SftExample example) {
  train::TrainSample sample;
  sample.tokens = std::move(example.tokens);
  sample.response_begin = static_cast<int32_t>(example.response_begin);
  sample.weights.assign(example.weights.begin() + example.response_begin, example.weights.end());
  return sample;
}

std::optional<data::SftDataset> load_held_out(const run::RunContext& context) {
  if (context.data.val_files.empty()) return std::nullopt;
  return data::SftDataset::load(context.data, context.tokenizer, data::Split::kValidation);
}

class SftLoop {
 public:
  SftLoop(const run::RunOptions& options, const cluster::Launch& launch)
      : options_((options.check(), options)),
        context_(options_, launch),
        examples_(data::SftDataset::load(context_.data, context_.tokenizer, data::Split::kTrain)),
        held_out_(load_held_out(context_)),
        sampler_(examples_.parts(), options_.data.shuffle, options_.data.seed),
        total_steps_(run::count_data_steps(options_, sampler_, examples_.left_out())),
        teacher_(options_.distillation.is_on() ? run::make_teacher(options_, context_) : nullptr),
        trainer_(*context_.model, options_.trainer_options(), *context_.comm,
                 {.total_steps = total_steps_,
                  .adapter = context_.adapter.get(),
                  .teacher = teacher_.get()}),
        policy_files_(context_, options_.model.path),
        run_("sft", options_, context_, policy_files_.describe_adapter()) {
    run_.resume(trainer_.optimizer(), sampler_);
    run_.start(total_steps_);
    trainer_.set_on_pack([this](int64_t done, int64_t packs) {
      run_.show(fmt::format("update, packs {}/{}", done, packs));
    });
  }

  // Returns the exit code.
  int run();

 private:
  void run_step();
  void validate(Metrics& metrics);
  void save();
  void summarize();

  const run::RunOptions options_;
  const run::RunContext context_;
  const data::SftDataset examples_;
  const std::optional<data::SftDataset> held_out_;
  data::Sampler sampler_;
  const int64_t total_steps_;
  const std::unique_ptr<model::PolicyModel> teacher_;  // or null
  train::Trainer trainer_;
  const run::PolicyFiles policy_files_;
  run::Run run_;  // after all members whose construction can fail
};

int SftLoop::run() {
  if (!run_.begin(counted(options_.data.train_batch_size, "example") + " per step")) return 0;
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

void SftLoop::run_step() {
  const Stopwatch watch;
  std::vector<train::TrainSample> samples;
  for (const int64_t index : sampler_.next_batch(options_.data.train_batch_size))
    samples.push_back(to_sample(examples_.example(index)));
  const train::TrainStats stats = trainer_.update(samples, train::LossKind::kSupervised);
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

// Mean negative log-likelihood of the held-out tokens, weighted as in training. Summed in the order
// of the rows, so it is bit-identical for any number of workers.
void SftLoop::validate(Metrics& metrics) {
  if (!held_out_) return;
  const Stopwatch watch;
  const int64_t size = held_out_->size();
  double loss = 0, weight = 0;
  for (int64_t first = 0; first < size; first += kValidationBatch) {
    run_.show(fmt::format("validation {}/{}", first, size));
    std::vector<train::TrainSample> samples;
    for (int64_t i = first; i < std::min(size, first + kValidationBatch); ++i)
      samples.push_back(to_sample(held_out_->example(i)));
    const auto logprobs = train::score_samples(
        *context_.model, samples, {.max_tokens = options_.actor.max_tokens}, *context_.comm);
    for (size_t i = 0; i < samples.size(); ++i)
      for (int64_t t = 0; t < samples[i].response_size(); ++t) {
        weight += samples[i].weight(t);
        loss -= samples[i].weight(t) * logprobs[i][static_cast<size_t>(t)];
      }
  }
  TLT_CHECK_INPUT(weight > 0,
                  "no token of data.val_files counts in the loss; give responses, or "
                  "change data.loss_weights");
  metrics.set("val/loss", loss / weight);
  metrics.set("val/perplexity", std::exp(loss / weight));
  metrics.set("timing_s/testing", watch.seconds());
}

void SftLoop::save() {
  run_.save(trainer_.optimizer(), [this](train::CheckpointParts& parts) {
    parts.files.push_back(policy_files_.snapshot());
  });
}

void SftLoop::summarize() {
  const std::string policy = run_.folder().path() + "/policy";
  const data::SftExample example = (held_out_ ? *held_out_ : examples_).example(0);
  const std::vector<int32_t> prompt(example.tokens.begin(),
                                    example.tokens.begin() + example.response_begin);
  run_.summarize({.result = policy, .policy = policy}, {{"tokens", prompt}});
}

}  // namespace

int sft(const run::RunOptions& options, const cluster::Launch& launch) {
  const train::DistillationOptions& distillation = options.distillation;
  TLT_CHECK_INPUT(!distillation.is_estimate(), "distillation.loss_mode=", distillation.loss_mode,
                  " is an estimate from the student's own responses, which `tlt sft` has not; set "
                  "distillation.loss_mode=forward_kl");
  TLT_CHECK_INPUT(!distillation.is_on() || distillation.use_task_rewards,
                  "distillation.use_task_rewards is of `tlt train`; `tlt sft` has no rewards, so "
                  "leave it out");
  return SftLoop(options, launch).run();
}

}  // namespace tlt::warmup
