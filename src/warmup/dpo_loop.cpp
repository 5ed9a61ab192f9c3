// SPDX-License-Identifier: Apache-2.0
#include "warmup/dpo_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "base/sentence.h"
#include "data/preference_dataset.h"
#include "train/preference_loss.h"
#include "warmup/example_loop.h"
#include "warmup/reference_logprobs.h"

namespace tlt::warmup {
namespace {

std::optional<data::PreferenceDataset> load_held_out_pairs(const run::RunContext& context) {
  if (context.data.val_files.empty()) return std::nullopt;
  return data::PreferenceDataset::load(context.data, context.tokenizer, data::Split::kValidation);
}

void report_left_out(const data::PreferenceDataset& pairs, const char* option) {
  if (pairs.left_out() > 0)
    log_info("{}: {} left out, too long", option, counted(pairs.left_out(), "pair"));
  if (pairs.equal_pairs() > 0)
    log_warning("{}: {} left out, whose chosen and rejected are equal", option,
                counted(pairs.equal_pairs(), "pair"));
}

class DpoObjective final : public Objective {
 public:
  DpoObjective(const run::RunOptions& options, const run::RunContext& context)
      : options_(options),
        context_(context),
        pairs_(data::PreferenceDataset::load(context.data, context.tokenizer, data::Split::kTrain)),
        held_out_(load_held_out_pairs(context)),
        reference_(options, context) {}

  train::LossKind loss() const override { return train::LossKind::kPreference; }
  const std::vector<data::SamplerPart>& parts() const override { return pairs_.parts(); }
  int64_t left_out() const override { return pairs_.left_out(); }

  bool try_prepare(const std::string& run_folder, const std::vector<int64_t>& rows) override;

  std::vector<train::TrainSample> samples(std::span<const int64_t> rows) const override {
    std::vector<train::TrainSample> samples;
    for (const int64_t row : rows) add_samples(pairs_.pair(row), samples);
    return samples;
  }

  void validate(Metrics& metrics,
                const std::function<void(const std::string& doing)>& show) const override;

  std::vector<int32_t> example_prompt() const override {
    const data::SftExample example = (held_out_ ? *held_out_ : pairs_).pair(0).chosen;
    return {example.tokens.begin(), example.tokens.begin() + example.response_begin};
  }

 private:
  void add_samples(const data::PreferencePair& pair,
                   std::vector<train::TrainSample>& samples) const;

  const run::RunOptions& options_;
  const run::RunContext& context_;
  const data::PreferenceDataset pairs_;
  const std::optional<data::PreferenceDataset> held_out_;
  ReferenceLogprobs reference_;
};

bool DpoObjective::try_prepare(const std::string& run_folder, const std::vector<int64_t>& rows) {
  if (context_.is_first()) {
    report_left_out(pairs_, "data.train_files");
    if (held_out_) report_left_out(*held_out_, "data.val_files");
  }
  reference_.read(run_folder);
  const bool has_all = reference_.try_add(
      std::ssize(rows), [&](int64_t i) { return pairs_.pair(rows[static_cast<size_t>(i)]); });
  return has_all && (!held_out_ || reference_.try_add(held_out_->size(), [&](int64_t i) {
           return held_out_->pair(i);
         }));
}

// The chosen response, then the rejected one: neighbours, so that they share their prompt's rows.
void DpoObjective::add_samples(const data::PreferencePair& pair,
                               std::vector<train::TrainSample>& samples) const {
  const auto [chosen, rejected] = reference_.of(pair);
  samples.push_back(to_sample(pair.chosen));
  samples.back().reference_sum = chosen;
  samples.push_back(to_sample(pair.rejected));
  samples.back().reference_sum = rejected;
}

void DpoObjective::validate(Metrics& metrics,
                            const std::function<void(const std::string& doing)>& show) const {
  if (!held_out_) return;
  const int64_t size = held_out_->size(), batch = kValidationBatch / 2;
  train::PreferenceMeans means(options_.dpo);
  for (int64_t first = 0; first < size; first += batch) {
    show(fmt::format("validation {}/{}", first, size));
    std::vector<train::TrainSample> samples;
    for (int64_t i = first; i < std::min(size, first + batch); ++i)
      add_samples(held_out_->pair(i), samples);
    const auto logprobs = train::score_samples(
        *context_.model, samples, {.max_tokens = options_.actor.max_tokens}, *context_.comm);
    for (size_t i = 0; i < samples.size(); i += 2)
      means.add(train::response_logprob(samples[i], logprobs[i]),
                train::response_logprob(samples[i + 1], logprobs[i + 1]));
  }
  for (const auto& [name, value] : means.metrics()) metrics.set("val/" + name, value);
}

void check_dpo(const run::RunOptions& options) {
  TLT_CHECK_INPUT(!options.distillation.is_on(),
                  "distillation.teacher is of `tlt train`, whose responses it scores; leave it out "
                  "of `tlt dpo`");
  TLT_CHECK_INPUT(options.data.loss_weights.empty(),
                  "data.loss_weights is of `tlt sft`: in `tlt dpo` all tokens of a response count "
                  "alike; leave it out");
}

}  // namespace

int dpo(const run::RunOptions& options, const cluster::Launch& launch) {
  check_dpo(options);
  const MakeObjective make = [](const run::RunOptions& of_run, const run::RunContext& context) {
    return std::make_unique<DpoObjective>(of_run, context);
  };
  return ExampleLoop(options, launch, {"dpo", "pair", make}).run();
}

}  // namespace tlt::warmup
