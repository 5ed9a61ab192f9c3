// tlt simulate: RL steps of a cluster in virtual time.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/commands.h"
#include "apps/sweep_page.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "base/timeline.h"
#include "simulate/comparison.h"
#include "simulate/fit.h"
#include "simulate/model_shapes.h"

namespace tlt::apps {
namespace {

using simulate::SimulateOptions;

constexpr int64_t kTimelineWorkers = 64;

struct SimulateFlags {
  std::vector<std::string> overrides, sweeps;
  std::string fit, timeline, picture;
  bool is_json = false, is_list = false, is_sensitivity = false, shows_options = false;
};

void add_flags(CLI::App& app, SimulateFlags& flags) {
  app.add_option("OPTION=VALUE", flags.overrides, "What to simulate; --options lists the options.");
  app.add_option("--sweep", flags.sweeps, "An option with several values: workers=8,64,512.")
      ->allow_extra_args(false);
  app.add_option("--picture", flags.picture, "Writes charts of the sweep to this HTML file.");
  app.add_option("--fit", flags.fit, "Fits the constants costs.* to a table of measurements.");
  app.add_option("--timeline", flags.timeline,
                 "Writes what workers do in the last way, for https://ui.perfetto.dev.");
  app.add_flag("--sensitivity", flags.is_sensitivity, "Which inputs matter most.");
  app.add_flag("--json", flags.is_json, "A JSON object a line, one for each way.");
  app.add_flag("--list", flags.is_list, "Lists devices, models and ways.");
  app.add_flag("--options", flags.shows_options, "Lists the options with their values.");
}

// The device's constants, then what is given.
SimulateOptions make_options(const std::vector<std::string>& overrides) {
  SimulateOptions options;
  std::set<std::string> given;
  for (const std::string& override : overrides) {
    apply_override(collect_options(options), override);
    const std::string name = override.substr(0, override.find('='));
    TLT_CHECK_INPUT(given.insert(name).second, name, " is given twice; give one value");
  }
  for (const char* replaced : {"suffix_acceptance", "suffix_draft_rate"})
    TLT_CHECK_INPUT(!given.contains("bench_suffix") || !given.contains(replaced), replaced,
                    " is measured by bench_suffix; give one of them");
  options.costs = simulate::find_device(options.device).constants;
  for (const std::string& override : overrides)
    if (override.starts_with("costs.")) apply_override(collect_options(options), override);
  simulate::find_model(options.model);
  options.check();
  return options;
}

void print_list() {
  for (const simulate::DeviceSpec& it : simulate::devices())
    fmt::print("device {:<17}{:>7.4g} TFLOP/s {:>7.4g} GB/s {:>5.0f} GB  ridge {:>4.0f}  {}\n",
               it.name, it.peak * 1e-12, it.memory_bandwidth * 1e-9, it.memory_bytes * 1e-9,
               it.ridge(), it.source);
  for (const simulate::ModelShape& it : simulate::models())
    fmt::print(
        "model  {:<17}{:>7.4g} billion parameters, {:.4g} per token; {:.0f} KB of KV cache "
        "per token\n",
        it.name, it.parameters() * 1e-9, it.row_parameters() * 1e-9, it.kv_bytes() / 1024);
  for (const simulate::Way& it : simulate::ways())
    fmt::print("way    {:<17}{}\n", it.name, it.help);
  for (const simulate::WhatIf& it : simulate::what_ifs())
    fmt::print("what-if +{:<15}{}\n", it.name, it.help);
}

void print_fit(const std::string& path, const simulate::CostConstants& start) {
  const auto measurements = simulate::read_measurements(path);
  simulate::CostConstants fitted = simulate::fit_constants(measurements, start);
  for (const OptionRef& ref : collect_options(fitted))
    fmt::print("costs.{}={:.4g}\n", ref.name, *std::get<double*>(ref.value));
  double worst = 0;
  for (const simulate::Measurement& it : measurements)
    worst = std::max(worst, std::abs(simulate::predict(it, fitted) / it.value - 1));
  fmt::print("error {:.1f} % rms, {:.1f} % at most, of {} measurements; before {:.1f} % rms\n",
             100 * simulate::rms_error(measurements, fitted), 100 * worst, measurements.size(),
             100 * simulate::rms_error(measurements, start));
}

// Timelines of the first workers, in virtual time.
class VirtualTimelines {
 public:
  explicit VirtualTimelines(std::string path) : path_(std::move(path)) {}

  simulate::Simulation::Observer observer() {
    if (path_.empty()) return {};
    return [this](int64_t worker, const char* lane, double start, double end) {
      if (worker >= kTimelineWorkers) return;
      std::unique_ptr<Timeline>& timeline = timelines_[worker];
      if (!timeline) timeline = std::make_unique<Timeline>(path_, static_cast<int>(worker), clock_);
      timeline->span(lane, lane, start, end);
    };
  }

 private:
  const std::string path_;
  const FakeClock clock_;
  std::map<int64_t, std::unique_ptr<Timeline>> timelines_;
};

// Prints what happens at a point of the sweeps. Returns a JSON object for each way; none for
// --sensitivity.
nlohmann::ordered_json simulate_point(const SimulateFlags& flags,
                                      const std::vector<std::string>& point) {
  std::vector<std::string> overrides = flags.overrides;
  overrides.insert(overrides.end(), point.begin(), point.end());
  const SimulateOptions options = make_options(overrides);
  if (flags.is_sensitivity) {
    for (const simulate::Sensitivity& it : simulate::sensitivities(options))
      fmt::print("{:<26} x 0.8: step {:.2f}x   x 1.25: step {:.2f}x\n", it.option, it.smaller,
                 it.larger);
    return {};
  }
  VirtualTimelines timelines(flags.timeline);
  const auto results = simulate::compare_ways(options, timelines.observer());
  if (!flags.is_json) {
    if (!point.empty()) fmt::print("{}\n", fmt::join(point, " "));
    fmt::print("{}{}\n", simulate::to_table(results), simulate::sentence(options, results));
  }
  auto rows = nlohmann::ordered_json::array();
  for (const simulate::WayResult& result : results) {
    rows.push_back(simulate::to_json(options, result));
    rows.back()["options"] = overrides;
    if (flags.is_json) fmt::print("{}\n", rows.back().dump());
  }
  return rows;
}

void simulate_points(const SimulateFlags& flags, const std::string& command) {
  std::vector<SweepPoint> points;
  for (const auto& point : simulate::sweep_points(flags.sweeps))
    points.push_back({point, simulate_point(flags, point)});
  if (flags.picture.empty()) return;
  write_file_atomic(flags.picture, sweep_page(command, points));
  log_info("charts: {}", flags.picture);
}

}  // namespace

int run_simulate(const cli::Arguments& arguments) {
  SimulateFlags flags;
  CLI::App app("RL steps of a cluster in virtual time, decided by the same code as tlt train.");
  add_flags(app, flags);
  if (!cli::try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(flags.timeline.empty() || (flags.sweeps.empty() && !flags.is_sensitivity),
                  "--timeline is of one simulation; give it without --sweep and --sensitivity");
  TLT_CHECK_INPUT(flags.picture.empty() || (!flags.sweeps.empty() && !flags.is_sensitivity),
                  "--picture is of a sweep; give it with --sweep and without --sensitivity");
  for (const std::string& sweep : flags.sweeps)
    TLT_CHECK_INPUT(!sweep.starts_with("ways="), "--sweep ", sweep,
                    ": all ways are simulated at each point; give ", sweep, " without --sweep");
  SimulateOptions options = make_options(flags.overrides);
  if (flags.is_list) {
    print_list();
  } else if (flags.shows_options) {
    fmt::print("{}", to_toml(collect_options(options)));
  } else if (!flags.fit.empty()) {
    print_fit(flags.fit, options.costs);
  } else {
    simulate_points(flags,
                    fmt::format("{} {}", arguments.command, fmt::join(arguments.words, " ")));
  }
  return 0;
}

}  // namespace tlt::apps
