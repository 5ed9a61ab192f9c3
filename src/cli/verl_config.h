// Reads verl's configuration (YAML with nested keys, as Hydra writes it) as flat entries, with
// `${a.b}`, `${.b}` and `${oc.select:a.b,default}` resolved.
//
// Not here   the mapping to options of tlt (verl_import.h); the files of Hydra's `defaults`, which
//            are not read.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tlt::cli {

struct VerlEntry {
  std::string key;       // "actor_rollout_ref.rollout.n"
  std::string place;     // "fastrl.yaml:12", or "n=8" on the command line
  nlohmann::json value;  // a single value or a list; null: not set
  bool is_open = false;  // has an unresolved ${…}
};

// Entries in the order of the file. An override ("rollout.n=8", "+a=b") replaces the file's value
// or is appended. InputError: not YAML, or no keys.
std::vector<VerlEntry> read_verl_config(const std::string& path,
                                        const std::vector<std::string>& overrides);

}  // namespace tlt::cli
