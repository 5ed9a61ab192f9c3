// tlt train and tlt sft: a run from a recipe, in this process or in several workers.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/find_model.h"
#include "apps/recipe.h"
#include "base/check.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cluster/launch.h"
#include "cluster/spawn.h"
#include "data/data_files.h"
#include "rl/rl_loop.h"
#include "rl/sft_loop.h"

namespace tlt::apps {
namespace {

// Written at the first signal; the newline ends the terminal's status line.
constexpr const char* kStopping =
    "\ninterrupted: the run finishes this step, saves and ends; again to stop at once\n";

int start_workers(int64_t workers, const Arguments& arguments) {
  const cluster::SpawnResult result =
      cluster::spawn_workers(static_cast<int>(workers), arguments.all);
  if (!result.message.empty()) log_error("{}", result.message);
  return result.exit_code;
}

}  // namespace

int run_recipe(const Arguments& arguments, const char* description, RunRecipe run) {
  RecipeWords words;
  int64_t workers = 0;
  CLI::App app(description);
  words.add_to(app);
  app.add_option(
      "--workers", workers,
      "Workers to start on this machine; a launcher (torchrun, mpirun, srun) starts its own.");
  if (!try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(app.count("--workers") == 0 || (workers >= 1 && workers <= 1024), "--workers is ",
                  workers, "; give a number from 1 to 1024");

  rl::RunOptions options = words.read();
  options.check();
  data::expand_data_files(options.data);
  options.model.path = find_hub_model(options.model.path);

  const cluster::Launch launch = cluster::read_launch(cluster::process_environment());
  if (launch.world_size == 1 && workers > 1) return start_workers(workers, arguments);
  TLT_CHECK_INPUT(workers == 0 || workers == launch.world_size, "--workers is ", workers,
                  ", but the launcher started ", launch.world_size,
                  " workers; leave --workers out");
  install_interrupt_handler(launch.rank == 0 ? kStopping : nullptr);
  set_log_rank(launch.rank, launch.world_size);
  return run(options, launch);
}

int run_train(const Arguments& arguments) {
  return run_recipe(
      arguments, "Trains a policy by reinforcement learning (GRPO and its relatives).", rl::train);
}

int run_sft(const Arguments& arguments) {
  return run_recipe(arguments, "Supervised fine-tuning (SFT) of a policy on prompts and responses.",
                    rl::sft);
}

}  // namespace tlt::apps
