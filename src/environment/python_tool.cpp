// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "environment/embedded.h"
#include "sandbox/sandbox.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;
using sandbox::Sandbox;

constexpr double kSeconds = 5;       // of CPU time, for one call
constexpr double kWallSeconds = 40;  // for one call, with the start of its sandbox
constexpr int64_t kOutputBytes = 4000;

std::string outcome_text(const Sandbox::Outcome& outcome) {
  switch (outcome.status) {
    case Sandbox::Status::kOk:
      return outcome.output.empty() ? "(no output; use print)" : outcome.output;
    case Sandbox::Status::kFailed:
      return "error: the code ended with an exception";
    case Sandbox::Status::kLate:
      return check_internal::concat("error: the code took more than ", kSeconds, " seconds");
    case Sandbox::Status::kFlooded:
      return check_internal::concat("error: the code wrote more than ", kOutputBytes, " bytes");
    case Sandbox::Status::kGreedy:
    case Sandbox::Status::kBroken:
      break;
  }
  return "error: the code took too much memory or too many files";
}

// A call has a sandbox of its own, so nothing of it is left to the next one.
std::string run(const CalledTool& call) {
  if (call.name != "python") return "error: the only tool is python";
  if (!call.arguments.contains("code") || !call.arguments["code"].is_string())
    return "error: give {\"code\": \"print(1)\"}";
  const auto deadline = Sandbox::Clock::now() + to_duration(kWallSeconds);
  Sandbox sandbox({}, deadline);
  return outcome_text(sandbox.run({{"code", call.arguments["code"]}, {"stdin", ""}}, kSeconds,
                                  kOutputBytes, deadline));
}

class Task final : public Episode {
 public:
  Observation step(const std::string&, const std::vector<CalledTool>& calls) override {
    Observation seen;
    for (const CalledTool& call : calls) seen.messages.push_back(tool_message(call, run(call)));
    runs_ += static_cast<double>(calls.size());
    seen.is_done = calls.empty();
    seen.extras = {{"python_runs", runs_}};
    return seen;
  }

 private:
  double runs_ = 0;
};

class PythonTool final : public Embedded {
 public:
  std::unique_ptr<Episode> reset(const Json&) override { return std::make_unique<Task>(); }
};

}  // namespace

std::unique_ptr<Embedded> make_python_tool() {
  Sandbox::check();
  return std::make_unique<PythonTool>();
}

}  // namespace tlt::environment
