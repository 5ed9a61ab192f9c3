// tlt import verl: a recipe from a configuration of verl or FastRL.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"
#include "cli/verl_import.h"

namespace tlt::apps {
namespace {

std::string recipe_of(const std::string& config, const std::vector<std::string>& names,
                      run::RunOptions& options) {
  std::vector<OptionRef> set;
  for (const OptionRef& ref : collect_options(options))
    if (std::ranges::find(names, ref.name) != names.end()) set.push_back(ref);
  return "# From " + one_sentence(config) + " by tlt import verl.\n" + to_toml(set);
}

int run_import_verl(const cli::Arguments& arguments) {
  std::string config, out = "-";
  std::vector<std::string> overrides;
  CLI::App app(
      "A recipe from a configuration of verl or FastRL. Unsupported settings are listed on "
      "standard error, with the reason.");
  app.add_option("CONFIG", config,
                 "YAML file with the whole configuration, as verl prints it with --cfg job.")
      ->required();
  app.add_option("KEY=VALUE", overrides,
                 "Overrides as in verl's scripts, e.g. actor_rollout_ref.rollout.n=8.");
  app.add_option("--out", out, "Recipe to write; -, the default: standard output.");
  if (!cli::try_parse(app, arguments)) return 0;

  run::RunOptions options;
  const cli::VerlImport imported =
      cli::import_verl(cli::read_verl_config(config, overrides), options);
  TLT_CHECK_INPUT(!imported.options.empty(), config,
                  ": no options of verl; give a configuration of verl's trainer");
  write_file_atomic(out, recipe_of(config, imported.options, options));
  for (const std::string& note : imported.notes)
    fmt::print(stderr, "{}\n", one_sentence(note, kMaxLogLineBytes));
  fmt::print(stderr, "{}: {} imported, {} not supported{}\n", one_sentence(config),
             counted(std::ssize(imported.options), "option"), counted(imported.unmapped, "setting"),
             options.model.path.empty() ? "; model.path is not set" : "");
  return 0;
}

constexpr cli::Command kSystems[] = {
    {"verl", "From a configuration of verl or FastRL.", run_import_verl},
};

}  // namespace

int run_import(const cli::Arguments& arguments) { return cli::run_command(kSystems, arguments); }

}  // namespace tlt::apps
