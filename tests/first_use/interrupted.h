// Shared by the tests of interrupted commands: stops or kills a running `tlt generate` or `tlt
// score` after a part of its lines, and finishes it with --resume.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "base/clock.h"
#include "tests/first_use/support.h"

namespace tlt::first_use {

namespace fs = std::filesystem;
using tests::Program;
using tests::read_text;

struct Stopped {
  int exit_code = -1;
  std::string log;
};

// Sends the signal once `output`.partial has a few lines. Fails if the program ended before.
inline Stopped stop_when_lines(const std::vector<std::string>& words, const std::string& output,
                               int signal) {
  Program program(words, scratch_folder() + "/log");
  for (int64_t lines = 0; lines < 5;) {
    int code = 0;
    if (program.wait_for(0.002, &code)) {
      ADD_FAILURE() << "ended before it was interrupted: " << program.output();
      return {code, program.output()};
    }
    lines = std::ranges::count(read_text(output + ".partial"), '\n');
  }
  program.send(signal);
  const int code = program.wait();
  return {code, program.output()};
}

// Kills the command with SIGKILL at random moments of its running time, resumes it until it ends,
// and compares the output; TLT_KILLS times, or 4 times, and until one had done some lines.
inline void expect_kills_change_nothing(const std::vector<std::string>& words,
                                        const std::string& output, const std::string& whole,
                                        double seconds) {
  const char* asked = std::getenv("TLT_KILLS");
  const int wanted = asked ? std::atoi(asked) : 4;
  std::mt19937 random(asked ? std::random_device()() : 3);
  std::uniform_real_distribution<double> moment(0, seconds);
  int kills = 0, with_lines = 0;
  const auto is_enough = [&] { return kills >= wanted && (with_lines > 0 || kills > 9 * wanted); };
  while (!is_enough()) {
    fs::remove(output);
    for (bool is_over = false; !is_over;) {
      std::vector<std::string> resumed = words;
      resumed.push_back("--resume");
      Program program(resumed, scratch_folder() + "/log");
      int code = 0;
      is_over = is_enough() || program.wait_for(moment(random), &code);
      if (is_over) {
        if (is_enough()) code = program.wait();
        ASSERT_EQ(code, 0) << program.output();
      } else {
        program.kill_all();
        ++kills;
        if (std::ranges::count(read_text(output + ".partial"), '\n') > 1) ++with_lines;
      }
    }
    ASSERT_EQ(read_text(output), whole) << "after " << kills << " kills";
    ASSERT_FALSE(fs::exists(output + ".partial"));
  }
  EXPECT_GT(with_lines, 0);
  if (asked) std::cout << kills << " kills, " << with_lines << " with lines done\n";
}

}  // namespace tlt::first_use
