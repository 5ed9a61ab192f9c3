// Shared by the commands that read a recipe: `tlt train [RECIPE] [KEY=VALUE …]`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
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
  bool is_empty() const { return recipe.empty(); }
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
using RunRecipe = std::function<int(const run::RunOptions&, const cluster::Launch&)>;

// A command that reads a recipe.
struct RecipeCommand {
  const char* description;
  // Written at the first signal; a string literal.
  const char* acknowledgement = "\ninterrupted: the run saves and ends; again to stop at once\n";
  std::function<void(CLI::App&)> add_flags = {};         // further flags; empty: none
  std::function<void(run::RunOptions&)> use_flags = {};  // sets their options, after the recipe's
};

// Reads recipe and overrides, and those of a run that resumes (run/overrides.h), then runs in this
// process or starts workers.
int run_recipe(const Arguments& arguments, const RecipeCommand& command, const RunRecipe& run);
int run_recipe(const Arguments& arguments, const char* description, const RunRecipe& run);

// Runs the command in this many processes (cluster/spawn.h), logs how they ended and returns the
// exit code.
int start_workers(int64_t workers, const Arguments& arguments);

}  // namespace tlt::cli
