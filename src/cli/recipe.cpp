// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/options.h"
#include "cli/find_model.h"
#include "cli/installed_files.h"
#include "cli/verl_import.h"
#include "cluster/spawn.h"
#include "data/data_files.h"
#include "run/dropped_options.h"

namespace tlt::cli {
namespace {

// Sets what has changed in the run that the command resumes, and what changes now.
void resume_options(run::RunOptions& options, const std::vector<std::string>& overrides) {
  const bool resumes = options.trainer.resume_mode != "disable";
  TLT_CHECK_INPUT(resumes || overrides.empty(), "--override ", overrides.front(),
                  " changes a run that resumes, and trainer.resume_mode=disable starts a new one; "
                  "leave one of them out");
  if (resumes)
    options.overrides = run::apply_overrides(collect_options(options), options.trainer.folder(),
                                             overrides, option_hint);
}

}  // namespace

int start_workers(int64_t workers, const Arguments& arguments) {
  const cluster::SpawnResult result =
      cluster::spawn_workers(static_cast<int>(workers), arguments.all);
  if (result.exit_code == 0 && !result.message.empty())
    log_warning("{}", result.message);
  else if (!result.message.empty())
    log_error("{}", result.message);
  return result.exit_code;
}

void RecipeWords::add_to(CLI::App& flags) {
  flags.add_option("RECIPE", recipe,
                   "TOML file with options (tlt options lists them); optional if options are given "
                   "on the command line.");
  flags.add_option("KEY=VALUE", overrides, "Override options of the recipe, e.g. rollout.n=8.");
}

run::RunOptions RecipeWords::read() const {
  TLT_CHECK_INPUT(
      !recipe.empty(),
      "no recipe and no options; give a TOML file, such as recipes/demo.toml, or options "
      "such as model.path=DIR");
  run::RunOptions options;
  if (recipe.find('=') != recipe.npos && !std::filesystem::exists(recipe))
    apply_override(options, recipe);
  else
    apply_toml_file(collect_options(options), find_installed(recipe), option_hint);
  for (const std::string& text : overrides) apply_override(options, text);
  return options;
}

std::string option_hint(std::string_view name) {
  const std::string dropped = run::dropped_option(name);
  return dropped.empty() ? verl_hint(name) : dropped;
}

void apply_override(run::RunOptions& options, const std::string& text) {
  tlt::apply_override(collect_options(options), text, option_hint);
}

int run_recipe(const Arguments& arguments, const char* description, const RunRecipe& run) {
  return run_recipe(arguments, RecipeCommand{.description = description}, run);
}

int run_recipe(const Arguments& arguments, const RecipeCommand& command, const RunRecipe& run) {
  RecipeWords words;
  std::vector<std::string> overrides;
  int64_t workers = 0;
  CLI::App app(command.description);
  words.add_to(app);
  if (command.add_flags) command.add_flags(app);
  app.add_option("--override", overrides,
                 "Change an option of a run when it resumes, from there on: the learning rate, a "
                 "limit, … (docs/resume.md); may be given several times.")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  app.add_option(
      "--workers", workers,
      "Workers to start on this machine; a launcher (torchrun, mpirun, srun) starts its own.");
  if (!try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(app.count("--workers") == 0 || (workers >= 1 && workers <= 1024), "--workers is ",
                  workers, "; give a number from 1 to 1024");

  run::RunOptions options =
      command.use_flags && words.is_empty() ? run::RunOptions() : words.read();
  if (command.use_flags) command.use_flags(options);
  resume_options(options, overrides);
  options.check();
  data::expand_data_files(options.data);
  options.model.path = find_hub_model(options.model.path);

  const cluster::Launch launch = cluster::read_launch(cluster::process_environment());
  if (launch.world_size == 1 && workers > 1) return start_workers(workers, arguments);
  TLT_CHECK_INPUT(workers == 0 || workers == launch.world_size, "--workers is ", workers,
                  ", but the launcher started ", launch.world_size,
                  " workers; leave --workers out");
  install_interrupt_handler(launch.rank == 0 ? command.acknowledgement : nullptr);
  set_log_rank(launch.rank, launch.world_size);
  return run(options, launch);
}

}  // namespace tlt::cli
