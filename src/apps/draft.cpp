// tlt draft: the warm-up of an EAGLE draft model, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.h"
#include "apps/recipe.h"
#include "rl/draft_loop.h"

namespace tlt::apps {

int run_draft(const Arguments& arguments) {
  return run_recipe(arguments, "Trains an EAGLE draft model for a target model.", rl::draft);
}

}  // namespace tlt::apps
