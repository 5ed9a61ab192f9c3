// RunIdentity: what a run is: its command, the model it starts from, the options that change its
// results. A run folder keeps it in run.json from the start, and only the same run resumes there.
//
//   const RunIdentity here = identify("sft", options);
//   check_same_run("runs/a", here, parse_identity(read_file("runs/a/run.json", …),
//   "runs/a/run.json"));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rl/run_options.h"

namespace tlt::rl {

struct RunIdentity {
  std::string command;  // "train", "sft" or "draft"
  std::string model;    // model::fingerprint of model.path: a copy elsewhere has the same
  std::string options;  // "name = value" lines; not how long the run goes on
};

// `more`: further "name = value" lines that results depend on.
RunIdentity identify(const std::string& command, const RunOptions& options,
                     const std::string& more = "");

std::string to_json(const RunIdentity& identity);
// InputError names the place when it is no run.json.
RunIdentity parse_identity(const std::string& text, const std::string& place);

// InputError says in what the run that `folder` has differs from this one, and what to do.
void check_same_run(const std::string& folder, const RunIdentity& here, const RunIdentity& there);

}  // namespace tlt::rl
