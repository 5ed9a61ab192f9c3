// What the scenarios of `tlt bench` share: the model they run, and how they report.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/model_flags.h"
#include "rollout/sampling_options.h"

namespace tlt::apps {

// --model, or without one a model of a built-in shape with random weights: speed does not depend on
// what they are.
struct BenchModel {
  ModelFlags flags;
  std::string shape = "tiny";

  void add_to(CLI::App& app);
  std::unique_ptr<model::PolicyModel> load() const;
  std::string name() const;  // the folder's, or the shape's
};

// `length` random tokens, the same on every machine. `index` is the number of the prompt.
std::vector<int32_t> random_prompt(const model::PolicyModel& policy, uint32_t index,
                                   int64_t length);

// Responses of exactly so many tokens.
std::shared_ptr<const rollout::SamplingOptions> fixed_length(int64_t new_tokens,
                                                             double temperature);

// The value below which a share of all lies (nearest rank). REQUIRES: not empty.
double quantile(std::vector<double> values, double share);
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// {"bench", "model", "dtype", "device", "threads"}: how a scenario's line begins …
nlohmann::ordered_json begin_report(const std::string& bench, const BenchModel& model,
                                    const model::PolicyModel& policy);
// … and how it ends: peak memory, commit, machine; then it is printed.
void print_report(nlohmann::ordered_json report);

}  // namespace tlt::apps
