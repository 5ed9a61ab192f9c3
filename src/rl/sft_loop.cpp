// SPDX-License-Identifier: Apache-2.0
#include "rl/sft_loop.h"

#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/sampler.h"
#include "data/sft_dataset.h"
#include "model/hf_folder.h"
#include "rl/adapter_files.h"
#include "rl/run_folder.h"
#include "rl/run_length.h"
#include "rl/workplace.h"
#include "train/trainer.h"

namespace tlt::rl {
namespace {

train::TrainSample to_sample(data::SftExample example) {
  train::TrainSample sample;
  sample.tokens = std::move(example.tokens);
  sample.response_begin = static_cast<int32_t>(example.response_begin);
  sample.weights.assign(example.weights.begin() + example.response_begin, example.weights.end());
  return sample;
}

class SftLoop {
 public:
  SftLoop(const RunOptions& options, const cluster::Launch& launch)
      : options_(options),
        place_(options, launch),
        examples_(data::SftDataset::load(options.data, place_.tokenizer, data::Split::kTrain)),
        sampler_(examples_.parts(), options.data.shuffle, options.data.seed),
        total_steps_(count_steps(options, sampler_, examples_.left_out())),
        trainer_(*place_.model, options.actor, *place_.comm, total_steps_, /*temperature=*/1.0,
                 place_.adapter.get()),
        folder_(options, *place_.comm) {
    if (place_.adapter && place_.is_first())
      adapter_files_.emplace(*place_.adapter, options_.model.path);
    folder_.start(options, /*step=*/0);
  }

  int run() {
    const Stopwatch watch;
    int64_t tokens = 0;
    for (step_ = 0; step_ < total_steps_ && !place_.anyone_interrupted();) {
      std::vector<train::TrainSample> samples;
      for (const int64_t index : sampler_.next_batch(options_.data.train_batch_size))
        samples.push_back(to_sample(examples_.example(index)));
      const train::TrainStats stats = trainer_.update(samples, train::LossKind::kSupervised);
      tokens += stats.tokens;
      ++step_;
      Metrics metrics;
      for (const auto& [name, value] : stats.metrics) metrics.set(name, value);
      const double rate = static_cast<double>(tokens) / watch.seconds();
      metrics.set("perf/throughput", rate);
      metrics.set("train/tokens", static_cast<double>(tokens));
      folder_.write_metrics(step_, metrics);
      if (place_.is_first() && (step_ % 10 == 0 || step_ == total_steps_))
        log_info("step {}/{}  loss {:.4f}  {:.0f} tokens/s  left {}", step_, total_steps_,
                 metrics.at("train/loss"), rate,
                 format_duration(watch.seconds() / static_cast<double>(step_) *
                                 static_cast<double>(total_steps_ - step_)));
      if (options_.trainer.save_freq > 0 && step_ % options_.trainer.save_freq == 0) save();
    }
    save();
    if (place_.is_first()) log_info("the policy is in {}/policy", folder_.path());
    return step_ < total_steps_ ? report_stop(place_, step_, total_steps_) : 0;
  }

 private:
  void save() {
    if (!place_.is_first()) return;
    model::save_policy(*place_.model, folder_.path() + "/policy", options_.model.path);
    if (adapter_files_) adapter_files_->snapshot()(folder_.path());
  }

  const RunOptions options_;
  Workplace place_;
  data::SftDataset examples_;
  data::Sampler sampler_;
  const int64_t total_steps_;
  train::Trainer trainer_;
  RunFolder folder_;
  std::optional<AdapterFiles> adapter_files_;  // of the first worker, with an adapter
  int64_t step_ = 0;
};

}  // namespace

int sft(const RunOptions& options, const cluster::Launch& launch) {
  options.check();
  return SftLoop(options, launch).run();
}

}  // namespace tlt::rl
