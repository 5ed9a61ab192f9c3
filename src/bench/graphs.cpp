// tlt bench graphs: the graphs that the forward passes of a run would be replayed from, and their
// token rows, by what a graph is captured for (TLT, Table 5).
//
//   single    each batch size, with the strategy of most steps
//   naive     each batch size with each strategy
//   bucketed  each batch size with the strategies that it occurred with
//   ours      each padded number of token rows (rollout/graph_cache.h)
//
// The counts are those of one run: responses of different lengths, so that the batch shrinks, and
// the smaller it is the larger the draft trees. Memory is known of a device that has graphs only.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "bench/simulated_drafter.h"
#include "ops/padded_rows.h"
#include "rollout/engine.h"

namespace tlt::bench {
namespace {

constexpr int64_t kDepth = 8;
// Strategies by the largest batch that they are for; larger ones decode without speculation.
constexpr std::pair<int64_t, drafter::Strategy> kStrategies[] = {{1, {8, 8, 64}}, {2, {8, 8, 48}},
                                                                 {4, {8, 4, 32}}, {8, {6, 4, 16}},
                                                                 {16, {4, 4, 8}}, {32, {3, 2, 4}}};

drafter::Strategy strategy_for(int64_t batch) {
  for (const auto& [most, strategy] : kStrategies)
    if (batch <= most) return strategy;
  return drafter::kOff;
}

struct GraphFlags {
  BenchModel model;
  int64_t batch = 64, responses = 128, prompt_tokens = 32, new_tokens = 256;
  double acceptance = 4;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--batch", batch, "Most responses decoded together.");
    app.add_option("--responses", responses, "Responses of the run.");
    app.add_option("--prompt-tokens", prompt_tokens, "Length of the prompts.");
    app.add_option("--new-tokens", new_tokens, "Length of the longest response.");
    app.add_option("--simulate-acceptance", acceptance,
                   "Acceptance length of the draft trees, which are simulated.");
  }

  void check(const model::ModelConfig& config) const {
    TLT_CHECK_INPUT(batch >= 1 && batch <= ops::kMostPaddedRows, "--batch is ", batch,
                    "; give a number from 1 to ", ops::kMostPaddedRows);
    TLT_CHECK_INPUT(responses >= 1 && responses <= 1 << 14, "--responses is ", responses,
                    "; give a number from 1 to ", 1 << 14);
    TLT_CHECK_INPUT(prompt_tokens >= 1 && new_tokens >= 8 &&
                        prompt_tokens <= config.max_positions &&
                        new_tokens <= config.max_positions - prompt_tokens,
                    "--prompt-tokens is ", prompt_tokens, " and --new-tokens ", new_tokens,
                    "; give at least 1 and 8, together at most ", config.max_positions);
    TLT_CHECK_INPUT(acceptance >= 1 && acceptance <= kDepth, "--simulate-acceptance is ",
                    acceptance, "; give a number from 1 to ", kDepth);
  }
};

// A pass of the run.
struct RecordedPass {
  int64_t batch = 0;  // sequences that decode
  drafter::Strategy strategy;
  int64_t rows = 0;
};

class GraphRun {
 public:
  GraphRun(const GraphFlags& flags, const model::PolicyModel& policy)
      : flags_(flags), policy_(policy) {
    options_.max_running = flags.batch;
    options_.max_batch_tokens = std::max<int64_t>(1024, flags.batch);
    const int64_t positions = flags.prompt_tokens + flags.new_tokens + kDepth;
    options_.kv_memory_bytes =
        flags.batch * (ops::pages_for(positions) + 2) * policy.kv_shape().page_bytes();
  }

  // Decodes the responses without speculation, then with the strategy of each batch.
  void decode() {
    rollout::Engine plain(policy_, options_);
    submit(plain);
    while (plain.step())
      for (rollout::Response& response : plain.take_finished())
        truth_[{response.prompt_id, response.sample}] = std::move(response.tokens);

    const int64_t vocabulary = policy_.config().vocabulary;
    rollout::Speculation speculation(
        std::make_unique<SimulatedDrafter>(truth_, flags_.acceptance, kDepth, vocabulary),
        strategy_for(1), vocabulary);
    rollout::Engine engine(policy_, options_, nullptr, nullptr, &speculation);
    submit(engine);
    for (rollout::EngineStats before = engine.stats();; before = engine.stats()) {
      const drafter::Strategy strategy = strategy_for(before.running);
      speculation.set_strategy(strategy);
      if (!engine.step()) break;
      passes_.push_back({before.running, strategy, engine.stats().rows - before.rows});
    }
    stats_ = engine.stats().graphs;
  }

  const std::vector<RecordedPass>& passes() const { return passes_; }
  // Of a device that has graphs.
  const rollout::GraphStats& stats() const { return stats_; }

 private:
  void submit(rollout::Engine& engine) const {
    for (uint32_t i = 0; i < flags_.responses; ++i)
      engine.submit({.prompt_id = i,
                     .tokens = random_prompt(policy_, i, flags_.prompt_tokens),
                     .sampling = fixed_length(flags_.new_tokens / (1 + i % 8), 1)});
  }

  const GraphFlags& flags_;
  const model::PolicyModel& policy_;
  rollout::EngineOptions options_;
  Truth truth_;
  std::vector<RecordedPass> passes_;
  rollout::GraphStats stats_;
};

// A graph of `first` sequences with `second` rows each.
using Graphs = std::set<std::pair<int64_t, int64_t>>;

struct Policies {
  Graphs single, naive, bucketed, ours;
};

Policies policies_of(const std::vector<RecordedPass>& passes) {
  Policies policies;
  std::map<int64_t, int64_t> steps;  // by tokens to verify
  std::set<int64_t> batches;
  for (const RecordedPass& pass : passes) {
    if (pass.rows <= ops::kMostPaddedRows) policies.ours.insert({1, ops::padded_rows(pass.rows)});
    if (pass.batch == 0) continue;  // prompts only
    const int64_t batch = ops::padded_rows(pass.batch), verify = pass.strategy.verify;
    ++steps[verify];
    batches.insert(batch);
    policies.bucketed.insert({batch, verify});
  }
  const auto usual = std::ranges::max_element(
      steps, [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const int64_t batch : batches) {
    policies.single.insert({batch, usual->first});
    for (const auto& [verify, count] : steps) policies.naive.insert({batch, verify});
  }
  return policies;
}

}  // namespace

int run_graphs(const cli::Arguments& arguments) {
  GraphFlags flags;
  CLI::App app("The graphs that a run's forward passes need, by what they are captured for.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  const auto policy = flags.model.load();
  flags.check(policy->config());
  GraphRun run(flags, *policy);
  run.decode();
  const Policies policies = policies_of(run.passes());
  const std::pair<const char*, const Graphs&> lines[] = {{"single", policies.single},
                                                         {"naive", policies.naive},
                                                         {"bucketed", policies.bucketed},
                                                         {"ours", policies.ours}};
  for (const auto& [name, graphs] : lines) {
    int64_t rows = 0;
    for (const auto& [batch, verify] : graphs) rows += batch * verify;
    nlohmann::ordered_json report = begin_report("graphs", flags.model, *policy);
    report["batch"] = flags.batch;
    report["passes"] = run.passes().size();
    report["policy"] = name;
    report["graphs"] = graphs.size();
    report["captured_rows"] = rows;
    const bool is_measured = std::string_view(name) == "ours" && !policy->device().is_cpu();
    if (is_measured) {
      report["captured_sets"] = run.stats().sets;
      report["graph_memory_bytes"] = run.stats().bytes;
    } else {
      report["graph_memory_bytes"] = "not measured";
    }
    print_report(std::move(report));
  }
  return 0;
}

}  // namespace tlt::bench
