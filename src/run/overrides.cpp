// SPDX-License-Identifier: Apache-2.0
#include "run/overrides.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/toml_limits.h"

namespace tlt::run {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = 4 << 20;

// Of the options that affect results, those that may change: the optimizer, coefficients of the
// loss, and limits. A name that ends with a dot stands for its group; kMayNotChange takes precedence.
constexpr auto kMayChange = std::to_array<std::string_view>(
    {"actor.optim.", "actor.clip_ratio_low", "actor.clip_ratio_high", "actor.clip_ratio_c",
     "actor.kl_loss_coef", "actor.entropy_coeff", "critic.optim.", "critic.cliprange_value",
     "algorithm.kl_ctrl.kl_coef", "algorithm.filter_groups.max_num_gen_batches",
     "algorithm.rollout_correction.rollout_is_threshold", "reward.timeout_seconds",
     "speculative.train.optim.", "trainer.total_training_steps", "trainer.total_epochs"});
// Of these and of options that do not affect results, those that may not: where the run and its
// model are, and what its checkpoints have.
constexpr auto kMayNotChange = std::to_array<std::string_view>(
    {"actor.optim.optimizer", "model.path", "model.lora_adapter_path",
     "speculative.eagle.spec_model_path", "speculative.train.hidden_states_dir",
     "trainer.project_name", "trainer.experiment_name", "trainer.default_local_dir",
     "trainer.resume_mode"});

toml::table parse(std::string_view text, const std::string& place) {
  check_toml_limits(text, place);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format(
        "{}:{}: not TOML: {}; restore the file, or remove it to resume without the overrides in it",
        place, error.source().begin.line, error.description()));
  }
}

std::string text_of(const toml::node_view<const toml::node>& node) {
  if (!node) return "";
  std::ostringstream text;
  text << toml::toml_formatter(*node.node(), toml::format_flags::none);
  return text.str();
}

std::vector<Override> history_of(const toml::table& table, const std::string& location) {
  std::vector<Override> history;
  const toml::array* list = table[kHistoryTable].as_array();
  if (!list) return history;
  for (const toml::node& node : *list) {
    const toml::table* one = node.as_table();
    TLT_CHECK_INPUT(one, location, ": ", kHistoryTable, " is no list of tables; remove it");
    Override change{.step = (*one)["step"].value_or(Override::kNew),
                    .name = (*one)["name"].value_or(std::string()),
                    .before = text_of((*one)["before"]),
                    .value = text_of((*one)["value"])};
    TLT_CHECK_INPUT(
        change.step >= 0 && !change.name.empty() && !change.before.empty() && !change.value.empty(),
        location, ": [[", kHistoryTable, "]] number ", history.size() + 1,
        " lacks step, name, before or value; give it these, or remove it");
    history.push_back(std::move(change));
  }
  return history;
}

// Sets an option from a value as TOML, and returns it as to_text() writes it.
std::string set(const std::vector<OptionRef>& refs, const std::string& name,
                const std::string& value, const std::string& location) {
  const auto option = std::ranges::find(refs, name, &OptionRef::name);
  TLT_CHECK_INPUT(option != refs.end(), location, ": unknown option: ", name, "; remove its [[",
                  kHistoryTable, "]]");
  tlt::apply_override(refs, name + "=" + value);
  return to_text(option->value);
}

// Follows the history, oldest change first: an option that has the value from before gets the new
// one, and any other value stays.
void apply_history(const std::vector<OptionRef>& refs, std::vector<Override>& history,
                   const std::string& location) {
  for (Override& change : history) {
    const auto option = std::ranges::find(refs, change.name, &OptionRef::name);
    const std::string given = option == refs.end() ? "" : to_text(option->value);
    change.before = set(refs, change.name, change.before, location);
    change.value = set(refs, change.name, change.value, location);
    if (given != change.before) set(refs, change.name, given, location);
  }
}

// "name = value" by line, as options_digest(), of all options.
std::map<std::string, std::string> values_of(const std::vector<OptionRef>& refs) {
  std::map<std::string, std::string> values;
  for (const OptionRef& ref : refs) values[ref.name] = to_text(ref.value);
  return values;
}

}  // namespace

bool may_override(const OptionRef& option) {
  const auto is_named = [&](std::string_view name) {
    return option.name == name || (name.ends_with('.') && option.name.starts_with(name));
  };
  return std::ranges::none_of(kMayNotChange, is_named) &&
         (option.affects != Affects::kResults || std::ranges::any_of(kMayChange, is_named));
}

std::vector<Override> apply_overrides(const std::vector<OptionRef>& refs, const std::string& folder,
                                      const std::vector<std::string>& texts, const NameHint& hint) {
  const std::string path = folder + "/options.toml";
  const bool has_run = fs::exists(folder + "/run.json") && fs::exists(path);
  TLT_CHECK_INPUT(has_run || texts.empty(), "--override ", texts.front(), ": ", folder,
                  " has no run to resume; give ", texts.front(), " without --override");
  if (!has_run) return {};
  const toml::table saved = parse(read_file(path, kMaxFileBytes), path);
  std::vector<Override> history = history_of(saved, path);
  apply_history(refs, history, path);
  std::map<std::string, std::string> before = values_of(refs);
  for (const std::string& text : texts) {
    const std::string name = tlt::apply_override(refs, text, hint);
    const auto option = std::ranges::find(refs, name, &OptionRef::name);
    TLT_CHECK_INPUT(option != refs.end() && may_override(*option), "--override ", text, ": ", name,
                    " says what the run is and cannot change within it; give it without "
                    "--override, with another trainer.experiment_name");
    const std::string value = to_text(option->value);
    // The recipe may have been changed as well: the run's own value is that of its folder.
    const bool is_changed = std::ranges::any_of(history, [&](const Override& change) {
      return change.step == Override::kNew && change.name == name;
    });
    if (const std::string its = text_of(saved.at_path(name)); !is_changed && !its.empty())
      before[name] = set(refs, name, its, path);
    set(refs, name, value, path);
    if (value == before[name]) continue;
    history.push_back({.name = name, .before = std::exchange(before[name], value), .value = value});
  }
  return history;
}

std::string to_toml(const std::vector<Override>& history) {
  if (history.empty()) return "";
  std::string text =
      "\n# Changes by --override: the step after which each took effect. The values\n"
      "# above are those in effect.\n";
  for (const Override& change : history)
    text += fmt::format("[[{}]]\nstep = {}\nname = \"{}\"\nbefore = {}\nvalue = {}\n",
                        kHistoryTable, change.step, change.name, change.before, change.value);
  return text;
}

std::string with_overrides(std::string_view digest, const std::vector<Override>& history) {
  std::map<std::string_view, std::string_view> newest;
  for (const Override& change : history) newest[change.name] = change.value;
  std::string text;
  while (!digest.empty()) {
    const std::string_view line = digest.substr(0, digest.find('\n'));
    digest.remove_prefix(std::min(line.size() + 1, digest.size()));
    const std::string_view name = line.substr(0, line.find(" = "));
    const auto found = newest.find(name);
    text += found == newest.end() ? fmt::format("{}\n", line)
                                  : fmt::format("{} = {}\n", name, found->second);
  }
  return text;
}

}  // namespace tlt::run
