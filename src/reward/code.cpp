// SPDX-License-Identifier: Apache-2.0
#include "reward/code.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "reward/code_tests.h"

namespace tlt::reward {
namespace {

using Clock = sandbox::Sandbox::Clock;

// What a response may still take.
struct Budget {
  double cpu_seconds;
  Clock::time_point deadline;
};

bool passes(const CodeTest& test, const std::string& code, double test_seconds,
            sandbox::Sandbox& sandbox, Budget& budget) {
  nlohmann::ordered_json request = test.request;
  request["code"] = code;
  const double seconds = std::min(test_seconds, budget.cpu_seconds);
  const sandbox::Sandbox::Outcome outcome =
      sandbox.run(std::move(request), seconds, test.most_output_bytes(), budget.deadline);
  budget.cpu_seconds -= outcome.cpu_seconds;
  return outcome.status == sandbox::Sandbox::Status::kOk && test.is_passed_by(outcome.output);
}

}  // namespace

CodeReward::CodeReward(const CodeOptions& options, double timeout_seconds)
    : options_(options),
      seconds_(0.9 * timeout_seconds),
      test_seconds_(options.test_seconds > 0 ? options.test_seconds : 0.4 * timeout_seconds) {}

RewardResult CodeReward::score(const RewardInput& input) const {
  Budget budget{.cpu_seconds = seconds_,
                .deadline = Clock::now() + to_duration(sandbox::Sandbox::kWallFactor * seconds_)};
  const std::vector<CodeTest> tests = parse_code_tests(input.ground_truth);
  RewardResult result{.score = 0, .extras = {{"code_tests_passed", 0.0}}};
  const auto code = code_of(input.response);
  if (!code) return result;
  sandbox::Sandbox sandbox({.memory_bytes = options_.memory_megabytes << 20}, budget.deadline);
  int64_t passed = 0;
  for (const CodeTest& test : tests) {
    const bool is_passed = passes(test, *code, test_seconds_, sandbox, budget);
    passed += is_passed ? 1 : 0;
    if (!is_passed && !options_.partial) break;
  }
  const double share = static_cast<double>(passed) / static_cast<double>(tests.size());
  result.extras["code_tests_passed"] = share;
  result.score = options_.partial ? share : static_cast<double>(share == 1);
  return result;
}

void CodeReward::check_row(const RewardInput& row) const {
  (void)parse_code_tests(row.ground_truth);
  start();
}

void CodeReward::start() const {
  std::call_once(checked_, [] { sandbox::Sandbox::check(); });
}

}  // namespace tlt::reward
