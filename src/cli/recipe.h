// Shared by the commands that read a recipe: `tlt train [RECIPE] [KEY=VALUE …]`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cluster/launch.h"
#include "run/run_options.h"

namespace tlt::cli {

// The arguments RECIPE and KEY=VALUE of a command line.
struct RecipeWords {
  std::string recipe;  // or the first override
  std::vector<std::string> overrides;

  void add_to(CLI::App& flags);
  // The defaults with the options of recipe and overrides, not checked. InputError: neither is
  // given, or as apply_toml_file() and apply_override().
  run::RunOptions read() const;
};

// For a name that is no option: what replaced a dropped option, or what to set instead of verl's.
// Empty: neither.
std::string option_hint(std::string_view name);

// Sets one option. The error for an unknown name has option_hint().
void apply_override(run::RunOptions& options, const std::string& text);

// Runs one worker; returns the exit code.
using RunRecipe = int (*)(const run::RunOptions&, const cluster::Launch&);

// Reads recipe and overrides, and those of a run that resumes (run/overrides.h), then runs in this process or starts workers.
int run_recipe(const Arguments& arguments, const char* description, RunRecipe run);

}  // namespace tlt::cli
