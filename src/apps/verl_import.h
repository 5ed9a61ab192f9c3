// import_verl: what of a verl or FastRL configuration tlt has too, as options, and what it has not,
// as sentences.
//
// Options that have verl's names are taken by name; verl_import.cpp lists those with another name
// or another meaning. A value that an option refuses is left out and said.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/verl_config.h"
#include "base/options.h"
#include "rl/run_options.h"

namespace tlt::apps {

struct VerlImport {
  std::vector<std::string> options;  // names of those that were set, as tlt lists them
  std::vector<std::string> notes;  // "fastrl.yaml:12: critic.optim.lr = 1e-05: there is no critic"
  int64_t unmapped = 0;            // keys that are set and have no option here
};

// What tlt has in place of verl's option of this name (without actor_rollout_ref), or why it has
// nothing; empty: verl has no such name, or tlt has it too.
std::string verl_hint(std::string_view name);

// Sets `options` where the entries say something.
VerlImport import_verl(const std::vector<VerlEntry>& entries, rl::RunOptions& options);

}  // namespace tlt::apps
