// Command: a subcommand's name and function; Arguments: its command line.
//
//   int run_generate(const Arguments& arguments) {
//     CLI::App flags("Turns prompts into responses.");
//     flags.add_option("--samples", samples, "Responses per prompt.");
//     if (!try_parse(flags, arguments)) return 0;      // --help was printed
//     …
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}

namespace tlt::cli {

struct CommandPage;  // command_page.h

struct Arguments {
  std::string command;             // "tlt bench decode"
  std::vector<std::string> words;  // the words after it
  std::vector<std::string> all;    // argv, to start workers with
  // Set by pages_of() alone: the command adds its page here and does nothing else.
  std::vector<CommandPage>* pages = nullptr;
};

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);  // the exit code
};

// Runs the command named by the first word. InputError lists the known commands.
int run_command(std::span<const Command> commands, const Arguments& arguments);

// Parses the words into the flags. False: --help was printed, or the page was added. InputError: CLI11 refuses the words;
// the message does not begin with the command's name.
[[nodiscard]] bool try_parse(CLI::App& flags, const Arguments& arguments);

// The whole command, quoted for a shell, with `word` appended unless it is already there.
std::string shell_command(const Arguments& arguments, const std::string& word);

// The known word with the smallest edit distance to `word`; empty if none is near.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace tlt::cli
