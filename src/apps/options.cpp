// tlt options: every option of a recipe, as a page in Markdown.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "rl/run_options.h"

namespace tlt::apps {

int run_options(const Arguments& arguments) {
  CLI::App app("Every option of a recipe with its default, what it may change, and what it is.");
  if (!try_parse(app, arguments)) return 0;
  rl::RunOptions options;
  fmt::print("{}", to_markdown(collect_options(options)));
  return 0;
}

}  // namespace tlt::apps
