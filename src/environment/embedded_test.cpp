// SPDX-License-Identifier: Apache-2.0
#include "environment/embedded.h"

#include <gmock/gmock.h>

#include <sstream>

#include "base/check.h"
#include "sandbox/sandbox.h"
#include "tests/support/test_folder.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const Json kRow = {{"ground_truth", "7,6,3:60"},
                   {"messages", {{{"role", "user"}, {"content", "7,6,3:60"}}}}};

CalledTool calculator(const std::string& expression) {
  return {"a", "calculator", {{"expression", expression}}};
}

TEST(CountdownGameTest, RightAnswerEndsTheGameAndLaterOnesCountLess) {
  const auto game = make_countdown_game()->reset(kRow);
  const Observation wrong = game->step("<answer>7+6+3</answer>", {});
  EXPECT_FALSE(wrong.is_done);
  EXPECT_EQ(wrong.reward, 0);
  EXPECT_EQ(wrong.messages, (Json{{{"role", "user"}, {"content", "7,6,3:60"}}}));
  const Observation right = game->step("<think></think><answer> (7+3)*6 </answer>", {});
  EXPECT_TRUE(right.is_done);
  EXPECT_EQ(right.reward, 0.75);
  EXPECT_EQ(right.extras.at("answers"), 2);
}

TEST(EmbeddedTest, AnnouncesListsAndAnswersThem) {
  const Json reset = {{"id", 1}, {"call", "reset"}, {"episode", 1}, {"row", kRow}};
  Json other = reset;
  other["id"] = 2;
  other["episode"] = 2;
  const Json step = {{"id", 3}, {"call", "step"}, {"episode", 2}, {"message", {{"content", "60"}}}};
  Json unknown = step;
  unknown["id"] = 4;
  unknown["episode"] = 9;
  std::istringstream calls(Json{reset, other, unknown, step}.dump() + "\n");
  std::ostringstream answers;
  serve(*make_countdown_game(), calls, answers);
  std::istringstream lines(answers.str());
  std::vector<Json> got;
  for (std::string line; std::getline(lines, line);) got.push_back(Json::parse(line));
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0]["max_batch"], 64);
  EXPECT_EQ(got[1]["id"], 2);
  EXPECT_TRUE(got[2].contains("error")) << "of its episode only";
  EXPECT_EQ(got[3]["id"], 3);
  EXPECT_EQ(got[3]["done"], false);
}

TEST(CountdownGameTest, ThreeAnswersEndTheGame) {
  const auto game = make_countdown_game()->reset(kRow);
  EXPECT_FALSE(game->step("60", {}).is_done);
  EXPECT_FALSE(game->step("<answer>60</answer>", {}).is_done);
  const Observation last = game->step("<answer>9**9</answer>", {});
  EXPECT_TRUE(last.is_done);
  EXPECT_EQ(last.reward, 0);
}

TEST(CountdownGameTest, CalculatorAnswersCalls) {
  const auto game = make_countdown_game()->reset(kRow);
  const Observation seen = game->step(
      "", {calculator("(7+3)*6"), calculator("7/6"), calculator("9**9"), {"b", "search", {}}});
  EXPECT_FALSE(seen.is_done);
  ASSERT_EQ(seen.messages.size(), 4u);
  EXPECT_EQ(
      seen.messages[0],
      (Json{{"role", "tool"}, {"tool_call_id", "a"}, {"name", "calculator"}, {"content", "60"}}));
  EXPECT_EQ(seen.messages[1]["content"], "7/6");
  EXPECT_THAT(seen.messages[2]["content"].dump(), HasSubstr("error: not an expression"));
  EXPECT_THAT(seen.messages[3]["content"].dump(), HasSubstr("the only tool is calculator"));
  EXPECT_EQ(seen.extras.at("calculations"), 4);
}

TEST(EmbeddedTest, ServesTheProtocol) {
  const auto game = make_embedded("countdown");
  const auto line = [](const Json& json) { return json.dump() + "\n"; };
  std::istringstream calls(
      line({{"id", 1}, {"call", "reset"}, {"episode", 4}, {"seed", 0}, {"row", kRow}}) +
      line({{"id", 2},
            {"call", "step"},
            {"episode", 4},
            {"message", {{"role", "assistant"}, {"content", "<answer>(7+3)*6</answer>"}}},
            {"tool_calls", Json::array()}}) +
      line({{"id", 3}, {"call", "reset"}, {"episode", 5}, {"row", Json::object()}}) +
      line({{"call", "close"}, {"episode", 5}}) +
      line({{"id", 4}, {"call", "step"}, {"episode", 5}, {"message", Json::object()}}));
  std::ostringstream answers;
  serve(*game, calls, answers);
  std::istringstream lines(answers.str());
  std::vector<Json> seen;
  for (std::string text; std::getline(lines, text);) seen.push_back(Json::parse(text));
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0], (Json{{"id", 1}, {"max_batch", 64}}));
  EXPECT_EQ(seen[1]["reward"], 1);
  EXPECT_EQ(seen[1]["done"], true);
  EXPECT_THAT(seen[2]["error"].dump(), HasSubstr("no countdown problem"));
  EXPECT_TRUE(seen[3].contains("error")) << "the episode is not open";
  std::istringstream nonsense("hello\n");
  EXPECT_THAT(thrown_message<InputError>([&] { serve(*game, nonsense, answers); }),
              HasSubstr("no call like"));
  EXPECT_THAT(thrown_message<InputError>([] { make_embedded("chess"); }),
              HasSubstr("give countdown or python"));
}

TEST(PythonToolTest, RunsCodeAndEndsWithoutACall) {
  try {
    sandbox::Sandbox::check();
  } catch (const InputError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto task = make_python_tool()->reset(Json::object());
  const Observation seen =
      task->step("", {{"a", "python", {{"code", "print(6*7)"}}}, {"b", "python", {{"x", 1}}}});
  EXPECT_EQ(seen.messages[0]["content"], "42\n");
  EXPECT_THAT(seen.messages[1]["content"].dump(), HasSubstr("error: give"));
  EXPECT_FALSE(seen.is_done);
  EXPECT_TRUE(task->step("It is 42.", {}).is_done);
}

}  // namespace
}  // namespace tlt::environment
