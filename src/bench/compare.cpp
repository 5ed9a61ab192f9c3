// tlt bench compare OLD NEW: ratios of two files of results, for each measurement in both.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <map>

#include "base/check.h"
#include "base/json_lines.h"
#include "base/sentence.h"
#include "bench/scenarios.h"

#include <nlohmann/json.hpp>

namespace tlt::bench {
namespace {

using nlohmann::ordered_json;

// The last field that identifies the measurement; the fields after it are results.
constexpr const char* kRepeat = "repeat";

std::string setting_of(const ordered_json& row) {
  std::string text;
  for (const auto& [name, value] : row.items()) {
    if (name == kRepeat) break;
    text +=
        (text.empty() ? "" : " ") +
        (value.is_string() ? value.get<std::string>() : fmt::format("{} {}", name, value.dump()));
  }
  return text;
}

struct Results {
  std::string machine, commit;
  std::map<std::string, ordered_json> rows;  // by setting
};

Results read_results(const std::string& path) {
  JsonLinesReader reader(path);
  Results results;
  for (ordered_json row; reader.try_next(row);) {
    const bool is_result = row.is_object() && row.value("bench", ordered_json()).is_string() &&
                           row.value("machine", ordered_json()).is_string() &&
                           row.contains(kRepeat);
    TLT_CHECK_INPUT(is_result, reader.place(),
                    ": not a line of tlt bench; give a file of its output");
    const std::string machine = row["machine"].get<std::string>();
    TLT_CHECK_INPUT(results.rows.empty() || machine == results.machine, reader.place(),
                    ": the machine is '", machine, "', in earlier lines '", results.machine,
                    "'; give a file for each machine");
    results.machine = machine;
    results.commit = row.value("commit", ordered_json("unknown")).dump();
    const auto [at, is_new] = results.rows.emplace(setting_of(row), row);
    TLT_CHECK_INPUT(is_new, reader.place(), ": a second result of '", at->first,
                    "'; give the output of one run");
  }
  TLT_CHECK_INPUT(!results.rows.empty(), path, ": no results; give a file of tlt bench's output");
  return results;
}

void print_ratio(const std::string& name, const ordered_json& before, const ordered_json& after) {
  if (!before.is_number() || before.get<double>() == 0) return;
  fmt::print("  {:<32} {:>14.6g} -> {:>14.6g}   x {:.3f}\n", one_sentence(name),
             before.get<double>(), after.get<double>(), after.get<double>() / before.get<double>());
}

void print_ratios(const std::string& setting, const ordered_json& before,
                  const ordered_json& after) {
  fmt::print("{}\n", one_sentence(setting));
  bool is_result = false;
  for (const auto& [name, value] : after.items()) {
    if (is_result && value.is_number())
      print_ratio(name, before.value(name, ordered_json()), value);
    is_result = is_result || name == kRepeat;
  }
}

}  // namespace

int run_compare(const cli::Arguments& arguments) {
  std::string old_path, new_path;
  CLI::App app("Ratios new / old of two files of results of the same machine.");
  app.add_option("OLD", old_path, "Output of tlt bench.")->required();
  app.add_option("NEW", new_path, "Output of tlt bench.")->required();
  if (!cli::try_parse(app, arguments)) return 0;

  const Results before = read_results(old_path), after = read_results(new_path);
  TLT_CHECK_INPUT(
      before.machine == after.machine, "'", before.machine, "' and '", after.machine,
      "' are different machines, so their results cannot be compared; measure both on one");
  fmt::print("commit {} -> {}, {}\n", one_sentence(before.commit), one_sentence(after.commit),
             one_sentence(after.machine));
  int64_t common = 0;
  for (const auto& [setting, row] : after.rows) {
    const auto old = before.rows.find(setting);
    if (old == before.rows.end()) continue;
    print_ratios(setting, old->second, row);
    ++common;
  }
  TLT_CHECK_INPUT(common > 0, old_path, " and ", new_path,
                  " have no measurement in common; run the same tlt bench command for both");
  return 0;
}

}  // namespace tlt::bench
