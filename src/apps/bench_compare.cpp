// tlt bench compare OLD NEW: ratios of two files of results, line by line of the same measurement.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "apps/commands.h"
#include "base/check.h"
#include "base/json_lines.h"

#include <nlohmann/json.hpp>

namespace tlt::apps {
namespace {

using nlohmann::json;

// What says which measurement a line is. All other numbers are measured.
constexpr std::string_view kSettings[] = {
    "bench",   "model",    "dtype",         "device",     "threads", "speculation",
    "drafter", "strategy", "quantity",      "factor",     "size",    "batch",
    "prompts", "samples",  "prompt_tokens", "new_tokens", "width"};
// Numbers that are no results.
constexpr std::string_view kNoResults[] = {"repeat", "packs"};

template <class Names>
bool contains(const Names& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string setting_of(const json& row) {
  std::string text;
  for (const std::string_view name : kSettings) {
    const auto found = row.find(name);
    if (found == row.end()) continue;
    const bool is_word = found->is_string();
    text += (text.empty() ? "" : " ") +
            (is_word ? found->get<std::string>() : fmt::format("{} {}", name, found->dump()));
  }
  return text;
}

struct Results {
  std::string machine, commit;
  std::map<std::string, json> rows;  // by setting; of equal ones the last
};

Results read_results(const std::string& path) {
  JsonLinesReader reader(path);
  Results results;
  for (json row; reader.try_next(row);) {
    const bool is_result = row.is_object() && row.value("bench", json()).is_string() &&
                           row.value("machine", json()).is_string();
    TLT_CHECK_INPUT(is_result, reader.place(),
                    ": not a line of tlt bench; give a file of its output");
    const std::string machine = row["machine"].get<std::string>();
    TLT_CHECK_INPUT(results.rows.empty() || machine == results.machine, reader.place(),
                    ": the machine is '", machine, "' and before it '", results.machine,
                    "'; give a file for each machine");
    results.machine = machine;
    results.commit = row.value("commit", json("unknown")).dump();
    results.rows[setting_of(row)] = row;
  }
  TLT_CHECK_INPUT(!results.rows.empty(), path, ": no results; give a file of tlt bench's output");
  return results;
}

void print_ratios(const std::string& setting, const json& before, const json& after) {
  fmt::print("{}\n", setting);
  for (const auto& [name, value] : after.items()) {
    if (!value.is_number() || contains(kSettings, name) || contains(kNoResults, name)) continue;
    const auto old = before.find(name);
    if (old == before.end() || !old->is_number() || old->get<double>() == 0) continue;
    fmt::print("  {:<32} {:>14.6g} -> {:>14.6g}   x {:.3f}\n", name, old->get<double>(),
               value.get<double>(), value.get<double>() / old->get<double>());
  }
}

}  // namespace

int run_bench_compare(const Arguments& arguments) {
  std::string old_path, new_path;
  CLI::App app("Ratios new / old of two files of results of the same machine.");
  app.add_option("OLD", old_path, "Output of tlt bench.")->required();
  app.add_option("NEW", new_path, "Output of tlt bench.")->required();
  if (!try_parse(app, arguments)) return 0;

  const Results before = read_results(old_path), after = read_results(new_path);
  TLT_CHECK_INPUT(
      before.machine == after.machine, "'", before.machine, "' and '", after.machine,
      "' are different machines, whose results say nothing about each other; measure both on one");
  fmt::print("commit {} -> {}, {}\n", before.commit, after.commit, after.machine);
  int64_t common = 0;
  for (const auto& [setting, row] : after.rows) {
    const auto old = before.rows.find(setting);
    if (old == before.rows.end()) continue;
    print_ratios(setting, old->second, row);
    ++common;
  }
  TLT_CHECK_INPUT(common > 0, old_path, " and ", new_path,
                  " have no measurement in common; run the same tlt bench for both");
  return 0;
}

}  // namespace tlt::apps
