// tlt train: reinforcement learning, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "cli/recipe.h"
#include "rl/rl_loop.h"

namespace tlt::apps {

int run_train(const cli::Arguments& arguments) {
  bool joins = false;
  const cli::RecipeCommand command{
      .description = "Trains a policy by reinforcement learning (GRPO and its relatives).",
      .add_flags =
          [&](CLI::App& app) {
            app.add_flag("--join", joins,
                         "Join the run of this recipe that is under way, as a further worker "
                         "(docs/launching.md).");
          },
  };
  return cli::run_recipe(arguments, command,
                         [&](const run::RunOptions& options, const cluster::Launch& launch) {
                           return joins ? rl::join(options, launch) : rl::train(options, launch);
                         });
}

}  // namespace tlt::apps
