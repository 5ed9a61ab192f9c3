// tlt dpo: preference optimization, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.h"
#include "cli/recipe.h"
#include "warmup/dpo_loop.h"

namespace tlt::apps {

int run_dpo(const cli::Arguments& arguments) {
  return cli::run_recipe(
      arguments,
      "Preference optimization (DPO) of a policy on pairs of a chosen and a rejected response.",
      warmup::dpo);
}

}  // namespace tlt::apps
