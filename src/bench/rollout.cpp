// tlt bench rollout: the same responses decoded in several ways, interleaved: without speculation,
// with each drafter, with fixed strategies, and with the tuner.
//
// The command fails unless every way gives the same tokens, so that seconds can be compared.
// Drafters start each run empty; the tuner keeps its statistics, as in a run of many steps. The
// first round is a warm-up and does not count.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <ctime>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/scenarios.h"
#include "bench/simulated_drafter.h"
#include "cli/rows.h"
#include "drafter/make_draft_network.h"
#include "rollout/engine.h"
#include "rollout/make_speculation.h"

namespace tlt::bench {
namespace {

constexpr size_t kBuckets = 8;  // of batch sizes: 1, 2-3, 4-7 …

constexpr const char* kBlindEagle = "eagle-blind";

// "off", "auto", "suffix", "ngram", "eagle", "eagle-blind", "mixed", "simulated"; with ":8_4_16" a
// fixed strategy, with ":BEG" the paper's tuner.
struct Way {
  std::string name;
  std::string drafter;  // "" for off
  std::optional<drafter::Strategy> strategy;
  bool is_beg = false;
};

Way parse_way(const std::string& name) {
  Way way{.name = name, .drafter = name.substr(0, name.find(':')), .strategy = {}};
  way.is_beg = name.ends_with(":BEG");
  const auto known = {"off", "auto", "suffix", "ngram", "eagle", kBlindEagle, "mixed", "simulated"};
  TLT_CHECK_INPUT(
      std::ranges::find(known, way.drafter) != known.end(), "--ways has '", name,
      "'; use off, auto, suffix, ngram, eagle, eagle-blind, mixed or simulated, a drafter "
      "optionally with a strategy: suffix:8_4_16, or with the paper's tuner: auto:BEG");
  if (way.drafter.size() < name.size() && !way.is_beg) {
    TLT_CHECK_INPUT(way.drafter != "off" && way.drafter != "auto", "--ways has '", name,
                    "'; only a drafter takes a strategy");
    way.strategy = drafter::parse_strategy(name.substr(way.drafter.size() + 1));
  }
  if (way.drafter == "off") way.drafter.clear();
  return way;
}

// Valid combinations of depth, width and tokens to verify (TLT, Table 1, Figure 13).
std::vector<std::string> sweep_of(const std::string& drafter) {
  std::vector<std::string> ways;
  for (const int64_t depth : {2, 4, 6, 8, 10})
    for (const int64_t width : {1, 2, 4, 8})
      for (const int64_t verify : {4, 8, 16, 32, 48, 64})
        if (const drafter::Strategy strategy{depth, width, verify};
            verify > depth && verify <= drafter::scored_nodes(strategy) + 1)
          ways.push_back(drafter + ":" + to_string(strategy));
  return ways;
}

struct RolloutFlags {
  BenchModel model;
  std::string prompts;
  std::vector<std::string> way_names = {"off", "auto", "suffix", "ngram"};
  std::string sweep, drafter;
  std::vector<int64_t> batches = {1, 8, 128};
  int64_t responses = 0, samples = 8, prompt_tokens = 64, new_tokens = 1024, repeat = 3;
  double temperature = 1, acceptance = 0;
  bool ignore_eos = false;

  void add_to(CLI::App& app) {
    model.add_to(app);
    app.add_option("--prompts", prompts,
                   "JSONL file as for tlt generate, or generated problems, as "
                   "countdown:seed=7,size=64; without it: random tokens.");
    app.add_option(
           "--ways", way_names,
           "off, auto (the tuner chooses), suffix, ngram, eagle, eagle-blind (without "
           "common random numbers), mixed; with a fixed strategy as suffix:8_4_16, or with the "
           "paper's tuner as auto:BEG.")
        ->delimiter(',')
        ->default_str("off,auto,suffix,ngram");
    app.add_option("--drafter", drafter,
                   "Folder of an EAGLE draft model for the model, for auto, eagle and mixed; or "
                   "'untrained': random weights.");
    app.add_option("--sweep", sweep,
                   "Also measure this drafter with all strategies of a grid of depth, width and "
                   "tokens to verify.");
    app.add_option("--batch", batches, "Batch sizes: responses decoded together, as 1,8,128.")
        ->delimiter(',')
        ->default_str("1,8,128");
    app.add_option("--responses", responses,
                   "Responses of a run; 0: twice the batch, at least 16, at most 128.");
    app.add_option("--samples", samples, "Responses per prompt.");
    app.add_option("--prompt-tokens", prompt_tokens, "Length of random prompts.");
    app.add_option("--max-new-tokens", new_tokens, "Longest response, in tokens.");
    app.add_option("--temperature", temperature, "Sampling temperature; 0: greedy.");
    app.add_flag("--ignore-eos", ignore_eos, "Every response has --max-new-tokens.");
    app.add_option("--repeat", repeat, "Rounds; the median counts.");
    app.add_option(
        "--simulate-acceptance", acceptance,
        "Adds 'simulated', a drafter without cost whose trees of depth 8 have this "
        "acceptance length: the potential of speculation for a model without a drafter.");
  }

  std::vector<Way> ways() const {
    std::vector<Way> ways = {parse_way("off")};
    std::vector<std::string> names = way_names;
    if (!sweep.empty()) std::ranges::copy(sweep_of(sweep), std::back_inserter(names));
    if (acceptance > 0 && std::ranges::find(names, "simulated") == names.end())
      names.emplace_back("simulated");
    for (const std::string& name : names)
      if (name != "off") ways.push_back(parse_way(name));
    return ways;
  }

  void check(const model::ModelConfig& config) const {
    for (const int64_t batch : batches)
      TLT_CHECK_INPUT(batch >= 1 && batch <= 1 << 12, "--batch has ", batch,
                      "; give numbers from 1 to ", 1 << 12);
    TLT_CHECK_INPUT(samples >= 1 && responses >= 0 && repeat >= 1, "--samples is ", samples,
                    ", --responses ", responses, " and --repeat ", repeat,
                    "; give at least 1, 0 and 1");
    constexpr double kDepth = 8;
    TLT_CHECK_INPUT(acceptance == 0 || (acceptance > 1 && acceptance < kDepth + 1),
                    "--simulate-acceptance is ", acceptance, "; give a number between 1 and ",
                    kDepth + 1);
    for (const Way& way : ways()) {
      TLT_CHECK_INPUT(way.drafter != "simulated" || acceptance > 0,
                      "'simulated' needs --simulate-acceptance, as 4");
      TLT_CHECK_INPUT(
          (!way.drafter.starts_with("eagle") && way.drafter != "mixed") || !drafter.empty(), "'",
          way.drafter, "' needs a draft model; give its folder with --drafter");
    }
    TLT_CHECK_INPUT(
        prompt_tokens >= 1 && new_tokens >= 2 && prompt_tokens + new_tokens <= config.max_positions,
        "--prompt-tokens is ", prompt_tokens, " and --max-new-tokens ", new_tokens,
        "; give at least 1 and 2, and together at most the model's ", config.max_positions,
        " positions");
  }

  int64_t responses_at(int64_t batch) const {
    return responses > 0 ? responses : std::clamp<int64_t>(2 * batch, 16, 128);
  }
};

std::vector<std::vector<int32_t>> load_prompts(const RolloutFlags& flags,
                                               model::PolicyModel& policy, int64_t count) {
  std::vector<std::vector<int32_t>> prompts;
  if (flags.prompts.empty()) {
    for (int64_t i = 0; i < count; ++i)
      prompts.push_back(random_prompt(policy, static_cast<uint32_t>(i), flags.prompt_tokens));
    return prompts;
  }
  const auto tokenizer = flags.model.flags.load_tokenizer(policy);
  for (cli::InputRow& row :
       cli::read_prompts(flags.prompts, {.tokenizer = tokenizer,
                                        .model = flags.model.flags.model,
                                        .vocabulary = policy.config().vocabulary}))
    prompts.push_back(std::move(row.tokens));
  TLT_CHECK_INPUT(std::ssize(prompts) >= count, "--prompts ", flags.prompts, " has ",
                  prompts.size(), " prompts and the run needs ", count,
                  "; give more, or fewer --responses");
  prompts.resize(static_cast<size_t>(count));
  return prompts;
}

struct Run {
  double seconds = 0, cpu_seconds = 0;  // cpu_seconds: of all threads
  int64_t tokens = 0, forwards = 0;     // forwards: target forward passes, summed over responses
  double forward_seconds = 0;           // mean per engine step: target with LM head and sampling
  std::array<double, kBuckets> bucket_seconds = {};
  std::array<int64_t, kBuckets> bucket_tokens = {};
  rollout::SpeculationStats speculation;
  std::optional<speculation::TunerReport> tuner;  // of all runs so far
};

// The ways at one batch size.
class Comparison {
 public:
  Comparison(const RolloutFlags& flags, model::PolicyModel& policy, int64_t batch)
      : flags_(flags), policy_(policy), batch_(batch), ways_(flags.ways()) {
    const int64_t count = flags.responses_at(batch);
    prompts_ = load_prompts(flags, policy, (count + flags.samples - 1) / flags.samples);
    responses_ = count;
    auto sampling = std::make_shared<rollout::SamplingOptions>();
    sampling->temperature = flags.temperature;
    sampling->max_new_tokens = flags.new_tokens;
    sampling->ignore_eos = flags.ignore_eos;
    sampling_ = sampling;
    int64_t positions = 0;
    for (const auto& prompt : prompts_)
      positions = std::max(positions, std::ssize(prompt) + flags.new_tokens);
    engine_.max_running = batch;
    engine_.max_batch_tokens = std::max<int64_t>(engine_.max_batch_tokens, batch);
    engine_.kv_memory_bytes =
        (batch + 1) * (ops::pages_for(positions) + 2) * policy.kv_shape().page_bytes();
    runs_.resize(ways_.size());
    tuner_states_.resize(ways_.size());
    speculation::SpeculationOptions options;
    options.eagle.spec_model_path = flags.drafter;
    if (flags.drafter == "untrained") {
      network_ = drafter::make_draft_network({.seed = 1}, policy);
    } else {
      network_ = rollout::load_draft_network(options, policy);
    }
    costs_ = rollout::measure_costs(policy, network_.get(), options, engine_);
  }

  void run() {
    for (int64_t round = 0; round <= flags_.repeat; ++round)
      for (size_t way = 0; way < ways_.size(); ++way) {
        Run run = decode(way);
        if (round > 0) runs_[way].push_back(std::move(run));
      }
  }

  void report() const {
    std::vector<std::string> rows;
    for (size_t way = 0; way < ways_.size(); ++way) rows.push_back(report_way(way));
    log_info(
        "batch {}, {} responses; time is the median of {}, min the worst round's speedup, "
        "overhead is per step without forward passes",
        batch_, responses_, counted(flags_.repeat, "round"));
    log_info("  {:<16}{:>10}{:>9}{:>9}{:>7}{:>19}{:>13}{:>10}", "method", "time", "tok/s",
             "speedup", "min", "acceptance length", "spec. steps", "overhead");
    for (const std::string& row : rows) log_info("  {}", row);
  }

 private:
  std::unique_ptr<rollout::Speculation> make_speculation(const Way& way) const {
    speculation::SpeculationOptions options;
    options.enable = !way.drafter.empty();
    if (way.is_beg) options.eagle.tune_algorithm = "BEG";
    if (way.drafter == "simulated") {
      auto drafter = std::make_unique<SimulatedDrafter>(truth_, flags_.acceptance, /*depth=*/8,
                                                        policy_.config().vocabulary);
      if (way.strategy)
        return std::make_unique<rollout::Speculation>(std::move(drafter), *way.strategy,
                                                      policy_.config().vocabulary);
      std::vector<std::unique_ptr<drafter::Drafter>> drafters;
      drafters.push_back(std::move(drafter));
      return std::make_unique<rollout::Speculation>(
          std::move(drafters),
          rollout::Speculation::Adaptive{
              .options = options, .costs = *costs_, .max_rows = engine_.max_batch_tokens},
          policy_.config().vocabulary);
    }
    if (way.drafter != "auto" && options.enable) options.drafters = {way.drafter};
    if (way.drafter == kBlindEagle) {
      options.drafters = {"eagle"};
      options.eagle.drafter.common_random_numbers = false;
    }
    return rollout::make_speculation(
        options, policy_, engine_,
        {.network = network_, .strategy = way.strategy, .costs = costs_});
  }

  Run decode(size_t way) {
    const auto speculation = make_speculation(ways_[way]);
    if (speculation && !tuner_states_[way].empty())
      speculation->restore(tuner_states_[way], "bench");
    rollout::Engine engine(policy_, engine_, nullptr, nullptr, speculation.get());
    submit(engine);
    Run run;
    const Stopwatch whole;
    const std::clock_t cpu = std::clock();
    Stopwatch watch;
    for (int64_t tokens = 0; engine.step();) {
      const rollout::EngineStats stats = engine.stats();
      const auto bucket = std::min<size_t>(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(
                                               std::max<int64_t>(stats.running, 1)))) -
                                               1,
                                           kBuckets - 1);
      run.bucket_seconds[bucket] += watch.restart();
      run.bucket_tokens[bucket] += stats.tokens - std::exchange(tokens, stats.tokens);
    }
    run.seconds = whole.seconds();
    run.cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    run.forward_seconds = (engine.stats().forward_seconds + engine.stats().sample_seconds) /
                          static_cast<double>(engine.stats().steps);
    for (const rollout::Response& response : engine.take_finished()) {
      run.tokens += std::ssize(response.tokens);
      run.forwards += response.target_forwards;
      keep_or_compare(response, ways_[way].name);
    }
    if (speculation) {
      run.speculation = speculation->stats();
      tuner_states_[way] = speculation->save();
      if (speculation->tuner()) run.tuner = speculation->tuner()->report();
    }
    return run;
  }

  // The first run, without speculation, is the reference that all others must reproduce.
  void keep_or_compare(const rollout::Response& response, const std::string& way) {
    const drafter::SequenceId id{response.prompt_id, response.sample};
    const auto [tokens, is_new] = truth_.emplace(id, response.tokens);
    if (is_new) {
      logprobs_[id] = response.logprobs;
      return;
    }
    TLT_CHECK(response.tokens == tokens->second && response.logprobs == logprobs_.at(id), way,
              " gave other tokens or logprobs than non-speculative decoding, prompt ", id.prompt_id,
              " sample ", id.sample);
  }

  void submit(rollout::Engine& engine) const {
    int64_t left = responses_;
    for (uint32_t i = 0; i < prompts_.size(); ++i) {
      const int64_t samples = std::min(left, flags_.samples);
      engine.submit({.prompt_id = i,
                     .tokens = prompts_[i],
                     .samples = samples,
                     .sampling = sampling_,
                     .seed = 1});
      left -= samples;
    }
  }

  // Medians over the rounds; each speedup is relative to `off` in the same round.
  void report_buckets(size_t way, nlohmann::ordered_json& line) const {
    nlohmann::ordered_json speeds, speedups;
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
      std::vector<double> speed, ratio;
      const auto speed_in = [&](const Run& run) {
        const double seconds = run.bucket_seconds[bucket];
        return seconds > 0 ? static_cast<double>(run.bucket_tokens[bucket]) / seconds : 0;
      };
      for (size_t round = 0; round < runs_[way].size(); ++round) {
        const double speed_of_way = speed_in(runs_[way][round]),
                     baseline = speed_in(runs_[0][round]);
        if (speed_of_way > 0) speed.push_back(speed_of_way);
        if (speed_of_way > 0 && baseline > 0) ratio.push_back(speed_of_way / baseline);
      }
      const std::string name = std::to_string(1 << bucket);
      if (!speed.empty()) speeds[name] = median(speed);
      if (!ratio.empty()) speedups[name] = median(ratio);
    }
    line["tokens_per_second_by_batch"] = speeds;
    line["speedup_by_batch"] = speedups;
  }

  static void add_counts(const rollout::DraftStats& stats, nlohmann::ordered_json& line) {
    line["drafted_tokens"] = stats.drafted_tokens;
    line["accepted_tokens"] = stats.accepted_tokens;
    line["draft_seconds"] = stats.draft_seconds;
    for (size_t i = 0; i < speculation::kPositions; ++i)
      if (stats.trees_at_position[i] > 0)
        line["accept_length_by_position"][speculation::kPositionNames[i]] =
            1 + static_cast<double>(stats.accepted_at_position[i]) /
                    static_cast<double>(stats.trees_at_position[i]);
  }

  std::string report_way(size_t way) const {
    const std::vector<Run>& runs = runs_[way];
    std::vector<double> seconds, ratios, cpu_ratios;
    for (size_t round = 0; round < runs.size(); ++round) {
      seconds.push_back(runs[round].seconds);
      ratios.push_back(runs_[0][round].seconds / runs[round].seconds);
      cpu_ratios.push_back(runs_[0][round].cpu_seconds / runs[round].cpu_seconds);
    }
    const Run& last = runs.back();
    const rollout::SpeculationStats& stats = last.speculation;
    const double accept_length =
        static_cast<double>(last.tokens) / static_cast<double>(last.forwards);
    const double tokens_per_second = static_cast<double>(last.tokens) / median(seconds);
    const double share = stats.decode_steps > 0 ? static_cast<double>(stats.steps) /
                                                      static_cast<double>(stats.decode_steps)
                                                : 0;
    nlohmann::ordered_json line = begin_report("rollout", flags_.model, policy_);
    line["way"] = ways_[way].name;
    line["batch"] = batch_;
    line["responses"] = responses_;
    line["repeat"] = flags_.repeat;
    line["tokens"] = last.tokens;
    line["seconds"] = median(seconds);
    line["tokens_per_second"] = tokens_per_second;
    line["speedup"] = median(ratios);
    line["speedup_min"] = percentile(ratios, 0);
    line["speedups"] = ratios;
    line["cpu_speedup"] = median(cpu_ratios);  // for a machine with other load
    line["accept_length"] = accept_length;
    line["speculation_share"] = share;
    add_counts(stats, line);
    // Overhead of speculation per decode step, without forward passes, and relative to the forward
    // pass of a non-speculative step.
    const double fixed = stats.decode_steps > 0 ? (stats.seconds - stats.forward_seconds) /
                                                      static_cast<double>(stats.decode_steps)
                                                : 0;
    const double baseline = runs_[0].back().forward_seconds;
    line["speculation_fixed_seconds"] = fixed;
    line["speculation_fixed_share"] = fixed / baseline;
    if (last.tuner) line["tuner"] = to_json(*last.tuner);
    report_buckets(way, line);
    print_report(std::move(line));
    return fmt::format("{:<16}{:>8.2f} s{:>9.0f}{:>8.2f}x{:>7.2f}{:>19.2f}{:>11.0f} %{:>8.1f} %",
                       ways_[way].name, median(seconds), tokens_per_second, median(ratios),
                       percentile(ratios, 0), accept_length, 100 * share, 100 * fixed / baseline);
  }

  const RolloutFlags& flags_;
  const model::PolicyModel& policy_;
  const int64_t batch_;
  const std::vector<Way> ways_;
  std::vector<std::vector<int32_t>> prompts_;
  int64_t responses_ = 0;
  std::shared_ptr<const rollout::SamplingOptions> sampling_;
  rollout::EngineOptions engine_;
  std::shared_ptr<drafter::DraftNetwork> network_;  // null: no draft model
  std::optional<speculation::CostTable> costs_;
  std::vector<std::string> tuner_states_;  // [way], state of its tuner
  std::vector<std::vector<Run>> runs_;     // [way, round]
  Truth truth_;
  std::map<drafter::SequenceId, std::vector<float>> logprobs_;
};

}  // namespace

int run_rollout(const cli::Arguments& arguments) {
  RolloutFlags flags;
  CLI::App app("The same responses decoded without speculation and with several drafters.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  const auto policy = flags.model.load();
  flags.check(policy->config());
  for (const int64_t batch : flags.batches) {
    Comparison comparison(flags, *policy, batch);
    comparison.run();
    comparison.report();
  }
  return 0;
}

}  // namespace tlt::bench
