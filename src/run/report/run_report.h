// RunReport: the report of one or more runs as one HTML file: scores, lengths, time, speculation,
// workers and responses; several runs are compared.
//
// Not here   what the page looks like (report/page/); the lines for a terminal (run_summary.h).
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace tlt::run {

inline constexpr size_t kMaxReportedRuns = 16;

struct RunReport {
  std::string html;
  std::vector<std::string> left_out;  // what was damaged or too large, a sentence each
};

// Reads the run folders; a run may still be in progress, and damaged rows are left out. Throws
// InputError if a folder has no metrics.jsonl, if that has no row of a step, or if a folder is
// given twice. REQUIRES: 1 to kMaxReportedRuns folders.
RunReport report_runs(std::span<const std::string> folders);

// What the page has in its <script id="data">.
nlohmann::json report_data(std::span<const std::string> folders);

}  // namespace tlt::run
