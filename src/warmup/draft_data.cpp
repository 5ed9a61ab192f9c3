// SPDX-License-Identifier: Apache-2.0
#include "warmup/draft_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "base/log.h"
#include "data/dataset.h"
#include "data/sft_dataset.h"
#include "run/response_text.h"

namespace tlt::warmup {
namespace {

// The RL step of the warm-up's uniforms; no step of an RL run uses it.
constexpr uint32_t kWarmupStep = uint32_t{3} << 30;
// A part of the store is computed as one batch: enough sequences to keep the engine busy, within
// this memory.
constexpr int64_t kPartSequences = 256, kPartBytes = int64_t{1} << 28;

// The options that the samples depend on, in addition to the target.
struct SampleOptions {
  std::string source;
  int64_t seed = 0;
  data::DataOptions data;
  run::RolloutOptions rollout;
  std::vector<int64_t> layers;

  SampleOptions(const run::RunOptions& options, const rollout::Layers& wanted)
      : source(options.speculative.train.warmup.source), data(options.data), layers(wanted) {
    const data::DataOptions defaults;  // of the options that only order or validate training
    data.val_files = defaults.val_files;
    data.val_max_samples = defaults.val_max_samples;
    data.train_batch_size = defaults.train_batch_size;
    data.shuffle = defaults.shuffle;
    data.seed = defaults.seed;
    data.loss_weights = defaults.loss_weights;
    if (source == "responses") return;
    seed = options.trainer.seed;
    rollout = options.rollout;
    rollout.validation = {};
  }
  void visit(auto& v) {
    v(source, "speculative.train.source", Affects::kResults, "");
    v(seed, "trainer.seed", Affects::kResults, "");
    v.group("data", data);
    v.group("rollout", rollout);
    if (!layers.empty()) v(layers, "layers of the model that are kept", Affects::kResults, "");
  }
};

std::string digest_of_samples(const run::RunOptions& options, const rollout::Layers& layers) {
  SampleOptions samples(options, layers);
  return options_digest(collect_options(samples));
}

bool is_rollouts(const run::RunOptions& options) {
  return options.speculative.train.warmup.source == "rollouts";
}

std::vector<drafter_training::RecordRow> read_rows(const run::RunOptions& options,
                                                   const run::RunContext& context) {
  std::vector<drafter_training::RecordRow> rows;
  if (is_rollouts(options)) {
    const auto prompts = data::Dataset::load(context.data, context.tokenizer, data::Split::kTrain);
    for (int64_t i = 0; i < prompts.size(); ++i) {
      data::Prompt prompt = prompts.prompt(i);
      const auto size = static_cast<int32_t>(prompt.tokens.size());
      rows.push_back({std::move(prompt.tokens), size, prompt.id, i});
    }
    return rows;
  }
  const auto examples =
      data::SftDataset::load(context.data, context.tokenizer, data::Split::kTrain);
  for (int64_t i = 0; i < examples.size(); ++i) {
    const data::SftExample example = examples.example(i);
    // One row per response, ending with it; the next response's row contains what follows.
    for (const auto& [begin, end] : example.spans)
      rows.push_back({{example.tokens.begin(), example.tokens.begin() + end},
                      static_cast<int32_t>(begin),
                      static_cast<uint32_t>(rows.size()),
                      example.row});
  }
  return rows;
}

// Independent of the number of workers and of the machine's memory.
int64_t count_rows_per_part(const run::RunOptions& options, const model::PolicyModel& target,
                            const rollout::Layers& layers) {
  const int64_t samples = is_rollouts(options) ? options.rollout.n : 1;
  const int64_t sequence_bytes =
      (options.data.max_prompt_length + options.data.max_response_length) * target.config().hidden *
      std::max<int64_t>(1, std::ssize(layers)) * (target.type() == at::kFloat ? 4 : 2);
  const int64_t sequences =
      std::min(kPartSequences, kPartBytes / std::max<int64_t>(1, sequence_bytes));
  return std::max<int64_t>(1, sequences / samples);
}

// Selects every (1 / share)-th prompt.
bool is_held_out(int64_t prompt, double share) {
  return std::floor(static_cast<double>(prompt + 1) * share) >
         std::floor(static_cast<double>(prompt) * share);
}

}  // namespace

DraftData::DraftData(const run::RunOptions& options, run::RunContext& context,
                     rollout::Layers layers)
    : options_(options),
      context_(context),
      layers_(std::move(layers)),
      rows_(read_rows(options, context)),
      rows_per_part_(count_rows_per_part(options, *context.model, layers_)),
      stop_string_(std::make_unique<run::ResponseText>(context.tokenizer)) {}

std::vector<int32_t> DraftData::example_prompt() const {
  const drafter_training::RecordRow& row = rows_.front();
  return {row.tokens.begin(), row.tokens.begin() + row.response_begin};
}

int64_t DraftData::parts() const {
  return (std::ssize(rows_) + rows_per_part_ - 1) / rows_per_part_;
}

std::span<const drafter_training::RecordRow> DraftData::rows_of(int64_t part) const {
  const int64_t first = part * rows_per_part_;
  return std::span(rows_).subspan(
      static_cast<size_t>(first),
      static_cast<size_t>(std::min(rows_per_part_, std::ssize(rows_) - first)));
}

bool DraftData::try_make() {
  const drafter_training::StoreIdentity identity = {
      .target = drafter_training::target_digest(*context_.model),
      .source = digest_of_samples(options_, layers_)};
  const std::string& named = options_.speculative.train.warmup.hidden_states_dir;
  const std::string folder = named.empty() ? options_.trainer.folder() + "/hidden_states" : named;
  if (context_.is_first())
    store_ = std::make_unique<drafter_training::HiddenStore>(folder, identity);
  context_.comm->barrier("store of hidden states");
  if (!store_) store_ = std::make_unique<drafter_training::HiddenStore>(folder, identity);

  while (made_parts_ < parts())
    if (!make_round(made_parts_)) return false;
  progress_.reset();
  recorder_.reset();
  context_.comm->barrier("hidden states");
  split();
  if (context_.is_first())
    log_info("{}: hidden states of {} sequences, {:.1f} MB", folder,
             training_.size() + held_out_.size(), static_cast<double>(bytes_) / 1e6);
  return true;
}

bool DraftData::make_round(int64_t first) {
  const int64_t part = first + context_.comm->rank(), workers = context_.comm->size();
  Part made;
  // Bytes of each worker's part; the last value counts interrupted workers.
  std::vector<double> facts(static_cast<size_t>(workers) + 1, 0.0);
  if (part < parts()) {
    const bool is_there = store_->has(part);
    if (!is_there) made = record(part);
    if (is_there || made)
      facts[static_cast<size_t>(context_.comm->rank())] =
          static_cast<double>(is_there ? store_->bytes(part) : drafter_training::bytes_of(*made));
    else
      facts.back() = 1;
  }
  facts = context_.comm->all_reduce_sum(facts);
  for (int64_t i = first; i < std::min(first + workers, parts()); ++i) {
    bytes_ += static_cast<int64_t>(facts[static_cast<size_t>(i - first)]);
    ++made_parts_;
  }
  if (made) store_->write(part, *made);
  return facts.back() == 0;
}

DraftData::Part DraftData::record(int64_t part) {
  const int64_t samples = is_rollouts(options_) ? options_.rollout.n : 1;
  if (!recorder_) {
    if (context_.is_first())
      progress_ = std::make_unique<Progress>("hidden states",
                                             (std::ssize(rows_) - part * rows_per_part_) * samples);
    recorder_ = std::make_unique<drafter_training::HiddenRecorder>(
        *context_.model, options_.rollout.engine, stop_string_.get(),
        [this](int64_t count) {
          if (progress_) progress_->advance(count * context_.comm->size());
        },
        layers_);
  }
  if (!is_rollouts(options_)) return recorder_->read(rows_of(part));
  rollout::SamplingOptions sampling = options_.rollout.sampling;
  sampling.max_new_tokens = options_.data.max_response_length;
  return recorder_->roll_out(
      rows_of(part), {.sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
                      .samples = samples,
                      .rl_step = kWarmupStep,
                      .seed = static_cast<uint64_t>(options_.trainer.seed)});
}

void DraftData::split() {
  const double share = options_.speculative.train.warmup.val_share;
  std::vector<drafter_training::StoredSample> samples = store_->samples(made_parts_);
  const auto positions = options_.speculative.train.trainer.positions();
  // A response of one token has no pairs to train on.
  std::erase_if(samples, [&](const drafter_training::StoredSample& stored) {
    return stored.sample.counted_pairs(positions) == 0;
  });
  bool any_held_out = false;
  for (const auto& [sample, prompt] : samples) any_held_out |= is_held_out(prompt, share);
  const int64_t limit = options_.data.val_max_samples;
  for (auto& [sample, prompt] : samples) {
    // With few prompts the last one is held out.
    const bool held_out = any_held_out ? is_held_out(prompt, share)
                                       : share > 0 && prompt == samples.back().prompt &&
                                             prompt != samples.front().prompt;
    if (!held_out)
      training_.push_back(std::move(sample));
    else if (limit < 0 || std::ssize(held_out_) < limit)
      held_out_.push_back(std::move(sample));
  }
}

}  // namespace tlt::warmup
