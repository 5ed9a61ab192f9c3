// tlt bench draft-train: optimizer steps of a draft model on sequences with the lengths of a trace,
// packed and padded; with --checkpoint, how long training is blocked by checkpoints.
//
// All kinds of batch go through the same trainer. A padded batch has one line per sequence, filled
// up to the longest of the batch, with as many lines per pass as the token budget allows. `padded`
// computes the layer and the LM head for padding, as with a mask on the losses; `padded_kindly`
// computes only the layer.
//
// SPDX-License-Identifier: Apache-2.0
#include "bench/draft.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "cli/rows.h"
#include "cluster/launch.h"
#include "data/length_trace.h"
#include "drafter/make_draft_network.h"

namespace tlt::bench {
namespace {

constexpr uint64_t kDraftSeed = 1;

enum Kind { kPacked, kPadded, kPaddedKindly, kKinds };

struct DraftFlags {
  BenchModel model;
  std::string trace, folder = ".";
  double scale = 1.0 / 16;
  int64_t batch = 8, max_tokens = 4096, repeat = 8;
  bool checkpoint = false;

  void add_to(CLI::App& app) {
    model.shape = "60m";
    model.add_to(app);
    app.add_option("--trace", trace,
                   "Lengths of the sequences: a ServeGen …-dataset.json or a folder of them.");
    app.add_option("--scale", scale, "Factor on the lengths of the trace.");
    app.add_option("--batch", batch, "Sequences of an optimizer step.");
    app.add_option("--max-tokens", max_tokens,
                   "Tokens per pass of the draft model; longer sequences are cut to this length.");
    app.add_option("--repeat", repeat, "Steps of each kind, interleaved; or checkpoints.");
    app.add_flag("--checkpoint", checkpoint, "Measure checkpoints instead of packing.");
    app.add_option("--folder", folder, "With --checkpoint: where the temporary files are written.");
  }
  void check() const {
    TLT_CHECK_INPUT(checkpoint || !trace.empty(),
                    "--trace is missing; give a file of lengths, or --checkpoint");
    TLT_CHECK_INPUT(scale > 0 && scale <= 1000, "--scale is ", scale,
                    "; give a number above 0, up to 1000");
    TLT_CHECK_INPUT(batch >= 1 && batch <= 1 << 16, "--batch is ", batch,
                    "; give a number from 1 to ", 1 << 16);
    TLT_CHECK_INPUT(max_tokens >= 16 && max_tokens <= 1 << 20, "--max-tokens is ", max_tokens,
                    "; give a number from 16 to ", 1 << 20);
    TLT_CHECK_INPUT(repeat >= 1 && repeat <= 1 << 20, "--repeat is ", repeat,
                    "; give a number from 1 to ", 1 << 20);
  }
};

// Runs steps of all kinds on the same sequences.
class PackingBench {
 public:
  PackingBench(const DraftFlags& flags, const model::PolicyModel& target,
               drafter_training::DraftTrainer& trainer)
      : flags_(flags),
        target_(target),
        trainer_(trainer),
        trace_(data::LengthTrace::read(flags.trace)) {}

  // Runs each kind once, in rotated order. With `counts` false it is a warm-up.
  void run(uint32_t index, bool counts) {
    const std::vector<int64_t> lengths = sample_lengths(index);
    for (uint32_t i = 0; i < kKinds; ++i) {
      const auto kind = static_cast<Kind>((index + i) % kKinds);
      const double seconds = run_step(lengths, kind, index);
      if (counts) seconds_[kind].push_back(seconds);
    }
    if (!counts) return;
    tokens_ += std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    filled_tokens_ += std::ssize(lengths) * std::ranges::max(lengths);
    longest_ = std::max(longest_, std::ranges::max(lengths));
  }

  void report(nlohmann::ordered_json& out) const {
    const auto samples = static_cast<double>(flags_.batch) * static_cast<double>(flags_.repeat);
    std::array<double, kKinds> rates;
    for (size_t kind = 0; kind < kKinds; ++kind)
      rates[kind] = samples / std::accumulate(seconds_[kind].begin(), seconds_[kind].end(), 0.0);
    out["trace_mean_tokens"] = trace_.mean();
    out["scale"] = flags_.scale;
    out["batch"] = flags_.batch;
    out["max_tokens"] = flags_.max_tokens;
    out["repeat"] = flags_.repeat;
    out["mean_tokens"] = static_cast<double>(tokens_) / samples;
    out["longest_tokens"] = longest_;
    out["padding_share"] = 1 - static_cast<double>(tokens_) / static_cast<double>(filled_tokens_);
    for (const auto& [name, kind] : {std::pair("packed", kPacked), std::pair("padded", kPadded),
                                     std::pair("padded_kindly", kPaddedKindly)}) {
      out[std::string(name) + "_step_seconds"] = median(seconds_[kind]);
      out[std::string(name) + "_samples_per_second"] = rates[kind];
    }
    out["packing_ratio"] = rates[kPacked] / rates[kPadded];
    out["packing_ratio_kindly"] = rates[kPacked] / rates[kPaddedKindly];
    log_info(
        "packed {:.2f} samples/s, padded {:.2f}: {:.2f} x ({:.0f} % of the padded tokens are "
        "padding; {:.2f} x if padding skips the LM head)",
        rates[kPacked], rates[kPadded], rates[kPacked] / rates[kPadded],
        100 * out["padding_share"].get<double>(), rates[kPacked] / rates[kPaddedKindly]);
  }

 private:
  std::vector<int64_t> sample_lengths(uint32_t index) const {
    RandomStream random(kDraftSeed, {.prompt = index});
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < flags_.batch; ++i) {
      const double scaled = flags_.scale * static_cast<double>(trace_.sample(random));
      lengths.push_back(std::clamp(static_cast<int64_t>(scaled), int64_t{4}, flags_.max_tokens));
    }
    return lengths;
  }

  // A sequence of `pairs` pairs, filled up to `filled`. The padding of kPadded is made of ordinary
  // pairs, because values do not affect the time.
  drafter_training::DraftSample make(int64_t pairs, int64_t filled, Kind kind,
                                     uint32_t index) const {
    const at::Tensor states = at::zeros({filled + 1, target_.config().hidden}, target_.type());
    states.narrow(0, 0, pairs + 1)
        .copy_((at::arange((pairs + 1) * states.size(1), at::kFloat) * 0.37 + index)
                   .sin()
                   .view({pairs + 1, states.size(1)}));
    drafter_training::DraftSample sample =
        drafter_training::make_sample(random_prompt(target_, index, filled + 1), states,
                                      /*response_begin=*/1, index);
    if (kind == kPaddedKindly) sample.padding = static_cast<int32_t>(filled - pairs);
    return sample;
  }

  double run_step(const std::vector<int64_t>& lengths, Kind kind, uint32_t index) {
    std::vector<drafter_training::DraftSample> batch;
    for (const int64_t pairs : lengths)
      batch.push_back(make(pairs, kind == kPacked ? pairs : std::ranges::max(lengths), kind,
                           index * 1000 + static_cast<uint32_t>(batch.size())));
    const Stopwatch watch;
    trainer_.step(batch);
    return watch.seconds();
  }

  const DraftFlags& flags_;
  const model::PolicyModel& target_;
  drafter_training::DraftTrainer& trainer_;
  const data::LengthTrace trace_;
  std::array<std::vector<double>, kKinds> seconds_;
  int64_t tokens_ = 0, filled_tokens_ = 0, longest_ = 0;
};

}  // namespace

int run_draft_train(const cli::Arguments& arguments) {
  DraftFlags flags;
  CLI::App app(
      "Optimizer steps of a draft model on sequences with the lengths of a trace, packed and "
      "padded; or, with --checkpoint, how long training waits for checkpoints.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  const auto target = flags.model.load();
  const auto network = drafter::make_draft_network({.seed = kDraftSeed}, *target);
  const auto comm = cluster::make_comm(cluster::Launch{}, {});
  drafter_training::DraftTrainOptions options;
  options.max_tokens = flags.max_tokens;
  drafter_training::DraftTrainer trainer(*network, options, *comm, /*total_steps=*/1 << 20);

  nlohmann::ordered_json report =
      begin_report(flags.checkpoint ? "draft-checkpoint" : "draft-train", flags.model, *target);
  if (flags.checkpoint) {
    report["repeat"] = flags.repeat;
    report.update(measure_checkpoints(*network, trainer, flags.folder, flags.repeat));
    log_info(
        "training waits {:.0f} ms (blocking, full), {:.0f} ms (async, full), {:.0f} ms "
        "(async, selective): {:.1f} x",
        report["blocking_full_blocked_ms"].get<double>(),
        report["async_full_blocked_ms"].get<double>(),
        report["async_selective_blocked_ms"].get<double>(), report["blocked_ratio"].get<double>());
  } else {
    PackingBench bench(flags, *target, trainer);
    for (uint32_t i = 0; i <= flags.repeat; ++i) bench.run(i, /*counts=*/i > 0);
    bench.report(report);
  }
  print_report(std::move(report));
  return 0;
}

}  // namespace tlt::bench
