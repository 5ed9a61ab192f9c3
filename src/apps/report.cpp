// tlt report: one HTML file with the charts and responses of one or more runs.
//
// SPDX-License-Identifier: Apache-2.0
#include "run/report/run_report.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/log.h"

namespace tlt::apps {
namespace {

constexpr const char* kFileName = "report.html";

// The file to write: in the run's folder or, for several runs, in the working directory.
std::string output_of(const std::vector<std::string>& runs, const std::string& output) {
  if (output.empty()) return runs.size() == 1 ? runs.front() + "/" + kFileName : kFileName;
  return std::filesystem::is_directory(output) ? output + "/" + kFileName : output;
}

}  // namespace

int run_report(const cli::Arguments& arguments) {
  std::vector<std::string> runs;
  std::string output;
  CLI::App flags(
      "Writes a report of one or more runs: an HTML file that needs no network, with scores, "
      "lengths, time, speculation, workers and responses. Several runs are compared.");
  flags.add_option("RUN", runs, "Run folders, also of runs that are still in progress.")
      ->required();
  flags.add_option("--output", output,
                   "File to write; by default report.html in the run's folder or, for several "
                   "runs, in the working directory. - is standard output.");
  if (!cli::try_parse(flags, arguments)) return 0;
  TLT_CHECK_INPUT(runs.size() <= run::kMaxReportedRuns, runs.size(), " runs; give at most ",
                  run::kMaxReportedRuns);
  const run::RunReport report = run::report_runs(runs);
  for (const std::string& sentence : report.left_out) log_warning("left out: {}", sentence);
  const std::string path = output_of(runs, output);
  write_file_atomic(path, report.html);
  log_info("report of {} in {}; open it in a browser", runs.size() == 1 ? "the run" : "the runs",
           path);
  return 0;
}

}  // namespace tlt::apps
