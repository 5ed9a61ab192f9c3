// tlt train: reinforcement learning, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.h"
#include "cli/recipe.h"
#include "rl/rl_loop.h"

namespace tlt::apps {

int run_train(const cli::Arguments& arguments) {
  return cli::run_recipe(
      arguments, "Trains a policy by reinforcement learning (GRPO and its relatives).", rl::train);
}

}  // namespace tlt::apps
