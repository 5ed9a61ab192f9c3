// tlt options: the options of a recipe, as text, as docs/options.md, or as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "base/check.h"
#include "cli/recipe.h"
#include "run/run_options.h"

namespace tlt::apps {
namespace {

constexpr const char* kIntroduction =
    R"(# Options

Every option of `tlt train`, `tlt sft`, `tlt dpo` and `tlt draft`, with its default. `tlt options
NAME` prints those whose name begins with NAME or contains it. Names are verl's where verl has the
option, without its prefix `actor_rollout_ref.` ([coming_from_verl.md](coming_from_verl.md) lists
what differs).

In a recipe the sections are TOML tables; on the command line an option is `rollout.n=8`. *affects*
says what another value may change: *results* (tokens, losses, weights), only *speed* (time and
memory), or only *place* (paths, names and logging).

)";

// Options whose name begins with the filter or, if there are none, contains it.
std::vector<OptionRef> matching(const std::vector<OptionRef>& refs, const std::string& filter) {
  const std::string name(without_verl_prefix(filter));
  std::vector<OptionRef> begin, contain;
  for (const OptionRef& ref : refs) {
    if (ref.name.starts_with(name)) begin.push_back(ref);
    if (ref.name.find(name) != std::string::npos) contain.push_back(ref);
  }
  std::vector<OptionRef> found = begin.empty() ? contain : begin;
  if (!found.empty()) return found;
  std::string advice = cli::option_hint(name);
  if (const std::string near = nearest_option(refs, name); advice.empty() && !near.empty())
    advice = "did you mean " + near + "?";
  throw InputError("no option's name contains '" + filter + "'; " +
                   (advice.empty() ? "tlt options lists all of them" : advice));
}

std::string to_lines(const std::vector<OptionRef>& refs) {
  std::string text;
  for (const OptionRef& ref : refs)
    text += fmt::format("{} = {}  [{}]\n    {}\n", ref.name, to_text(ref.value),
                        to_string(ref.affects), ref.help);
  return text;
}

nlohmann::ordered_json value_of(const OptionValue& value) {
  return std::visit([](const auto* pointer) -> nlohmann::ordered_json { return *pointer; }, value);
}

std::string to_json(const std::vector<OptionRef>& refs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OptionRef& ref : refs)
    list.push_back({{"name", ref.name},
                    {"default", value_of(ref.value)},
                    {"affects", to_string(ref.affects)},
                    {"help", ref.help}});
  return list.dump(2) + "\n";
}

}  // namespace

int run_options(const cli::Arguments& arguments) {
  std::string filter;
  bool is_json = false, is_markdown = false;
  CLI::App app("The options of a recipe with their defaults, what they affect and what they mean.");
  app.add_option("FILTER", filter, "Beginning or part of a name: rollout.n, temperature.");
  app.add_flag("--json", is_json, "A JSON list of objects: name, default, affects, help.");
  app.add_flag("--markdown", is_markdown, "The page docs/options.md.")->excludes("--json");
  if (!cli::try_parse(app, arguments)) return 0;
  run::RunOptions options;
  const std::vector<OptionRef> refs = matching(collect_options(options), filter);
  const std::string page = is_json       ? to_json(refs)
                           : is_markdown ? kIntroduction + to_markdown(refs)
                                         : to_lines(refs);
  fmt::print("{}", page);
  return 0;
}

}  // namespace tlt::apps
