// tlt bench growth: scaling of an RL step with prompts, response length and model width.
//
// On the CPU seconds are processor time, so that other programs do not affect them. One of the
// three sizes grows by the factors, the other two are constant. An exponent is log(cost ratio) /
// log(size ratio) to the line before: 1 is linear. Attention is also measured alone
// (attention_probe.h), because its time grows with the square of the response length.
//
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "bench/attention_probe.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/rl_step.h"
#include "bench/scenarios.h"
#include "model/hf_folder.h"

namespace tlt::bench {
namespace {

constexpr uint64_t kGrowthSeed = 1;
constexpr int64_t kHeadSize = 32, kVocabulary = 512, kLayers = 2;

struct Point {
  const char* quantity;
  int64_t factor;
  StepShape step;
  int64_t width;
  int64_t size;  // prompts, tokens of a response or parameters
};

struct GrowthFlags {
  cli::ModelFlags device{.model = "",
                         .dtype = "bfloat16",
                         .device = "cpu",
                         .threads = 1,
                         .adapter = ""};  // --model is not among the flags
  StepShape step{.prompts = 2, .samples = 8, .prompt_tokens = 32, .new_tokens = 64};
  int64_t width = 128, repeat = 3;
  std::vector<int64_t> factors = {1, 4, 16};

  void add_to(CLI::App& app) {
    app.option_defaults()->always_capture_default();
    app.add_option("--factor", factors, "Factors on each size, ascending, as 1,4,16.")
        ->delimiter(',')
        ->default_str("1,4,16");
    app.add_option("--prompts", step.prompts, "Prompts of the step, at factor 1.");
    app.add_option("--samples", step.samples, "Responses per prompt.");
    app.add_option("--prompt-tokens", step.prompt_tokens, "Length of the prompts.");
    app.add_option("--new-tokens", step.new_tokens, "Length of the responses, at factor 1.");
    app.add_option("--width", width, "Hidden size of the model, at factor 1; a multiple of 64.");
    app.add_option("--repeat", repeat, "Steps per line; the fastest counts.");
    app.add_option("--dtype", device.dtype, "float32 or bfloat16.");
    app.add_option("--device", device.device,
                   "cpu; cuda is refused until a GPU has passed the tests.");
    app.add_option(
        "--threads", device.threads,
        "Threads on the CPU; 0: all cores. With more than 1, waiting counts as processor time.");
  }

  at::ScalarType type() const { return model::parse_type(device.dtype, "--dtype"); }

  void check() const {
    type();
    for (size_t i = 0; i < factors.size(); ++i)
      TLT_CHECK_INPUT(
          factors[i] >= 1 && factors[i] <= 256 && (i == 0 || factors[i] > factors[i - 1]),
          "--factor has ", factors[i], "; give ascending numbers from 1 to 256");
    TLT_CHECK_INPUT(width >= 64 && width <= 1 << 14 && width % 64 == 0, "--width is ", width,
                    "; give a multiple of 64 up to ", 1 << 14);
    TLT_CHECK_INPUT(repeat >= 1 && repeat <= 1 << 20, "--repeat is ", repeat,
                    "; give a number from 1 to ", 1 << 20);
  }
};

// Layers, vocabulary and head size are constant; the other sizes grow with the width.
model::ModelConfig config_of(int64_t width) {
  model::ModelConfig config;
  config.vocabulary = kVocabulary;
  config.hidden = width;
  config.layers = kLayers;
  config.heads = width / kHeadSize;
  config.kv_heads = config.heads / 2;
  config.head_size = kHeadSize;
  config.intermediate = 3 * width;
  config.max_positions = 1 << 17;
  config.tied = true;
  config.attention_bias = true;
  config.check("--width");
  return config;
}

std::vector<Point> points_of(const GrowthFlags& flags) {
  std::vector<Point> points;
  for (const int64_t factor : flags.factors) {
    StepShape step = flags.step;
    step.prompts *= factor;
    points.push_back({"prompts", factor, step, flags.width, step.prompts});
  }
  for (const int64_t factor : flags.factors) {
    StepShape step = flags.step;
    step.new_tokens *= factor;
    points.push_back({"response_tokens", factor, step, flags.width, step.new_tokens});
  }
  for (const int64_t factor : flags.factors) {
    const int64_t width = flags.width * factor;
    points.push_back({"width", factor, flags.step, width, config_of(width).parameters()});
  }
  for (const Point& point : points) point.step.check(config_of(point.width));
  return points;
}

struct Cost {
  double rollout_seconds = 0, train_seconds = 0;
  AttentionSeconds attention;
  double memory_bytes = 0;  // peak of the process, less its memory before model, engine and trainer

  double attention_seconds() const { return attention.rollout + attention.train; }
  double other_seconds() const { return rollout_seconds + train_seconds - attention_seconds(); }
};

rollout::EngineOptions engine_options(const model::PolicyModel& policy, const StepShape& step) {
  rollout::EngineOptions options;
  options.max_running = std::min(options.max_running, step.responses());
  options.kv_memory_bytes = options.max_running *
                            (ops::pages_for(step.prompt_tokens + step.new_tokens) + 1) *
                            policy.kv_shape().page_bytes();
  return options;
}

Cost measure(const Point& point, const GrowthFlags& flags, const Device& device) {
  const Clock& clock = device.is_cpu() ? processor_clock() : steady_clock();
  malloc_trim(0);  // returns memory freed by the line before
  forget_peak_memory();
  const int64_t before = peak_memory_bytes();
  Cost cost;
  model::PolicyModel policy(config_of(point.width), device, flags.type());
  policy.initialize(kGrowthSeed);
  const rollout::EngineOptions engine = engine_options(policy, point.step);
  {
    RlStep step(policy, point.step, engine, flags.repeat + 1, clock);
    step.run(0);  // warm-up
    for (uint32_t i = 1; i <= flags.repeat; ++i) {
      const StepResult result = step.run(i);
      const auto keep_best = [&](double& best, double seconds) {
        best = i == 1 ? seconds : std::min(best, seconds);
      };
      keep_best(cost.rollout_seconds, result.rollout_seconds);
      keep_best(cost.train_seconds, result.train_seconds);
    }
  }
  cost.memory_bytes = static_cast<double>(peak_memory_bytes() - before);
  cost.attention = attention_seconds(policy, point.step, engine.max_running, clock);
  return cost;
}

struct Measured {
  Point point;
  Cost cost;
};

// `last`: null at the first size of a quantity.
void report(const Measured& measured, const Measured* last, const GrowthFlags& flags,
            const Device& device) {
  const Point& point = measured.point;
  const Cost& cost = measured.cost;
  nlohmann::ordered_json row = {{"bench", "growth"},
                                {"dtype", flags.device.dtype},
                                {"device", device.name()},
                                {"threads", device.pool().threads()},
                                {"quantity", point.quantity},
                                {"factor", point.factor},
                                {"size", point.size},
                                {"prompts", point.step.prompts},
                                {"samples", point.step.samples},
                                {"prompt_tokens", point.step.prompt_tokens},
                                {"new_tokens", point.step.new_tokens},
                                {"width", point.width},
                                {"repeat", flags.repeat}};
  const auto add = [&](const std::string& name, const std::string& unit, double value,
                       double last_value) {
    row[name + unit] = value;
    if (last && value > 0 && last_value > 0)
      row[name + "_exponent"] =
          std::log(value / last_value) /
          std::log(static_cast<double>(point.size) / static_cast<double>(last->point.size));
  };
  const Cost none;
  const Cost& before = last ? last->cost : none;
  add("rollout", "_seconds", cost.rollout_seconds, before.rollout_seconds);
  add("train", "_seconds", cost.train_seconds, before.train_seconds);
  add("attention", "_seconds", cost.attention_seconds(), before.attention_seconds());
  add("other", "_seconds", cost.other_seconds(), before.other_seconds());
  add("memory", "_bytes", cost.memory_bytes, before.memory_bytes);
  print_report(std::move(row));
}

}  // namespace

int run_growth(const cli::Arguments& arguments) {
  GrowthFlags flags;
  CLI::App app(
      "Scaling of an RL step with the number of prompts, the response length and the model "
      "width, with random weights.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  const Device device = flags.device.open_device();
  const std::vector<Point> points = points_of(flags);

  measure(points.front(), flags, device);  // warm-up of memory pages and threads
  std::vector<Measured> measured;
  for (size_t i = 0; i < points.size(); ++i) {
    measured.push_back({points[i], measure(points[i], flags, device)});
    const bool continues = i > 0 && std::string_view(points[i].quantity) == points[i - 1].quantity;
    report(measured[i], continues ? &measured[i - 1] : nullptr, flags, device);
  }
  return 0;
}

}  // namespace tlt::bench
