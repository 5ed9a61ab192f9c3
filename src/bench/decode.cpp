// tlt bench decode: tokens/s of greedy decoding, without prefill; end-of-sequence tokens are
// ignored.
//
// A step counts if every response of the batch gets a token and no prompt is computed. The share of
// the memory bandwidth assumes that a step reads the weights and the KV cache once, as in decoding
// limited by memory.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/scenarios.h"
#include "rollout/engine.h"

namespace tlt::bench {
namespace {

struct DecodeFlags {
  BenchModel model;
  cli::SpeculationFlags speculation{"off"};
  std::vector<int64_t> batches = {1, 4, 8, 32};
  int64_t prompt_tokens = 64, new_tokens = 128, repeat = 3;
  bool direct = false;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--batch", batches, "Batch sizes: responses decoded together, as 1,4,8,32.")
        ->delimiter(',')
        ->default_str("1,4,8,32");
    app.add_option("--prompt-tokens", prompt_tokens, "Length of the prompts.");
    app.add_option("--new-tokens", new_tokens, "Length of the responses.");
    app.add_option("--repeat", repeat, "Runs of each batch size; the median counts.");
    app.add_flag("--direct", direct,
                 "On a device with graphs: forward passes are launched directly all the same.");
    speculation.add_to(app);
  }

  void check(const model::ModelConfig& config) const {
    for (const int64_t batch : batches)
      TLT_CHECK_INPUT(batch >= 1 && batch <= 1 << 14, "--batch has ", batch,
                      "; give numbers from 1 to ", 1 << 14);
    TLT_CHECK_INPUT(prompt_tokens >= 1 && new_tokens >= 2, "--prompt-tokens is ", prompt_tokens,
                    " and --new-tokens ", new_tokens, "; give at least 1 and 2");
    TLT_CHECK_INPUT(
        prompt_tokens <= config.max_positions && new_tokens <= config.max_positions - prompt_tokens,
        "--prompt-tokens and --new-tokens need ", prompt_tokens + new_tokens,
        " positions and the model has ", config.max_positions, "; give fewer");
    TLT_CHECK_INPUT(repeat >= 1, "--repeat is ", repeat, "; give at least 1");
  }
};

struct Decoded {
  std::vector<double> step_seconds;  // of the steps that count
  int64_t tokens = 0;                // of these steps
  double tokens_per_forward = 0;     // of all responses

  double tokens_per_second() const {
    double seconds = 0;
    for (const double step : step_seconds) seconds += step;
    return static_cast<double>(tokens) / seconds;
  }
};

rollout::EngineOptions engine_options(const model::PolicyModel& policy, int64_t batch,
                                      int64_t positions, int64_t prompt_tokens) {
  constexpr int64_t kMostPromptRows = 8192;  // in one pass
  const int64_t pages = batch * (ops::pages_for(positions) + 1);
  rollout::EngineOptions options;
  options.max_running = batch;
  options.kv_memory_bytes = pages * policy.kv_shape().page_bytes();
  options.max_batch_tokens =
      std::max({options.max_batch_tokens, batch, std::min(batch * prompt_tokens, kMostPromptRows)});
  options.prefill_chunk = std::min(prompt_tokens, kMostPromptRows);
  return options;
}

Decoded decode(const model::PolicyModel& policy, rollout::Engine& engine, int64_t batch,
               int64_t prompt_tokens, int64_t new_tokens) {
  const auto greedy = fixed_length(new_tokens, /*temperature=*/0);
  for (uint32_t i = 0; i < batch; ++i)
    engine.submit(
        {.prompt_id = i, .tokens = random_prompt(policy, i, prompt_tokens), .sampling = greedy});
  Decoded result;
  rollout::EngineStats before = engine.stats();
  for (Stopwatch stopwatch; engine.step(); stopwatch.restart()) {
    const double seconds = stopwatch.seconds();
    const rollout::EngineStats now = engine.stats();
    if (now.prompt_rows == before.prompt_rows) {
      result.step_seconds.push_back(seconds);
      result.tokens += now.tokens - before.tokens;
    }
    before = now;
  }
  int64_t tokens = 0, forwards = 0;
  for (const rollout::Response& response : engine.take_finished()) {
    tokens += std::ssize(response.tokens);
    forwards += response.target_forwards;
  }
  TLT_CHECK(tokens == batch * new_tokens && !result.step_seconds.empty(), tokens, " tokens");
  result.tokens_per_forward = static_cast<double>(tokens) / static_cast<double>(forwards);
  return result;
}

// Bytes of weights that one forward pass reads. An embedding that is not tied to the LM head does
// not count, because only a few of its rows are read.
int64_t weight_bytes(const model::PolicyModel& policy) {
  int64_t bytes = 0;
  for (const model::Parameter& parameter : policy.parameters()) {
    if (parameter.matrix)
      bytes += static_cast<int64_t>(parameter.matrix->storage().nbytes());
    else if (parameter.tensor->dim() == 1)
      bytes += static_cast<int64_t>(parameter.tensor->nbytes());
  }
  return bytes;
}

void run_batch(const DecodeFlags& flags, const model::PolicyModel& policy, int64_t batch,
               double bandwidth) {
  constexpr int64_t kWarmUpTokens = 8;
  forget_peak_memory();
  rollout::EngineOptions options =
      engine_options(policy, batch, flags.prompt_tokens + flags.new_tokens, flags.prompt_tokens);
  options.graphs = !flags.direct;
  const auto speculation = flags.speculation.make(policy, options);
  rollout::Engine engine(policy, options, /*stop_string=*/nullptr, /*observer=*/nullptr,
                         speculation.get());
  decode(policy, engine, batch, flags.prompt_tokens, std::min(kWarmUpTokens, flags.new_tokens));
  std::vector<double> rates, steps;
  double tokens_per_forward = 0;
  for (int64_t i = 0; i < flags.repeat; ++i) {
    const Decoded decoded = decode(policy, engine, batch, flags.prompt_tokens, flags.new_tokens);
    rates.push_back(decoded.tokens_per_second());
    steps.insert(steps.end(), decoded.step_seconds.begin(), decoded.step_seconds.end());
    tokens_per_forward = decoded.tokens_per_forward;
  }
  const double context =
      static_cast<double>(flags.prompt_tokens) + static_cast<double>(flags.new_tokens) / 2;
  const double weights =
      static_cast<double>(weight_bytes(policy)) / static_cast<double>(batch) / tokens_per_forward;
  const double kv = context * static_cast<double>(policy.kv_shape().page_bytes()) / ops::kPageSlots;

  nlohmann::ordered_json report = begin_report("decode", flags.model, policy);
  report["speculation"] = speculation ? flags.speculation.speculation : "off";
  if (speculation) report["strategy"] = speculation->tuner() ? "tuned" : flags.speculation.strategy;
  report["batch"] = batch;
  report["prompt_tokens"] = flags.prompt_tokens;
  report["new_tokens"] = flags.new_tokens;
  report["repeat"] = flags.repeat;
  report["graph_sets"] = engine.stats().graphs.sets;
  report["tokens_per_second"] = median(rates);
  report["best"] = percentile(rates, 1);
  report["step_seconds_p50"] = median(steps);
  report["step_seconds_p90"] = percentile(steps, 0.9);
  report["accept_length"] = tokens_per_forward;
  report["weight_bytes_per_token"] = weights;
  report["kv_bytes_per_token"] = kv;
  report["read_bandwidth_bytes_per_second"] = bandwidth;
  report["bandwidth_share"] = (weights + kv) * median(rates) / bandwidth;
  print_report(std::move(report));
}

}  // namespace

int run_decode(const cli::Arguments& arguments) {
  DecodeFlags flags;
  CLI::App app("Tokens/s of greedy decoding at several batch sizes.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.speculation.check();
  const auto policy = flags.model.load();
  flags.check(policy->config());
  const double bandwidth = read_bandwidth(policy->device().pool());
  for (const int64_t batch : flags.batches) run_batch(flags, *policy, batch, bandwidth);
  return 0;
}

}  // namespace tlt::bench
