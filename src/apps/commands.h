// The subcommands, one file each. Each returns the exit code of the program; main.cpp catches
// exceptions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cli/command.h"

namespace tlt::apps {

int run_train(const cli::Arguments& arguments);
int run_sft(const cli::Arguments& arguments);
int run_dpo(const cli::Arguments& arguments);
int run_draft(const cli::Arguments& arguments);
int run_export(const cli::Arguments& arguments);
int run_eval(const cli::Arguments& arguments);
int run_generate(const cli::Arguments& arguments);
int run_chat(const cli::Arguments& arguments);
int run_serve(const cli::Arguments& arguments);
int run_score(const cli::Arguments& arguments);
int run_reward(const cli::Arguments& arguments);
int run_environment(const cli::Arguments& arguments);
int run_tokenize(const cli::Arguments& arguments);
int run_data(const cli::Arguments& arguments);
int run_import(const cli::Arguments& arguments);
int run_report(const cli::Arguments& arguments);
int run_options(const cli::Arguments& arguments);
int run_simulate(const cli::Arguments& arguments);
int run_doctor(const cli::Arguments& arguments);

// Of all commands of the program.
int print_completion(std::span<const cli::Command> program, const cli::Arguments& arguments);
int print_man_page(std::span<const cli::Command> program, const cli::Arguments& arguments);

}  // namespace tlt::apps
