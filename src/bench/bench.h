// Shared by the scenarios of `tlt bench`: the model, prompts, statistics and the report line.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "rollout/sampling_options.h"

namespace tlt::bench {

// --model, or a model of a built-in shape with random weights, because speed does not depend on the
// weights.
struct BenchModel {
  cli::ModelFlags flags;
  std::string shape = "tiny";

  void add_to(CLI::App& app);
  std::unique_ptr<model::PolicyModel> load() const;
  std::string name() const;  // of the model folder, or the shape
};

// `length` random tokens, the same on every machine. `index` counts the prompts.
std::vector<int32_t> random_prompt(const model::PolicyModel& policy, uint32_t index,
                                   int64_t length);

// Sampling options for responses of exactly `new_tokens` tokens.
std::shared_ptr<const rollout::SamplingOptions> fixed_length(int64_t new_tokens,
                                                             double temperature);

// {"bench", "model", "dtype", "device", "threads"}: the first fields of a report line.
nlohmann::ordered_json begin_report(const std::string& bench, const BenchModel& model,
                                    const model::PolicyModel& policy);
// Appends peak memory, commit and machine, and prints the line.
void print_report(nlohmann::ordered_json report);

}  // namespace tlt::bench
