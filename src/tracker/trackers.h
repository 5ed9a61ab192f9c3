// Trackers: the experiment trackers of a run, those of trainer.logger that are Python packages.
//
// trackers.json of the run folder has the id of each tracker's run, which a resumed run continues.
//
// Owns       the trackers (tracker.h).
// Not here   metrics.jsonl and TensorBoard's files (base/metrics.h), which a run always has.
// Threading  engine thread only.
//
//   Trackers::check(options.trainer.logger);             // InputError: a package is missing
//   Trackers trackers({.loggers = options.trainer.logger, .folder = folder, …});
//   trackers.log(step, metrics);
//   trackers.log_table({.name = "val/generations", .step = step, …});
//   trackers.finish(/*exit_code=*/0);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tracker/tracker.h"

namespace tlt {

class Metrics;

namespace tracker {

inline constexpr std::array<std::string_view, 4> kTrackers = {"wandb", "mlflow", "swanlab",
                                                              "trackio"};
bool is_tracker(std::string_view logger);

struct TrackedRun {
  std::vector<std::string> loggers;  // those that are no trackers are ignored
  std::string folder;
  std::string project, name;
  nlohmann::ordered_json config;  // {"trainer.seed": 0, …}
  TrackerLimits limits = {};
  // For all of them to start; then the run begins and their metrics wait.
  std::chrono::milliseconds start_time = std::chrono::minutes(1);
};

// Texts are cut at kMaxCellBytes.
struct Table {
  std::string name;
  int64_t step = 0;
  std::vector<std::string> columns;
  std::vector<std::vector<nlohmann::ordered_json>> rows;
};
inline constexpr size_t kMaxCellBytes = 4000;

class Trackers {
 public:
  // InputError, one sentence: a tracker's package is not installed; what to type.
  static void check(const std::vector<std::string>& loggers);

  // Starts the run of each tracker, or continues that of trackers.json. InputError: a new one does
  // not start, for instance because of a missing login; the runs of the others are in trackers.json
  // then, for the next start. One that does not continue is a warning.
  explicit Trackers(const TrackedRun& run);
  // As finish() of a run that failed, with little patience.
  ~Trackers();
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;

  void log(int64_t step, const Metrics& metrics);
  void log_table(const Table& table);
  bool is_empty() const { return trackers_.empty(); }

  // Waits, for a bounded time, until everything has arrived, and ends the processes.
  void finish(int exit_code);

 private:
  void send(const std::string& line);
  void save_ids();
  // Why the run must not begin; empty: it may.
  std::string await_start(Tracker& tracker, Tracker::Clock::time_point deadline);
  void finish_within(int exit_code, std::chrono::milliseconds time);

  const std::string ids_path_;
  nlohmann::ordered_json ids_;  // {"wandb": {"id", "where"}}
  std::vector<std::unique_ptr<Tracker>> trackers_;
};

}  // namespace tracker
}  // namespace tlt
