// SPDX-License-Identifier: Apache-2.0
#include "cli/man_page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace tlt::cli {
namespace {

constexpr const char* kBeginning = R"(.TH TLT 1 "" "tlt @VERSION@" "User Commands"
.nh
.SH NAME
tlt \- reinforcement learning of language models with speculative decoding
.SH SYNOPSIS
.B tlt
.I COMMAND
.RI [ ARGUMENT " ...]"
.br
.B tlt \-\-version
.SH DESCRIPTION
tlt trains language models by reinforcement learning and makes the rollouts faster by speculative
decoding. Each command has a page of its own:
.B tlt
.I COMMAND
.BR \-\-help .
)";

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
0
Finished.
.TP
1
Any error that is not below.
.TP
2
A mistake in what was typed or in a file; the message says what to type instead.
.TP
3
Another worker was lost; the same command resumes.
.TP
130, 143
Interrupted by SIGINT or SIGTERM; the same command resumes.
.SH ENVIRONMENT
.TP
.BR RANK ", " WORLD_SIZE ", " MASTER_ADDR ", " MASTER_PORT
Set by a launcher of several workers.
.TP
.BR TLT_JOB_SECRET ", " TLT_PORT_RANGE
The secret of the workers of a run, and the ports they use.
.TP
.BR HF_HUB_CACHE ", " HF_HOME
Where models of the Hugging Face cache are.
.TP
.B TLT_CPU_CAPABILITY
Selects the kernels: avx512bf16, avx512 or avx2.
)";

// A character that is a command of the formatter, or looks like another sign in its output.
std::string_view escape_of(char character) {
  switch (character) {
    case '\\':
      return "\\e";
    case '-':
      return "\\-";
    case '\'':
      return "\\(aq";
    case '`':
      return "\\(ga";
    case '^':
      return "\\(ha";
    case '~':
      return "\\(ti";
    default:
      return "";
  }
}

// Text of a paragraph: no character of it is a command of the formatter. REQUIRES: valid UTF-8.
std::string escaped(std::string_view text) {
  std::string page;
  if (text.starts_with('.')) page = "\\&";  // a dot at the beginning of a line is a command
  while (!text.empty()) {
    const std::string_view character = text.substr(0, next_utf8(text).bytes);
    const std::string_view escape = escape_of(character.front());
    if (character.size() > 1)
      page += fmt::format("\\[u{:04X}]", static_cast<uint32_t>(code_point(character)));
    else
      page += escape.empty() ? character : escape;
    text.remove_prefix(character.size());
  }
  return page;
}

std::string flag_entry(const FlagPage& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back("\\fB" + escaped(name) + "\\fR");
  const std::string value = flag.value.empty() ? "" : " \\fI" + escaped(flag.value) + "\\fR";
  return fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "), value, escaped(flag.help));
}

std::string command_section(const CommandPage& page) {
  std::string text = fmt::format(".SS {}\n", escaped(page.command));
  text += escaped(page.description.empty() ? page.summary : page.description) + "\n";
  for (const FlagPage& argument : page.arguments)
    text += fmt::format(".TP\n\\fI{}\\fR\n{}\n", escaped(argument.names.front()),
                        escaped(argument.help));
  for (const FlagPage& flag : page.flags)
    if (flag.names.back() != "--help") text += flag_entry(flag);
  return text;
}

}  // namespace

std::string man_page(std::string_view version, std::span<const CommandPage> pages,
                     std::span<const OptionRef> options) {
  std::string text = kBeginning;
  constexpr std::string_view kMark = "@VERSION@";
  text.replace(text.find(kMark), kMark.size(), version);
  text += ".SH COMMANDS\n";
  for (const CommandPage& page : pages)
    if (!page.description.empty()) text += command_section(page);
  text +=
      ".SH OPTIONS OF A RECIPE\nA recipe is a TOML file; \\fIKEY=VALUE\\fR overrides an option.\n";
  for (const OptionRef& option : options)
    text += fmt::format(".TP\n\\fB{}\\fR = {}\n{} Affects {}.\n", escaped(option.name),
                        escaped(to_text(option.value)), escaped(option.help),
                        to_string(option.affects));
  return text + kEnd;
}

}  // namespace tlt::cli
