// SPDX-License-Identifier: Apache-2.0
#include "reward/code.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reward/code_tests.h"

namespace tlt::reward {
namespace {

using Clock = sandbox::Sandbox::Clock;

// A token that the code cannot predict.
std::string random_token() {
  static thread_local std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) token += std::to_string(device()) + "-";
  return token;
}

bool passes(const CodeTest& test, const std::string& code, double seconds,
            Clock::time_point deadline, sandbox::Sandbox& sandbox) {
  nlohmann::ordered_json request = test.request;
  const std::string token = random_token();
  request["code"] = code;
  request["token"] = token;
  const sandbox::Sandbox::Outcome outcome =
      sandbox.run(std::move(request), seconds, test.most_output_bytes(), deadline);
  return outcome.status == sandbox::Sandbox::Status::kOk &&
         test.is_passed_by(outcome.output, token);
}

}  // namespace

CodeReward::CodeReward(const CodeOptions& options, double timeout_seconds)
    : options_(options), seconds_(0.9 * timeout_seconds) {}

RewardResult CodeReward::score(const RewardInput& input) const {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds_));
  const std::vector<CodeTest> tests = parse_code_tests(input.ground_truth);
  RewardResult result{.score = 0, .extras = {{"code_tests_passed", 0.0}}};
  const auto code = code_of(input.response);
  if (!code) return result;
  sandbox::Sandbox sandbox({.memory_bytes = options_.memory_megabytes << 20}, deadline);
  int64_t passed = 0;
  for (const CodeTest& test : tests) {
    const bool is_passed = passes(test, *code, options_.test_seconds, deadline, sandbox);
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
