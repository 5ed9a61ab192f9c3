// SPDX-License-Identifier: Apache-2.0
#include "apps/recipe.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "apps/verl_import.h"
#include "base/check.h"
#include "base/options.h"

namespace tlt::apps {

void RecipeWords::add_to(CLI::App& flags) {
  flags.add_option("RECIPE", recipe,
                   "TOML file with options (tlt options lists them); optional if options are given "
                   "on the command line.");
  flags.add_option("KEY=VALUE", overrides, "Override options of the recipe, e.g. rollout.n=8.");
}

rl::RunOptions RecipeWords::read() const {
  TLT_CHECK_INPUT(
      !recipe.empty(),
      "no recipe and no options; give a TOML file, such as recipes/demo.toml, or options "
      "such as model.path=DIR");
  rl::RunOptions options;
  if (recipe.find('=') != recipe.npos && !std::filesystem::exists(recipe))
    apply_override(options, recipe);
  else
    apply_toml_file(collect_options(options), recipe, verl_hint);
  for (const std::string& text : overrides) apply_override(options, text);
  return options;
}

void apply_override(rl::RunOptions& options, const std::string& text) {
  tlt::apply_override(collect_options(options), text, verl_hint);
}

}  // namespace tlt::apps
