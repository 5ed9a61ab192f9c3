// Way: how rollouts are decoded and what idle workers do.
//
// Threading  constant table; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drafter/strategy.h"
#include "speculation/speculation_options.h"

namespace tlt::simulate {

struct Way {
  std::string name;
  std::string help;
  std::vector<std::string> drafters = {};       // empty: no speculation
  std::optional<drafter::Strategy> fixed = {};  // always this one; else the product's tuner
  speculation::SpeculationOptions tuning = {};  // of the tuner
  bool trains = false;                          // the draft model, on idle workers
  bool trains_by_interval = false;              // every 10 steps, else by the drift trigger
  bool migrates = false;                        // unfinished sequences, to fuller workers
  bool early_gradients = false;

  bool has_draft_model() const;
};

const std::vector<Way>& ways();
// InputError with the nearest name or all names.
const Way& find_way(const std::string& name);

}  // namespace tlt::simulate
