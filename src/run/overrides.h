// Overrides: changes of a run's options when it resumes (tlt train --override NAME=VALUE). They are
// kept, with the step after which each took effect, at the end of the run's options.toml:
//
//   [[override]]
//   step = 12
//   name = "actor.optim.lr"
//   before = 0.00015
//   value = 1e-05
//
// The history holds for every later start: a recipe that still has the value from before gets the
// new one.
//
// Not here   writing the file (run_folder.h).
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace tlt::run {

struct Override {
  static constexpr int64_t kNew = -1;  // of this start: the step is known after resuming
  int64_t step = kNew;                 // steps done before it took effect
  std::string name;
  std::string before, value;  // as to_text() writes them
};

// Sets the options of `refs` for a run that resumes in `folder`: by its history, then by `texts`
// ("actor.optim.lr=1e-5"). Returns the history with the changes of `texts`; one that changes nothing
// is none. InputError: the folder has no run, or an option defines the results made so far.
std::vector<Override> apply_overrides(const std::vector<OptionRef>& refs, const std::string& folder,
                                      const std::vector<std::string>& texts, const NameHint& hint);

// Whether an option may change within a run.
bool may_override(const OptionRef& option);

// The tables of an options.toml; empty: there are no overrides.
std::string to_toml(const std::vector<Override>& history);
// InputError, beginning with `location`: not TOML, or a table lacks a value.
std::vector<Override> parse_overrides(std::string_view options_toml, const std::string& location);

// The lines "name = value" of an options_digest(), with the newest value of each override.
std::string with_overrides(std::string_view digest, const std::vector<Override>& history);

}  // namespace tlt::run
