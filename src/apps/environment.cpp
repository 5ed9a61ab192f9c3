// tlt environment: an embedded environment for environment.command, on standard input and output.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/commands.h"
#include "environment/embedded.h"

namespace tlt::apps {

int run_environment(const cli::Arguments& arguments) {
  std::string name;
  CLI::App app(
      "An embedded multi-turn environment, which answers the calls of environment.command, one "
      "JSON object a line (docs/environments.md).");
  app.add_option("NAME", name,
                 "countdown: a game with a calculator and three answers; python: a tool that runs "
                 "code in the sandbox.")
      ->required();
  if (!cli::try_parse(app, arguments)) return 0;
  const std::unique_ptr<environment::Embedded> environment = environment::make_embedded(name);
  environment::serve(*environment, std::cin, std::cout);
  return 0;
}

}  // namespace tlt::apps
