// RunIdentity: identifies a run by its command, the model it starts from, and the options that
// change its results. It is written to run.json at the start; only a run with the same identity
// resumes in that folder.
//
// Threading  pure functions.
//
//   const RunIdentity here = identify("sft", options);
//   check_same_run("runs/a", here, parse_identity(read_file("runs/a/run.json", …),
//   "runs/a/run.json"));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "run/run_options.h"

namespace tlt::run {

inline constexpr int64_t kMaxIdentityBytes = int64_t{1} << 24;  // of a run.json

struct RunIdentity {
  std::string command;       // "train", "sft", "dpo" or "draft"
  std::string model;         // model::fingerprint of model.path; the same for a copy elsewhere
  std::string options;       // "name = value" lines, without the options for the number of steps
  std::string started = {};  // local time (run_context.h); not compared
};

// `more`: further "name = value" lines that the results depend on.
RunIdentity identify(const std::string& command, const RunOptions& options,
                     const std::string& more = "");

std::string to_json(const RunIdentity& identity);
// RunIdentity::started of a run.json; empty: there is no such file, or it does not say.
std::string read_started(const std::string& path);
// Throws InputError, which names `location`, if `text` is not a run.json.
RunIdentity parse_identity(const std::string& text, const std::string& location);

// Throws InputError, which names the first difference and the way out, unless the run in `folder`
// (`there`) is the same as this one (`here`).
void check_same_run(const std::string& folder, const RunIdentity& here, const RunIdentity& there);

}  // namespace tlt::run
