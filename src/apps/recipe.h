// What the commands that read a recipe have in common: `tlt train [RECIPE] [KEY=VALUE …]`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "cluster/launch.h"
#include "rl/run_options.h"

namespace tlt::apps {

// The words RECIPE and KEY=VALUE of a command line.
struct RecipeWords {
  std::string recipe;  // may be the first override
  std::vector<std::string> overrides;

  void add_to(CLI::App& flags);
  // The options that they set, over the defaults; not checked. InputError: no words at all, or what
  // apply_toml_file() and apply_override() throw.
  rl::RunOptions read() const;
};

// Sets one option; names of verl's are answered with what tlt has in their place.
void apply_override(rl::RunOptions& options, const std::string& text);

// A worker's run; the exit code.
using RunRecipe = int (*)(const rl::RunOptions&, const cluster::Launch&);

// Reads recipe and overrides, then runs in this process or starts the workers.
int run_recipe(const Arguments& arguments, const char* description, RunRecipe run);

}  // namespace tlt::apps
