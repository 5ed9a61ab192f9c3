// CommandPage: what --help says of a command, as data; for shell completion and the man page.
//
// Owns       nothing of the command: it is a copy of the texts.
// Not here   the scripts (completion.h) and the manual (man_page.h) made of it.
// Threading  any.
//
//   for (const CommandPage& page : pages_of(kCommands, "tlt")) …    // "tlt train", "tlt bench decode"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tlt::cli {

// A flag or an argument of a command.
struct FlagPage {
  std::vector<std::string> names = {};  // "-h", "--help"; of an argument its one word
  std::string value = {};               // placeholder of the value; empty: a flag without one
  std::string help = {};
  std::vector<std::string> choices = {};  // empty: any value
};

struct CommandPage {
  std::string command;           // "tlt bench decode"
  std::string summary = {};      // in the table of its parent
  std::string description = {};  // of its own page; empty: it has commands below it instead
  std::vector<FlagPage> arguments = {}, flags = {};
};

// The pages of all commands and of those below them, each after its parent.
std::vector<CommandPage> pages_of(std::span<const Command> commands, const std::string& program);

}  // namespace tlt::cli
