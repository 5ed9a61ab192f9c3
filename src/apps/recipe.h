// run_recipe: what the commands that run a recipe have in common: `tlt train [RECIPE.toml]
// [key=value …] [--workers N]`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/command.h"
#include "cluster/launch.h"
#include "rl/run_options.h"

namespace tlt::apps {

// A worker's run; the exit code.
using RunRecipe = int (*)(const rl::RunOptions&, const cluster::Launch&);

// Reads recipe and overrides, then runs in this process or starts the workers.
int run_recipe(const Arguments& arguments, const char* description, RunRecipe run);

}  // namespace tlt::apps
