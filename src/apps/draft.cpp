// tlt draft: the warm-up of an EAGLE draft model, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.h"
#include "cli/recipe.h"
#include "warmup/draft_loop.h"

namespace tlt::apps {

int run_draft(const cli::Arguments& arguments) {
  return cli::run_recipe(arguments, "Trains an EAGLE draft model for a target model.",
                         warmup::draft);
}

}  // namespace tlt::apps
