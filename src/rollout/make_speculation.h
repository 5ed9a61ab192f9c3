// The speculation that options ask for, with its drafters and what forward passes cost here.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "model/draft_network.h"
#include "model/policy_model.h"
#include "rollout/engine_options.h"
#include "rollout/speculation.h"

namespace tlt::rollout {

// What forward passes and proposals cost an engine with these options; takes about half a second.
// network: of an EAGLE drafter, or null.
spec::CostTable measure_costs(const model::PolicyModel& model, const model::DraftNetwork* network,
                              const spec::SpeculationOptions& options, const EngineOptions& engine);

struct SpeculationSetup {
  // Of the EAGLE drafter; null: there is none.
  std::shared_ptr<const model::DraftNetwork> network = {};
  uint64_t seed = 0;
  // Always this one, with the one drafter that the options name.
  std::optional<spec::Strategy> strategy = {};
  // As measured before; else they are measured where a tuner needs them.
  std::optional<spec::CostTable> costs = {};
  // They are measured only once decoding has taken Speculation::kMeasureAfterSeconds.
  bool defers_measuring = false;
};

// The network of speculative.eagle.spec_model_path; null when there is none to use. InputError when
// it does not fit the model.
std::shared_ptr<model::DraftNetwork> load_draft_network(const spec::SpeculationOptions& options,
                                                        const model::PolicyModel& model);

// Null when it is not enabled, or when nobody drafts.
std::unique_ptr<Speculation> make_speculation(const spec::SpeculationOptions& options,
                                              const model::PolicyModel& model,
                                              const EngineOptions& engine,
                                              SpeculationSetup setup = {});

}  // namespace tlt::rollout
