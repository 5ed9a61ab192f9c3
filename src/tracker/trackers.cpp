// SPDX-License-Identifier: Apache-2.0
#include "tracker/trackers.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/sentence.h"
#include "base/utf8.h"

namespace tlt::tracker {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxIdsBytes = 1 << 20;
constexpr std::chrono::seconds kFinishTime(60);
// An interrupted run may be killed soon; the checkpoint is written before.
constexpr std::chrono::seconds kInterruptedFinishTime(10);
constexpr std::chrono::seconds kFailedFinishTime(5);

// What to type when a package does not start.
std::string_view remedy(const std::string& package) {
  if (package == "wandb") return "type `wandb login`, or set WANDB_MODE=offline";
  if (package == "swanlab") return "type `swanlab login`, or set SWANLAB_MODE=offline";
  if (package == "mlflow")
    return "set MLFLOW_TRACKING_URI to your server or to sqlite:///mlflow.db";
  return "correct that";
}

Json read_ids(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  Json ids = parse_limited_json(read_file(path, kMaxIdsBytes));
  const auto is_entry = [](const Json& entry) {
    return entry.is_object() && entry.contains("id") && entry["id"].is_string();
  };
  if (ids.is_object() && std::ranges::all_of(ids, is_entry)) return ids;
  log_warning("{} is damaged; the trackers begin new runs", path);
  return Json::object();
}

std::string id_of(const Json& ids, const std::string& package) {
  return ids.contains(package) ? ids[package]["id"].get<std::string>() : "";
}

Json cell_of(const Json& value) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  std::string shown;
  const bool is_cut = text.size() > kMaxCellBytes;
  append_lossy(shown, std::string_view(text).substr(0, kMaxCellBytes), /*is_last=*/!is_cut);
  return is_cut ? shown + "…" : shown;
}

}  // namespace

bool is_tracker(std::string_view logger) {
  return std::ranges::find(kTrackers, logger) != kTrackers.end();
}

void Trackers::check(const std::vector<std::string>& loggers) {
  for (const std::string& logger : loggers)
    if (is_tracker(logger)) Tracker::check(logger);
}

Trackers::Trackers(const TrackedRun& run) : ids_path_(run.folder + "/trackers.json") {
  if (std::ranges::none_of(run.loggers, is_tracker)) return;
  ids_ = read_ids(ids_path_);
  for (const std::string_view package : kTrackers) {  // each once
    if (std::ranges::find(run.loggers, package) == run.loggers.end()) continue;
    const std::string name(package);
    trackers_.push_back(std::make_unique<Tracker>(name,
                                                  Json{{"project", run.project},
                                                       {"name", run.name},
                                                       {"id", id_of(ids_, name)},
                                                       {"config", run.config}},
                                                  run.limits));
  }
  const auto deadline = Tracker::Clock::now() + run.start_time;
  std::string refusal;
  for (const auto& tracker : trackers_) {
    const std::string why = await_start(*tracker, deadline);
    if (refusal.empty()) refusal = why;
  }
  save_ids();
  if (refusal.empty()) return;
  // The runs that the others have begun end, and the next start continues them.
  std::erase_if(trackers_, [](const auto& it) { return it->state() == Tracker::State::kOff; });
  finish_within(/*exit_code=*/1, kFailedFinishTime);
  throw InputError(refusal);
}

Trackers::~Trackers() { finish_within(/*exit_code=*/1, kFailedFinishTime); }

std::string Trackers::await_start(Tracker& tracker, Tracker::Clock::time_point deadline) {
  using std::chrono::milliseconds;
  const std::string& package = tracker.package();
  const bool is_new = !ids_.contains(package);
  const auto left = std::chrono::ceil<milliseconds>(deadline - Tracker::Clock::now());
  switch (tracker.wait_for_start(std::max(left, milliseconds(0)))) {
    case Tracker::State::kRunning:
      log_info("{}: {}{}", package, is_new ? "" : "continues ", one_sentence(tracker.where()));
      break;
    case Tracker::State::kStarting:
      log_warning("{} has not started in time; the run begins, and its metrics wait", package);
      break;
    case Tracker::State::kOff:
      if (is_new)
        return check_internal::concat("trainer.logger has ", package, ", which ", tracker.fault(),
                                      "; ", remedy(package), ", or leave ", package,
                                      " out of trainer.logger");
      log_warning("{} {}; the run continues without it, and its folder has all metrics", package,
                  tracker.fault());
  }
  return "";
}

void Trackers::log(int64_t step, const Metrics& metrics) {
  if (trackers_.empty()) return;
  save_ids();
  send("{\"log\":" + metrics.to_json(step) + "}");
}

void Trackers::log_table(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Json& cell : row) cells.push_back(cell_of(cell));
    rows.push_back(std::move(cells));
  }
  send(Json{{"table",
             {{"name", table.name},
              {"step", table.step},
              {"columns", table.columns},
              {"rows", std::move(rows)}}}}
           .dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Trackers::finish(int exit_code) {
  finish_within(exit_code, exit_code == 0 ? kFinishTime : kInterruptedFinishTime);
}

void Trackers::send(const std::string& line) {
  for (const auto& tracker : trackers_) tracker->send(line);
}

// Also of trackers that have started late. A disk that is full is a warning: the next start begins
// new runs.
void Trackers::save_ids() {
  const Json before = ids_;
  for (const auto& tracker : trackers_)
    if (const std::string id = tracker->id(); !id.empty())
      ids_[tracker->package()] = {{"id", id}, {"where", tracker->where()}};
  if (ids_ == before) return;
  try {
    write_file_atomic(ids_path_, ids_.dump(1) + "\n");
  } catch (const std::exception& error) {
    log_warning("the trackers' runs are not known to the next start: {}", error.what());
  }
}

void Trackers::finish_within(int exit_code, std::chrono::milliseconds time) {
  const auto deadline = Tracker::Clock::now() + time;
  for (const auto& tracker : trackers_) tracker->finish(exit_code);
  for (const auto& tracker : trackers_) tracker->wait_for_end(deadline);
  if (!trackers_.empty()) save_ids();  // one may have started after the last metric
  trackers_.clear();
}

}  // namespace tlt::tracker
