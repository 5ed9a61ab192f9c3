// Command: a subcommand's name and what it runs; Arguments: the words it is given.
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

namespace CLI {
class App;
}

namespace tlt::apps {

struct Arguments {
  std::string command;             // "tlt bench decode": what was typed before the words
  std::vector<std::string> words;  // what follows it
  std::vector<std::string> all;    // argv: workers are started with the same
};

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);  // the exit code
};

// Runs the command that the first word names. InputError names the known ones.
int run_command(std::span<const Command> commands, const Arguments& arguments);

// "tlt generate: unknown option --sample; …" without what comes before the colon. False: --help was
// asked for and printed. Throws InputError for what CLI11 does not accept.
[[nodiscard]] bool try_parse(CLI::App& flags, const Arguments& arguments);

// The whole command as it can be pasted into a shell, with `word` unless it is among its words.
std::string shell_command(const Arguments& arguments, const std::string& word);

// The known word with the fewest typing errors between it and `word`; empty when none is near.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace tlt::apps
