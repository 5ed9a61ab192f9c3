// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string_view>

#include "base/text.h"
#include "environment/embedded.h"
#include "math_equal/arithmetic.h"
#include "reward/countdown.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kAnswers = 3;              // that a player has
constexpr double kLostForEachAnswer = 0.25;  // of the reward for a right one: a first one gives 1
constexpr std::string_view kOpen = "<answer>", kClose = "</answer>";

// The last one in the text.
std::optional<std::string_view> answer_in(std::string_view text) {
  const size_t open = text.rfind(kOpen);
  if (open == text.npos) return std::nullopt;
  text.remove_prefix(open + kOpen.size());
  const size_t close = text.find(kClose);
  if (close == text.npos) return std::nullopt;
  return trimmed(text.substr(0, close));
}

std::string text_of(const math_equal::Rational& value) {
  char* const text = fmpq_get_str(nullptr, 10, value);
  std::string copy = text;
  flint_free(text);
  return copy;
}

std::string calculate(const CalledTool& call) {
  if (call.name != "calculator") return "error: the only tool is calculator";
  if (!call.arguments.contains("expression") || !call.arguments["expression"].is_string())
    return "error: give {\"expression\": \"(3+4)*5\"}";
  const auto result = math_equal::try_evaluate(call.arguments["expression"].get<std::string>());
  if (!result) return "error: not an expression of integers with + - * / and parentheses";
  return text_of(result->value);
}

class Game final : public Episode {
 public:
  Game(reward::CountdownTask task, std::string question)
      : task_(std::move(task)), question_(std::move(question)) {}

  Observation step(const std::string& content, const std::vector<CalledTool>& calls) override {
    Observation seen;
    for (const CalledTool& call : calls)
      seen.messages.push_back(tool_message(call, calculate(call)));
    calculations_ += static_cast<double>(calls.size());
    if (calls.empty()) judge(content, seen);
    seen.extras = {{"calculations", calculations_}, {"answers", static_cast<double>(answers_)}};
    return seen;
  }

 private:
  void judge(const std::string& content, Observation& seen) {
    const auto answer = answer_in(content);
    const bool is_right = answer && reward::solves(task_, *answer);
    if (is_right) seen.reward = 1 - kLostForEachAnswer * static_cast<double>(answers_);
    ++answers_;
    seen.is_done = is_right || answers_ == kAnswers;
    // The question again, and no words, which a small model may have no tokens for.
    if (!seen.is_done) seen.messages.push_back({{"role", "user"}, {"content", question_}});
  }

  const reward::CountdownTask task_;
  const std::string question_;
  int64_t answers_ = 0;
  double calculations_ = 0;
};

class CountdownGame final : public Embedded {
 public:
  std::unique_ptr<Episode> reset(const Json& row) override {
    const std::string truth = row.value("ground_truth", "");
    const Json extra = row.value("extra_info", Json());
    const Json messages = row.value("messages", Json::array());
    std::string question;
    for (const Json& message : messages)
      if (message.value("role", "") == "user") question = message.value("content", "");
    return std::make_unique<Game>(
        reward::countdown_task({.ground_truth = truth, .extra_info = &extra}), question);
  }
};

}  // namespace

std::unique_ptr<Embedded> make_countdown_game() { return std::make_unique<CountdownGame>(); }

}  // namespace tlt::environment
