// tlt bench: benchmarks, one JSON object per line.
//
// SPDX-License-Identifier: Apache-2.0
#include "bench/bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/random.h"
#include "base/version.h"
#include "bench/machine.h"
#include "bench/scenarios.h"
#include "cli/rows.h"

namespace tlt::bench {
namespace {

constexpr cli::Command kScenarios[] = {
    {"decode", "Decoding at several batch sizes.", run_decode},
    {"rollout", "The same responses with and without speculative decoding.", run_rollout},
    {"forward", "A forward pass by its number of token rows.", run_forward},
    {"train", "One RL step: responses, then an update.", run_train},
    {"draft-train", "Draft model training: packed and padded; ways to write checkpoints.",
     run_draft_train},
    {"growth", "Scaling of an RL step with prompts, response length and model width.", run_growth},
    {"graphs", "Graphs of forward passes that a run needs.", run_graphs},
    {"suffix", "How often suffix drafts would be accepted in given responses.", run_suffix},
    {"tokenize", "Encoding and decoding of text.", run_tokenize},
    {"control", "The coordinator with the connections of many workers.", run_control},
    {"compare", "Ratios of two files of results.", run_compare},
};

constexpr uint64_t kSeed = 1;

struct Shape {
  const char* name;
  int64_t hidden, layers, heads, kv_heads, head_size, intermediate, vocabulary;
  bool tied;
};
// 3.4 M and 50 M parameters; and Qwen2.5-7B's.
constexpr Shape kShapes[] = {{"tiny", 192, 8, 6, 2, 32, 512, 1024, true},
                             {"60m", 512, 8, 8, 2, 64, 1536, 50304, true},
                             {"7b", 3584, 28, 28, 4, 128, 18944, 152064, false}};

model::ModelConfig config_of(const std::string& name) {
  const Shape* shape = std::find_if(std::begin(kShapes), std::end(kShapes),
                                    [&](const Shape& s) { return name == s.name; });
  TLT_CHECK_INPUT(shape != std::end(kShapes), "--shape is '", name, "'; use tiny, 60m or 7b");
  model::ModelConfig config;
  config.vocabulary = shape->vocabulary;
  config.hidden = shape->hidden;
  config.layers = shape->layers;
  config.heads = shape->heads;
  config.kv_heads = shape->kv_heads;
  config.head_size = shape->head_size;
  config.intermediate = shape->intermediate;
  config.max_positions = 1 << 15;
  config.tied = shape->tied;
  config.attention_bias = true;
  config.check("--shape");
  return config;
}

// Weights of about the size that initialize() gives them, drawn on the device: the host would need
// minutes for 7 billion.
void draw_on_device(const model::PolicyModel& policy) {
  const Device& device = policy.device();
  for (const model::Parameter& parameter : policy.parameters()) {
    at::Tensor values = device.empty(parameter.shape(), at::kFloat);
    if (values.dim() == 1) {
      values.fill_(parameter.name().ends_with(".bias") ? 0 : 1);
    } else {
      values.normal_(0, 1 / std::sqrt(static_cast<double>(values.size(-1))));
    }
    parameter.write(device, values);
  }
}

}  // namespace

void BenchModel::add_to(CLI::App& app) {
  flags.add_to(app, /*model_is_required=*/false);
  app.add_option("--shape", shape, "Without --model: tiny, 60m or 7b, with random weights.");
}

std::unique_ptr<model::PolicyModel> BenchModel::load() const {
  if (!flags.model.empty()) return flags.load();
  cli::ModelFlags random = flags;
  if (random.dtype == "auto") random.dtype = "bfloat16";
  auto policy =
      std::make_unique<model::PolicyModel>(config_of(shape), random.open_device(), random.type());
  if (policy->device().is_cpu()) {
    policy->initialize(kSeed);
  } else {
    draw_on_device(*policy);
  }
  return policy;
}

std::string BenchModel::name() const {
  if (flags.model.empty()) return shape;
  const auto path = std::filesystem::absolute(flags.model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::vector<int32_t> random_prompt(const model::PolicyModel& policy, uint32_t index,
                                   int64_t length) {
  RandomStream random(kSeed, {.prompt = index});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i)
    tokens.push_back(
        static_cast<int32_t>(random.below(static_cast<uint64_t>(policy.config().vocabulary))));
  return tokens;
}

std::shared_ptr<const rollout::SamplingOptions> fixed_length(int64_t new_tokens,
                                                             double temperature) {
  auto sampling = std::make_shared<rollout::SamplingOptions>();
  sampling->temperature = temperature;
  sampling->max_new_tokens = new_tokens;
  sampling->ignore_eos = true;
  return sampling;
}

nlohmann::ordered_json begin_report(const std::string& bench, const BenchModel& model,
                                    const model::PolicyModel& policy) {
  return {{"bench", bench},
          {"model", model.name()},
          {"dtype", cli::type_name(policy.type())},
          {"device", policy.device().name()},
          {"threads", policy.device().pool().threads()}};
}

void print_report(nlohmann::ordered_json report) {
  report["peak_memory_bytes"] = peak_memory_bytes();
  report["commit"] = kCommit;
  report["machine"] = machine_name();
  cli::print_line(report);
}

int run_bench(const cli::Arguments& arguments) { return cli::run_command(kScenarios, arguments); }

}  // namespace tlt::bench
