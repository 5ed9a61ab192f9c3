// The subcommands, one file each. Each returns the exit code of the program; main.cpp catches
// exceptions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/command.h"

namespace tlt::apps {

int run_train(const Arguments& arguments);
int run_sft(const Arguments& arguments);
int run_draft(const Arguments& arguments);
int run_export(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_chat(const Arguments& arguments);
int run_score(const Arguments& arguments);
int run_reward(const Arguments& arguments);
int run_tokenize(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_import(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_options(const Arguments& arguments);
int run_doctor(const Arguments& arguments);

// Scenarios of `tlt bench`.
int run_bench_decode(const Arguments& arguments);
int run_bench_rollout(const Arguments& arguments);
int run_bench_train(const Arguments& arguments);
int run_bench_draft_train(const Arguments& arguments);
int run_bench_forward(const Arguments& arguments);
int run_bench_growth(const Arguments& arguments);
int run_bench_tokenize(const Arguments& arguments);
int run_bench_compare(const Arguments& arguments);

}  // namespace tlt::apps
