// Builds a Speculation from options: its drafters, and the measured costs of forward passes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "drafter/eagle/draft_network.h"
#include "model/policy_model.h"
#include "rollout/engine_options.h"
#include "rollout/model_runner.h"
#include "rollout/speculation.h"

namespace tlt::rollout {

// Measures the cost of forward passes and proposals of an engine with these options; takes half a
// second to two, the longer the more sequences may run. network: the draft model of an EAGLE
// drafter, or null.
speculation::CostTable measure_costs(const TargetModel& target,
                                     const drafter::DraftNetwork* network,
                                     const speculation::SpeculationOptions& options,
                                     const EngineOptions& engine);

struct SpeculationSetup {
  // The draft model of the EAGLE drafter; null: no EAGLE drafter.
  std::shared_ptr<const drafter::DraftNetwork> network = {};
  uint64_t seed = 0;
  // Fixed strategy, with the one drafter that the options name; nullopt: the tuner chooses.
  std::optional<drafter::Strategy> strategy = {};
  // Costs measured before; nullopt: they are measured if a tuner needs them.
  std::optional<speculation::CostTable> costs = {};
  // Measure only after SpeculationPolicy::kMeasureAfterSeconds of decoding.
  bool defers_measuring = false;
};

// speculative.eagle.spec_model_path; empty when the options use no draft model of a folder.
std::string draft_model_folder(const speculation::SpeculationOptions& options);

// Loads that draft model; null when there is none.
// InputError when it does not fit the model.
std::shared_ptr<drafter::DraftNetwork> load_draft_network(
    const speculation::SpeculationOptions& options, const model::PolicyModel& model);

// Null when speculation is disabled or no drafter is available.
std::unique_ptr<Speculation> make_speculation(const speculation::SpeculationOptions& options,
                                              const TargetModel& target,
                                              const EngineOptions& engine,
                                              SpeculationSetup setup = {});

}  // namespace tlt::rollout
