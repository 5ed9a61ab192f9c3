// SPDX-License-Identifier: Apache-2.0
//
// The solutions of tests/data/code_reward: cheating ones score 0, honest ones 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "reward/code.h"

namespace tlt::reward {
namespace {

constexpr const char* kTests = R"(["assert add(1, 2) == 3", "assert add(50, 70) == 120"])";

struct Solution {
  std::string name;
  std::string tests = kTests;
  std::string code = {};
};

// A solution begins with a line "#### name"; "#tests TEXT" has its ground truth.
std::vector<Solution> read_solutions(const std::string& file) {
  std::ifstream lines(std::string(TLT_SOURCE_DIR) + "/tests/data/code_reward/" + file);
  std::vector<Solution> solutions;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#### ")) {
      solutions.push_back({.name = line.substr(5)});
    } else if (line.starts_with("#tests ") && !solutions.empty()) {
      solutions.back().tests = line.substr(7);
    } else if (!solutions.empty()) {
      solutions.back().code += line + "\n";
    }
  }
  return solutions;
}

class CodeCorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      sandbox::Sandbox::check();
    } catch (const InputError& error) {
      if (std::getenv("TLT_NEEDS_SANDBOX") != nullptr) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }

  static double score(const Solution& solution, const CodeOptions& options) {
    const std::string response = "```python\n" + solution.code + "```\n";
    return CodeReward(options, /*timeout_seconds=*/30)
        .score({.response = response, .ground_truth = solution.tests})
        .score;
  }
};

TEST_F(CodeCorpusTest, CheatingSolutionsScoreZero) {
  const auto solutions = read_solutions("cheating.txt");
  EXPECT_EQ(solutions.size(), 134U);  // docs/rewards.md has the numbers
  for (const Solution& one : solutions)
    EXPECT_EQ(score(one, {.test_seconds = 0.4, .memory_megabytes = 256}), 0) << one.name;
}

TEST_F(CodeCorpusTest, HonestSolutionsScoreOne) {
  const auto solutions = read_solutions("honest.txt");
  EXPECT_EQ(solutions.size(), 79U);
  for (const Solution& one : solutions) EXPECT_EQ(score(one, {}), 1) << one.name;
}

// The default tests can be passed within the same limits, so solutions with them fail for what they
// do.
TEST_F(CodeCorpusTest, TestsOfCheatingSolutionsCanBePassed) {
  const Solution sum{.name = "sum", .code = "def add(a, b): return a + b\n"};
  EXPECT_EQ(score(sum, {.test_seconds = 0.4, .memory_megabytes = 256}), 1);
  const auto solutions = read_solutions("cheating.txt");
  EXPECT_GE(std::ranges::count(solutions, std::string(kTests), &Solution::tests), 60);
}

}  // namespace
}  // namespace tlt::reward
