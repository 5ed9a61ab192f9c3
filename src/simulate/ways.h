// Way: how rollouts are decoded and what idle workers do.
//
// Two what-ifs can be added to each. Partial rollouts, as slime and APRIL (arXiv 2509.18521) have
// them: a step begins more groups than it trains and ends when enough are complete; the others
// continue in the next step, with a policy that is newer than their first tokens. One step off, as
// verl's recipe: some workers only roll out, with the policy of the step before, and the others
// train.
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
  // What-ifs, which tlt does not do:
  bool is_partial = false;       // a step leaves its longest groups to the next one
  bool is_one_step_off = false;  // some workers roll out while the others train the step before
};

const std::vector<Way>& ways();

struct WhatIf {
  std::string name;
  bool Way::*flag;
  std::string help;
};
const std::vector<WhatIf>& what_ifs();

// A way, or a way with what-ifs: "tlt+partial". InputError with the nearest name or all names.
Way find_way(const std::string& name);

}  // namespace tlt::simulate
