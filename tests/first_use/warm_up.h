// Shared by the tests of tlt sft, tlt dpo and tlt draft: runs in a scratch folder.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/first_use/support.h"

namespace tlt::first_use {

namespace fs = std::filesystem;
using tests::read_text;
using Words = std::vector<std::string>;

// Every file of a folder but the lock and the log, with its content; none if there is no folder.
inline std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (const std::string name = fs::relative(entry.path(), folder).string();
        entry.is_regular_file() && name != ".lock" && name != "log.txt")
      files[name] = read_text(entry.path());
  return files;
}

class WarmUpTest : public ::testing::Test {
 protected:
  fs::path run() const { return scratch_ / "run"; }
  int start(const Words& words) const { return tests::run_program(words, log()); }
  void expect_success(const Words& words) const { ASSERT_EQ(start(words), 0) << output(); }
  void expect_refused(const Words& words, const std::string& says) const {
    const auto before = files_of(run());
    EXPECT_EQ(start(words), 2) << output();
    EXPECT_THAT(output(), HasSubstr(says));
    EXPECT_EQ(files_of(run()) == before, true) << "the refused run changed the folder";
  }
  // Waits until the run has finished this step; false: timeout.
  bool does_step(int step) const {
    const std::string row = "{\"step\":" + std::to_string(step) + ",";
    for (int i = 0; i < 60000; ++i) {
      if (read_text(run() / "metrics.jsonl").find(row) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  fs::path log() const { return scratch_ / "log"; }
  std::string output() const { return read_text(log()); }

  const tests::Scratch scratch_;
};

}  // namespace tlt::first_use
