// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <variant>
#include <vector>

#include "base/check.h"

namespace tlt::cli {
namespace {

// What follows a flag or stands for an argument. The scripts know these words:
//   none, file, words:A B …, option (a recipe's option), recipe (a TOML file or an option), rows (a
//   file or an option)
std::string kind_of(const FlagPage& page, const std::string& placeholder) {
  if (!page.choices.empty()) return fmt::format("words:{}", fmt::join(page.choices, " "));
  if (placeholder == "KEY=VALUE" || placeholder == "FILTER") return "option";
  const bool is_number =
      placeholder.starts_with("N") && placeholder.find("VALUE") == placeholder.npos;
  return is_number || placeholder == "SIZE" || placeholder == "OPTION=VALUE" ? "none" : "file";
}

std::string kind_of_arguments(const CommandPage& page) {
  if (page.arguments.empty()) return "none";
  const std::string& first = page.arguments.front().names.front();
  const bool has_options = page.arguments.back().names.front() == "KEY=VALUE";
  if (first == "RECIPE") return "recipe";
  return has_options ? "rows" : kind_of(page.arguments.front(), first);
}

std::string kind_of(const OptionRef& option) {
  if (std::holds_alternative<bool*>(option.value)) return "words:true false";
  const bool is_text = std::holds_alternative<std::string*>(option.value) ||
                       std::holds_alternative<std::vector<std::string>*>(option.value);
  return is_text ? "file" : "none";
}

// In single quotes, for a POSIX shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

// In single quotes, for fish.
std::string fish_quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') word += '\\';
    word += c;
  }
  return word + "'";
}

// "name:help" of zsh's _describe.
std::string described(const std::string& name, const std::string& help) {
  std::string text;
  for (const char c : name) text += c == ':' ? "\\:" : std::string(1, c);
  return quoted(text + ":" + help);
}

bool is_child(const CommandPage& page, const std::string& parent) {
  return page.command.starts_with(parent + " ") &&
         page.command.find(' ', parent.size() + 1) == std::string::npos;
}

std::string last_word(const CommandPage& page) {
  return page.command.substr(page.command.rfind(' ') + 1);
}

// "tlt", and the commands that have commands below them.
std::vector<std::string> parents_of(std::span<const CommandPage> pages) {
  std::vector<std::string> parents = {
      pages.front().command.substr(0, pages.front().command.find(' '))};
  for (const CommandPage& page : pages)
    if (page.description.empty()) parents.push_back(page.command);
  return parents;
}

// A function of bash and zsh: a `case` of its first words that prints or sets something. Keys with the
// same body share a line.
class CaseFunction {
 public:
  CaseFunction(std::string name, std::string comment, std::string selector)
      : head_(fmt::format("{}() {{  # {}\n  case {} in\n", name, comment, selector)) {}

  void add(const std::string& key, const std::string& body) {
    auto [entry, is_new] = keys_.try_emplace(body);
    if (is_new) bodies_.push_back(body);
    entry->second.push_back(quoted(key));
  }
  std::string text() const {
    std::string text = head_;
    for (const std::string& body : bodies_)
      text += fmt::format("    {}) {} ;;\n", fmt::join(keys_.at(body), "|"), body);
    return text + "  esac\n}\n";
  }

 private:
  std::string head_;
  std::map<std::string, std::vector<std::string>> keys_;
  std::vector<std::string> bodies_;
};

std::string echo(const std::string& text) { return "echo " + quoted(text); }

std::string names_of(std::span<const OptionRef> options) {
  std::vector<std::string> names;
  for (const OptionRef& option : options) names.push_back(option.name + "=");
  return fmt::format("{}", fmt::join(names, " "));
}

std::string sections_of(std::span<const OptionRef> options) {
  std::vector<std::string> sections;
  for (const OptionRef& option : options) {
    const std::string section = option.name.substr(0, option.name.find('.') + 1);
    if (std::ranges::find(sections, section) == sections.end()) sections.push_back(section);
  }
  return fmt::format("{}", fmt::join(sections, " "));
}

// The tables that bash and zsh share.
std::string shared_tables(std::span<const CommandPage> pages, std::span<const OptionRef> options) {
  CaseFunction values("_tlt_value", "COMMAND FLAG: what follows it", "\"$1 $2\"");
  CaseFunction arguments("_tlt_argument", "COMMAND: what its arguments are", "$1");
  for (const CommandPage& page : pages) {
    if (page.description.empty()) continue;
    arguments.add(page.command, echo(kind_of_arguments(page)));
    for (const FlagPage& flag : page.flags)
      if (!flag.value.empty())
        for (const std::string& name : flag.names)
          values.add(page.command + " " + name, echo(kind_of(flag, flag.value)));
  }
  CaseFunction kinds("_tlt_option_value", "NAME: the values of a recipe's option", "$1");
  for (const OptionRef& option : options) kinds.add(option.name, echo(kind_of(option)));
  return values.text() + arguments.text() + kinds.text() +
         fmt::format("_tlt_options={}\n_tlt_sections={}\n", quoted(names_of(options)),
                     quoted(sections_of(options)));
}

// Flags and commands by a function that makes the body of a list of them.
using Entries = std::vector<std::pair<std::string, std::string>>;  // name, help
std::string list_tables(std::span<const CommandPage> pages,
                        const std::function<std::string(const Entries&)>& body) {
  CaseFunction commands("_tlt_commands", "COMMAND: the commands below it", "$1");
  for (const std::string& parent : parents_of(pages)) {
    Entries entries;
    for (const CommandPage& page : pages)
      if (is_child(page, parent)) entries.emplace_back(last_word(page), page.summary);
    entries.emplace_back("--help", "Print the commands.");
    if (parent == parents_of(pages).front())
      entries.emplace_back("--version", "Print the version.");
    commands.add(parent, body(entries));
  }
  CaseFunction flags("_tlt_flags", "COMMAND: its flags", "$1");
  for (const CommandPage& page : pages) {
    Entries entries;
    for (const FlagPage& flag : page.flags) entries.emplace_back(flag.names.back(), flag.help);
    if (!entries.empty()) flags.add(page.command, body(entries));
  }
  return commands.text() + flags.text();
}

// clang-format off: shell scripts
constexpr const char* kBashFunctions = R"sh(
_tlt_files() {  # _tlt_files WORD [PATTERN]: files and folders
  compopt -o filenames 2>/dev/null
  if [[ -z $2 ]]; then mapfile -t COMPREPLY < <(compgen -f -- "$1"); return; fi
  mapfile -t COMPREPLY < <(compgen -d -- "$1"; compgen -f -X "!$2" -- "$1")
}
_tlt_names() {  # _tlt_names WORDS PREFIX: names that something follows without a space
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
  [[ ${#COMPREPLY[@]} -gt 0 ]] && compopt -o nospace 2>/dev/null
}
_tlt_complete() {  # _tlt_complete KIND WORD
  local word=$2 name
  case $1 in
    words:*) mapfile -t COMPREPLY < <(compgen -W "${1#words:}" -- "$word") ;;
    file) _tlt_files "$word" ;;
    option|recipe|rows)
      if [[ $word == *=* ]]; then
        name=${word%%=*}
        _tlt_complete "$(_tlt_option_value "$name")" "${word#*=}"
        [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$name=}")
        return
      fi
      [[ $word == *.* || $1 == option ]] && _tlt_names "$_tlt_options" "$word"
      case ${#COMPREPLY[@]}$1 in
        0recipe) _tlt_files "$word" '*.toml' ;;
        0rows) _tlt_files "$word" ;;
      esac
      [[ ${#COMPREPLY[@]} -gt 0 ]] || _tlt_names "$_tlt_sections" "$word" ;;
  esac
}
_tlt() {
  local line=${COMP_LINE:0:COMP_POINT} command=tlt words=() i kind flag entries
  read -a words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  COMPREPLY=()
  local last=$((${#words[@]} - 1))
  for ((i = 1; i < last; i++)); do
    [[ " $(_tlt_commands "$command") " == *" ${words[i]} "* ]] || break
    command+=" ${words[i]}"
  done
  local word=${words[last]}
  entries=$(_tlt_commands "$command")
  if [[ -n $entries ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$entries" -- "$word")
  elif [[ $word == --*=* ]]; then
    flag=${word%%=*}
    _tlt_complete "$(_tlt_value "$command" "$flag")" "${word#*=}"
    [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$flag=}")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_tlt_flags "$command")" -- "$word")
  else
    kind=$(_tlt_value "$command" "${words[last - 1]}")
    _tlt_complete "${kind:-$(_tlt_argument "$command")}" "$word"
  fi
}
complete -F _tlt tlt
)sh";

constexpr const char* kZshFunctions = R"sh(
_tlt_complete() {  # _tlt_complete KIND
  local name
  case $1 in
    words:*) compadd -- ${=1#words:} ;;
    file) _files ;;
    option|recipe|rows)
      if [[ $PREFIX == *=* ]]; then
        name=${PREFIX%%=*}
        compset -P '*='
        _tlt_complete "$(_tlt_option_value $name)"
        return
      fi
      if [[ $PREFIX == *.* || $1 == option ]]; then
        compadd -S '' -- ${=_tlt_options} && return
      fi
      case $1 in
        recipe) _files -g '*.toml' && return ;;
        rows) _files && return ;;
      esac
      compadd -S '' -- ${=_tlt_sections} ;;
  esac
}
_tlt() {
  local command=tlt kind i
  local -a entries
  for ((i = 2; i < CURRENT; i++)); do
    entries=()
    _tlt_commands "$command"
    ((${entries[(I)${words[i]}:*]})) || break
    command+=" ${words[i]}"
  done
  entries=()
  _tlt_commands "$command"
  if (($#entries)); then
    _describe command entries
  elif [[ $PREFIX == --*=* ]]; then
    kind=$(_tlt_value "$command" "${PREFIX%%=*}")
    compset -P '*='
    _tlt_complete "$kind"
  elif [[ $PREFIX == -* ]]; then
    _tlt_flags "$command"
    _describe -o flag entries
  else
    kind=$(_tlt_value "$command" "${words[CURRENT - 1]}")
    _tlt_complete "${kind:-$(_tlt_argument "$command")}"
  fi
}
if [[ $funcstack[1] == _tlt ]]; then _tlt "$@"; else compdef _tlt tlt; fi
)sh";

constexpr const char* kFishFunctions = R"sh(
function __tlt_command  # the command before the cursor: tlt bench decode
    set -l command tlt
    for word in (commandline -opc)[2..]
        contains -- $word (__tlt_commands "$command"); or break
        set command "$command $word"
    end
    echo $command
end
function __tlt_is
    test (__tlt_command) = "$argv"
end
function __tlt_recipe_options
    set -l word (commandline -ct)
    if string match -q '*=*' -- $word
        set -l name (string split -m 1 = -- $word)[1]
        contains -- $name $__tlt_switches; and printf '%s\n' $name=true $name=false
    else if string match -q '*.*' -- $word
        printf '%s=\n' $__tlt_options
    else
        printf '%s\n' $__tlt_sections
    end
end
)sh";
// clang-format on

std::string bash_script(std::span<const CommandPage> pages, std::span<const OptionRef> options) {
  const auto body = [](const Entries& entries) {
    std::vector<std::string> names;
    for (const auto& entry : entries) names.push_back(entry.first);
    return echo(fmt::format("{}", fmt::join(names, " ")));
  };
  return "# Completion of tlt in bash; to load it:  source <(tlt completion bash)\n" +
         list_tables(pages, body) + shared_tables(pages, options) + kBashFunctions;
}

std::string zsh_script(std::span<const CommandPage> pages, std::span<const OptionRef> options) {
  const auto body = [](const Entries& entries) {
    std::vector<std::string> words;
    for (const auto& entry : entries) words.push_back(described(entry.first, entry.second));
    return fmt::format("entries=({})", fmt::join(words, " "));
  };
  return "#compdef tlt\n# Completion of tlt in zsh; to load it:  source <(tlt completion "
         "zsh)\n" +
         list_tables(pages, body) + shared_tables(pages, options) + kZshFunctions;
}

// One `complete` of fish for a flag.
std::string fish_flag(const std::string& command, const FlagPage& flag) {
  std::string line = fmt::format("complete -c tlt -n {}", fish_quoted("__tlt_is " + command));
  for (const std::string& name : flag.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!flag.value.empty()) {
    const std::string kind = kind_of(flag, flag.value);
    line += kind == "file" ? " -r" : " -x";
    if (kind.starts_with("words:")) line += " -a " + fish_quoted(kind.substr(6));
    if (kind == "option") line += " -a '(__tlt_recipe_options)'";
  }
  return line + " -d " + fish_quoted(flag.help) + "\n";
}

std::string fish_arguments(const CommandPage& page) {
  const std::string kind = kind_of_arguments(page);
  const std::string begin =
      fmt::format("complete -c tlt -n {}", fish_quoted("__tlt_is " + page.command));
  if (kind == "none") return begin + " -f\n";
  if (kind.starts_with("words:")) return begin + " -f -a " + fish_quoted(kind.substr(6)) + "\n";
  if (kind == "file") return "";
  return begin + (kind == "option" ? " -f" : "") + " -a '(__tlt_recipe_options)'\n";
}

std::string fish_commands(std::span<const CommandPage> pages) {
  std::string table =
      "function __tlt_commands  # COMMAND: the commands below it\n    switch \"$argv\"\n";
  std::string lines;
  for (const std::string& parent : parents_of(pages)) {
    std::string names;
    for (const CommandPage& page : pages) {
      if (!is_child(page, parent)) continue;
      names += " " + last_word(page);
      lines +=
          fmt::format("complete -c tlt -f -n {} -a {} -d {}\n", fish_quoted("__tlt_is " + parent),
                      last_word(page), fish_quoted(page.summary));
    }
    table +=
        fmt::format("        case {}\n            printf '%s\\n'{}\n", fish_quoted(parent), names);
  }
  return table + "    end\nend\n" + kFishFunctions + lines;
}

std::string fish_script(std::span<const CommandPage> pages, std::span<const OptionRef> options) {
  std::string names, switches;
  for (const OptionRef& option : options) {
    names += " " + option.name;
    if (std::holds_alternative<bool*>(option.value)) switches += " " + option.name;
  }
  std::string text = "# Completion of tlt in fish; to load it:  tlt completion fish | source\n";
  text += fmt::format("set -g __tlt_options{}\nset -g __tlt_switches{}\nset -g __tlt_sections {}\n",
                      names, switches, sections_of(options));
  text += fish_commands(pages);
  text += "complete -c tlt -n '__tlt_is tlt' -l version -d 'Print the version.'\n";
  for (const CommandPage& page : pages) {
    if (page.description.empty()) continue;
    text += fish_arguments(page);
    for (const FlagPage& flag : page.flags) text += fish_flag(page.command, flag);
  }
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, std::span<const CommandPage> pages,
                              std::span<const OptionRef> options) {
  if (shell == "bash") return bash_script(pages, options);
  if (shell == "zsh") return zsh_script(pages, options);
  TLT_CHECK(shell == "fish", "no completion for ", shell);
  return fish_script(pages, options);
}

}  // namespace tlt::cli
