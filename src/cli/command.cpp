// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>

#include "base/check.h"
#include "base/sentence.h"
#include "cli/command_page.h"

namespace tlt::cli {
namespace {

std::vector<std::string> names_of(std::span<const Command> commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.emplace_back(command.name);
  return names;
}

std::string page_of(std::span<const Command> commands, const Arguments& arguments) {
  std::string page = fmt::format("Usage: {} COMMAND …\n\n", arguments.command);
  for (const Command& command : commands)
    page += fmt::format("  {:<10} {}\n", command.name, command.summary);
  return page + fmt::format("\n{} COMMAND --help describes each command.\n", arguments.command);
}

std::string unknown_word(const CLI::App& flags, const Arguments& arguments) {
  const std::string word = flags.remaining().empty() ? "" : flags.remaining().front();
  if (!word.starts_with("-"))
    return fmt::format("unexpected argument '{}'; see {} --help", word, arguments.command);
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : flags.get_options())
    known.push_back("--" + option->get_single_name());
  const std::string near = nearest(name, known);
  return fmt::format("unknown option {}; {}", name,
                     near.empty() ? arguments.command + " --help lists the options"
                                  : "did you mean " + near + "?");
}

// The placeholder of the value. CLI11 appends a validator's description to the type.
std::string value_word(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string word = type.substr(0, type.find(':'));
  const bool is_many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  if (word == "INT" || word == "UINT" || word == "FLOAT") return is_many ? "N,N,…" : "N";
  if (word == "TEXT") return is_many ? "VALUE,…" : "VALUE";
  return word;
}

std::string description_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_positional() && option.get_required()) text += " (required)";
  if (!option.get_default_str().empty()) text += " (default: " + option.get_default_str() + ")";
  return text;
}

// Formats --help without CLI11's type names, validators and REQUIRED.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { label("Positionals", "Arguments"); }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = "  " + make_option_name(option, is_positional);
    if (!is_positional && option->get_type_size() != 0) name += " " + value_word(*option);
    name += name.size() + 2 <= kColumn ? std::string(kColumn - name.size(), ' ')
                                       : "\n" + std::string(kColumn, ' ');
    return name + wrapped(description_of(*option), kColumn) + "\n";
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0) + "\n";
  }

 private:
  static constexpr size_t kColumn = 28, kLine = 100;

  // Wraps the text into lines that begin at this column; the first line has begun already.
  static std::string wrapped(const std::string& text, size_t column) {
    std::string lines;
    size_t width = column;
    for (const std::string& word : words_of(text)) {
      if (width > column && width + 1 + characters(word) > kLine) {
        lines += "\n" + std::string(column, ' ');
        width = column;
      }
      if (width > column) lines += " ", ++width;
      lines += word;
      width += characters(word);
    }
    return lines;
  }

  static std::vector<std::string> words_of(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
  }

  // Characters of UTF-8: all bytes but continuation bytes.
  static size_t characters(const std::string& text) {
    return static_cast<size_t>(std::ranges::count_if(
        text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
  }
};

// Rewrites CLI11's message "Could not convert: --samples = two".
std::string wrong_type(const CLI::App& flags, std::string text) {
  constexpr std::string_view kBefore = "Could not convert: ";
  if (text.starts_with(kBefore)) text.erase(0, kBefore.size());
  const size_t equals = text.find(" = ");
  if (equals == std::string::npos) return text;
  const std::string name = text.substr(0, equals);
  const CLI::Option* option = flags.get_option_no_throw(name);
  const std::string type = option ? option->get_type_name() : "";
  const char* accepted = type.find("INT") != std::string::npos     ? "an integer"
                         : type.find("FLOAT") != std::string::npos ? "a number"
                                                                   : "another value";
  return fmt::format("{} is '{}'; give {}", name, text.substr(equals + 3), accepted);
}

// The words that a validator CLI::IsMember accepts: its description is "{bash,zsh}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find(":{"), end = type.rfind('}');
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos) return choices;
  std::istringstream words(type.substr(begin + 2, end - begin - 2));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

void add_to_page(const CLI::App& flags, CommandPage& page) {
  page.description = flags.get_description();
  for (const CLI::Option* option : flags.get_options()) {
    if (option->get_positional()) {
      page.arguments.push_back({.names = {option->get_name(/*positional=*/true)},
                                .help = description_of(*option),
                                .choices = choices_of(*option)});
      continue;
    }
    FlagPage flag{.help = description_of(*option), .choices = choices_of(*option)};
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    if (option->get_type_size() != 0) flag.value = value_word(*option);
    page.flags.push_back(std::move(flag));
  }
}

int add_pages(std::span<const Command> commands, const Arguments& arguments) {
  for (const Command& command : commands) {
    const std::string name = arguments.command + " " + std::string(command.name);
    arguments.pages->push_back({.command = name, .summary = std::string(command.summary)});
    command.run({name, {"--help"}, {}, arguments.pages});
  }
  return 0;
}

}  // namespace

std::vector<CommandPage> pages_of(std::span<const Command> commands, const std::string& program) {
  std::vector<CommandPage> pages;
  run_command(commands, {program, {}, {}, &pages});
  return pages;
}

std::string shell_command(const Arguments& arguments, const std::string& word) {
  std::vector<std::string> words;
  for (const std::string& one : arguments.all) words.push_back(shell_word(one));
  if (std::ranges::find(arguments.words, word) == arguments.words.end()) words.push_back(word);
  return fmt::format("{}", fmt::join(words, " "));
}

std::string nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  size_t fewest = word.size() / 3 + 2;  // more edits: another word
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < fewest) fewest = distance, best = candidate;
  }
  return best;
}

int run_command(std::span<const Command> commands, const Arguments& arguments) {
  if (arguments.pages != nullptr) return add_pages(commands, arguments);
  const std::vector<std::string> names = names_of(commands);
  TLT_CHECK_INPUT(!arguments.words.empty(), "no command; use one of ",
                  fmt::format("{}", fmt::join(names, ", ")));
  const std::string& word = arguments.words.front();
  if (word == "--help" || word == "-h" || word == "help") {
    fmt::print("{}", page_of(commands, arguments));
    return 0;
  }
  for (const Command& command : commands)
    if (command.name == word)
      return command.run({arguments.command + " " + word,
                          {arguments.words.begin() + 1, arguments.words.end()},
                          arguments.all});
  const std::string near = nearest(word, names);
  throw InputError(fmt::format("unknown command '{}'; {}use one of {}", word,
                               near.empty() ? "" : fmt::format("did you mean {}? ", near),
                               fmt::join(names, ", ")));
}

bool try_parse(CLI::App& flags, const Arguments& arguments) {
  flags.name(arguments.command);
  flags.set_help_flag("-h,--help", "Print this page.");
  flags.formatter(std::make_shared<HelpFormatter>());
  if (arguments.pages != nullptr) {
    add_to_page(flags, arguments.pages->back());
    return false;
  }
  try {
    flags.parse(std::vector<std::string>(arguments.words.rbegin(), arguments.words.rend()));
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", flags.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    throw InputError(unknown_word(flags, arguments));
  } catch (const CLI::ConversionError& error) {
    throw InputError(wrong_type(flags, error.what()));
  } catch (const CLI::ParseError& error) {
    throw InputError(fmt::format("{}; see {} --help", error.what(), arguments.command));
  }
}

}  // namespace tlt::cli
