// tlt completion SHELL, tlt man: the commands and options of this program for a shell and for man.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "base/version.h"
#include "cli/man_page.h"
#include "run/run_options.h"

namespace tlt::apps {

int print_completion(std::span<const cli::Command> program, const cli::Arguments& arguments) {
  std::string shell;
  CLI::App app(
      "Completion of commands, flags and options for a shell: source <(tlt completion bash)");
  app.add_option("SHELL", shell, "bash, zsh or fish.")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(cli::kShells.begin(), cli::kShells.end())));
  if (!cli::try_parse(app, arguments)) return 0;
  run::RunOptions options;
  fmt::print(
      "{}", cli::completion_script(shell, cli::pages_of(program, "tlt"), collect_options(options)));
  return 0;
}

int print_man_page(std::span<const cli::Command> program, const cli::Arguments& arguments) {
  CLI::App app("The manual page tlt.1, to read it: tlt man | man -l -");
  if (!cli::try_parse(app, arguments)) return 0;
  run::RunOptions options;
  fmt::print("{}",
             cli::man_page(kVersion, cli::pages_of(program, "tlt"), collect_options(options)));
  return 0;
}

}  // namespace tlt::apps
