// The speculation that options ask for, with its drafters and what forward passes cost here.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "model/policy_model.h"
#include "rollout/engine_options.h"
#include "rollout/speculation.h"

namespace tlt::rollout {

// What forward passes cost an engine with these options; takes about half a second.
spec::CostTable measure_costs(const model::PolicyModel& model, const EngineOptions& engine);

struct SpeculationSetup {
  uint64_t seed = 0;
  // Always this one, with the one drafter that the options name.
  std::optional<spec::Strategy> strategy = {};
  // As measured before; else they are measured where a tuner needs them.
  std::optional<spec::CostTable> costs = {};
};

// Null when it is not enabled.
std::unique_ptr<Speculation> make_speculation(const spec::SpeculationOptions& options,
                                              const model::PolicyModel& model,
                                              const EngineOptions& engine,
                                              SpeculationSetup setup = {});

}  // namespace tlt::rollout
