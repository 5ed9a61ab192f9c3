// import_verl: converts a verl or FastRL configuration to options of tlt, with a note for every
// setting that is not supported.
//
// Options with verl's names are set by name; verl_import.cpp lists those with another name or
// meaning. A value that an option refuses is left out, with a note.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "cli/verl_config.h"
#include "run/run_options.h"

namespace tlt::cli {

struct VerlImport {
  std::vector<std::string> options;  // names of the options set, in the order of tlt options
  std::vector<std::string> notes;  // "fastrl.yaml:12: rollout.name = vllm: the engine is tlt's own"
  int64_t unmapped = 0;            // keys with a value but without an option
};

// The option of tlt for verl's name (without actor_rollout_ref), or why there is none. Empty: not a
// name of verl, or tlt has the same name.
std::string verl_hint(std::string_view name);

// Sets the options that the entries have values for.
VerlImport import_verl(const std::vector<VerlEntry>& entries, run::RunOptions& options);

}  // namespace tlt::cli
