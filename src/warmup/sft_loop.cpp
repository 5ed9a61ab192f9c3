// SPDX-License-Identifier: Apache-2.0
#include "warmup/sft_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/check.h"
#include "data/sft_dataset.h"
#include "warmup/example_loop.h"

namespace tlt::warmup {
namespace {

std::optional<data::SftDataset> load_held_out(const run::RunContext& context) {
  if (context.data.val_files.empty()) return std::nullopt;
  return data::SftDataset::load(context.data, context.tokenizer, data::Split::kValidation);
}

class SftObjective final : public Objective {
 public:
  SftObjective(const run::RunOptions& options, const run::RunContext& context)
      : options_(options),
        context_(context),
        examples_(data::SftDataset::load(context.data, context.tokenizer, data::Split::kTrain)),
        held_out_(load_held_out(context)),
        teacher_(options.distillation.is_on() ? run::make_teacher(options, context) : nullptr) {}

  train::LossKind loss() const override { return train::LossKind::kSupervised; }
  const std::vector<data::SamplerPart>& parts() const override { return examples_.parts(); }
  int64_t left_out() const override { return examples_.left_out(); }
  const model::PolicyModel* teacher() const override { return teacher_.get(); }

  std::vector<train::TrainSample> samples(std::span<const int64_t> rows) const override {
    std::vector<train::TrainSample> samples;
    for (const int64_t row : rows) samples.push_back(to_sample(examples_.example(row)));
    return samples;
  }

  void validate(Metrics& metrics,
                const std::function<void(const std::string& doing)>& show) const override;

  std::vector<int32_t> example_prompt() const override {
    const data::SftExample example = (held_out_ ? *held_out_ : examples_).example(0);
    return {example.tokens.begin(), example.tokens.begin() + example.response_begin};
  }

 private:
  const run::RunOptions& options_;
  const run::RunContext& context_;
  const data::SftDataset examples_;
  const std::optional<data::SftDataset> held_out_;
  const std::unique_ptr<model::PolicyModel> teacher_;  // or null
};

// Mean negative log-likelihood of the held-out tokens, weighted as in training.
void SftObjective::validate(Metrics& metrics,
                            const std::function<void(const std::string& doing)>& show) const {
  if (!held_out_) return;
  const int64_t size = held_out_->size();
  double loss = 0, weight = 0;
  for (int64_t first = 0; first < size; first += kValidationBatch) {
    show(fmt::format("validation {}/{}", first, size));
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
  const MakeObjective make = [](const run::RunOptions& of_run, const run::RunContext& context) {
    return std::make_unique<SftObjective>(of_run, context);
  };
  return ExampleLoop(options, launch, {"sft", "example", make}).run();
}

}  // namespace tlt::warmup
