// `tlt bench` and its scenarios, one file each.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command.h"

namespace tlt::bench {

// The subcommand: runs the scenario named by the first word. Returns the exit code of the program.
int run_bench(const cli::Arguments& arguments);

int run_decode(const cli::Arguments& arguments);
int run_rollout(const cli::Arguments& arguments);
int run_train(const cli::Arguments& arguments);
int run_draft_train(const cli::Arguments& arguments);
int run_forward(const cli::Arguments& arguments);
int run_growth(const cli::Arguments& arguments);
int run_graphs(const cli::Arguments& arguments);
int run_suffix(const cli::Arguments& arguments);
int run_tokenize(const cli::Arguments& arguments);
int run_control(const cli::Arguments& arguments);
int run_compare(const cli::Arguments& arguments);

}  // namespace tlt::bench
