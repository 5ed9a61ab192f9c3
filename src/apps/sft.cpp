// tlt sft: supervised fine-tuning, from a recipe.
//
// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.h"
#include "cli/recipe.h"
#include "warmup/sft_loop.h"

namespace tlt::apps {

int run_sft(const cli::Arguments& arguments) {
  return cli::run_recipe(
      arguments, "Supervised fine-tuning (SFT) of a policy on prompts and responses.", warmup::sft);
}

}  // namespace tlt::apps
