// SPDX-License-Identifier: Apache-2.0
#include "run/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/local_time.h"
#include "base/sentence.h"
#include "base/version.h"
#include "run/report/html_page.h"
#include "run/report/left_out.h"
#include "run/report/metric_history.h"
#include "run/report/metric_table.h"
#include "run/report/rollout_choice.h"
#include "run/report/timeline_steps.h"

namespace tlt::run {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Shared by all runs of a page; together they keep it below 5 MB.
constexpr int64_t kMaxMetricValues = 170'000, kMaxShownBytes = 1'300'000;
constexpr size_t kTimelineNumbers = 40'000, kTimelineSteps = 16;
constexpr int64_t kMaxTextBytes = 1 << 20;  // of options.toml, summary.txt, run.json
constexpr size_t kMaxOptions = 2'000, kMaxOptionBytes = 400;

std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string name_of(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

// The text of a file of the run; empty if there is none, or if it is damaged.
std::string text_of(const std::string& path, LeftOut& left_out) {
  if (!fs::is_regular_file(path)) return "";
  try {
    return read_file(path, kMaxTextBytes);
  } catch (const InputError& error) {
    left_out.add(error.what());
    return "";
  }
}

// Values that a report, which is shared, must not show.
bool is_secret(const std::string& name) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"secret", "password", "api_key", "authorization",
                                              "headers", "credential"},
      [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// {"actor.optim.lr": "1e-06", …} of an options.toml as tlt writes it: tables, and a value a line.
Json options_of(const std::string& toml) {
  Json options = Json::object();
  std::string table;
  for (size_t begin = 0, end = 0; begin < toml.size() && options.size() < kMaxOptions;
       begin = end + 1) {
    end = std::min(toml.find('\n', begin), toml.size());
    const std::string line = toml.substr(begin, end - begin);
    const size_t equal = line.find(" = ");
    if (line.starts_with("[[")) break;  // the history of overrides
    if (line.starts_with('[') && line.ends_with(']')) {
      table = line.substr(1, line.size() - 2) + ".";
    } else if (equal != std::string::npos && !line.starts_with('#')) {
      const std::string name = table + line.substr(0, equal);
      options[name] = is_secret(name) ? "…" : one_sentence(line.substr(equal + 3), kMaxOptionBytes);
    }
  }
  return options;
}

// A text of run.json; empty if it has none.
std::string identity_text(const Json& identity, const char* name) {
  const auto found = identity.is_object() ? identity.find(name) : identity.end();
  return found != identity.end() && found->is_string() ? one_sentence(found->get<std::string>())
                                                       : "";
}

Json run_json(const std::string& folder, int64_t runs) {
  const MetricHistory history(folder + "/metrics.jsonl");
  LeftOut left_out = history.left_out();
  Json table = metric_table(history, kMaxMetricValues / runs);
  TLT_CHECK_INPUT(!table.at("steps").empty(), folder,
                  "/metrics.jsonl: no row of a step yet; wait for the first step of the run");
  const auto identity = Json(parse_limited_json(text_of(folder + "/run.json", left_out)));
  Json run = {{"name", name_of(folder)},
              {"folder", folder},
              {"command", identity_text(identity, "command")},
              {"started", identity_text(identity, "started")},
              {"metrics", std::move(table)},
              {"offline_acceptance", offline_acceptance(history)},
              {"timeline", timeline_steps(folder + "/timeline.json", kTimelineSteps,
                                          kTimelineNumbers / static_cast<size_t>(runs), left_out)},
              {"rollouts", choose_rollouts(folder, kMaxShownBytes / runs, left_out)},
              {"options", options_of(text_of(folder + "/options.toml", left_out))},
              {"summary", printable_lines(text_of(folder + "/summary.txt", left_out), 100'000)}};
  run["left_out"] = left_out.sentences();
  if (left_out.more() > 0) run["left_out"].push_back(fmt::format("and {} more", left_out.more()));
  return run;
}

}  // namespace

nlohmann::json report_data(std::span<const std::string> folders) {
  TLT_CHECK(!folders.empty() && folders.size() <= kMaxReportedRuns, folders.size());
  Json runs = Json::array();
  std::set<std::string> seen;
  for (const std::string& given : folders) {
    const std::string folder = without_end_slashes(given);
    TLT_CHECK_INPUT(fs::exists(folder + "/metrics.jsonl"), folder,
                    ": no run folder (it has no metrics.jsonl); give the folder of a run, such as "
                    "runs/demo");
    TLT_CHECK_INPUT(seen.insert(fs::weakly_canonical(folder).string()).second, folder,
                    ": given twice; give each run once");
    runs.push_back(run_json(folder, std::ssize(folders)));
  }
  return {{"program", fmt::format("tlt {} ({})", kVersion, kCommit)},
          {"made", time_text(local_time_now())},
          {"runs", std::move(runs)}};
}

RunReport report_runs(std::span<const std::string> folders) {
  const Json data = report_data(folders);
  RunReport report;
  std::string title;
  for (const Json& run : data.at("runs")) {
    title += (title.empty() ? "" : ", ") + run.at("name").get<std::string>();
    for (const Json& sentence : run.at("left_out")) report.left_out.push_back(sentence);
  }
  report.html = html_page(title, data);
  return report;
}

}  // namespace tlt::run
