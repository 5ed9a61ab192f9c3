// verl's configuration (a YAML file of nested keys, as Hydra writes them) as flat entries, with
// `${a.b}`, `${.b}` and `${oc.select:a.b,default}` replaced by what they point to.
//
// Not here   what the keys mean to tlt (verl_import.h); Hydra's `defaults` (files that it would put
//            together are not looked for).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tlt::apps {

struct VerlEntry {
  std::string key;       // "actor_rollout_ref.rollout.n"
  std::string place;     // "fastrl.yaml:12", or "n=8" of the command line
  nlohmann::json value;  // a single value or a list; null: not set
  bool is_open = false;  // it has a ${…} that points nowhere
};

// In the order of the file; an override ("rollout.n=8", "+a=b") replaces the file's value, or comes
// last. InputError: no YAML, or no keys.
std::vector<VerlEntry> read_verl_config(const std::string& path,
                                        const std::vector<std::string>& overrides);

}  // namespace tlt::apps
