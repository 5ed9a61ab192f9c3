// Shell completion of the program: scripts for bash, zsh and fish that have its commands, flags and
// options of a recipe as tables, so completing starts no program.
//
// Not here   where the tables come from (command_page.h, base/options.h).
// Threading  any.
//
//   fmt::print("{}", completion_script("bash", pages_of(kCommands, "tlt"), collect_options(options)));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/options.h"
#include "cli/command_page.h"

namespace tlt::cli {

inline constexpr std::array<std::string_view, 3> kShells = {"bash", "zsh", "fish"};

// REQUIRES: `shell` is one of kShells.
std::string completion_script(std::string_view shell, std::span<const CommandPage> pages,
                              std::span<const OptionRef> options);

}  // namespace tlt::cli
