// SPDX-License-Identifier: Apache-2.0
#include "data/countdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "tokenizer/tokenizer.h"

namespace tlt::data {
namespace {

using Numbers = std::vector<int>;

CountdownState state_of(const Numbers& numbers) {
  CountdownState state;
  for (const int number : numbers) state.numbers[state.size++] = static_cast<uint8_t>(number);
  return state;
}

// The definition, without tables.
void slow_reach(const Numbers& numbers, std::set<int>& reached) {
  if (numbers.size() == 1) reached.insert(numbers[0]);
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (size_t j = 0; j < numbers.size(); ++j) {
      const int a = numbers[i], b = numbers[j];
      if (i == j || a < b) continue;
      Numbers rest;
      for (size_t k = 0; k < numbers.size(); ++k) {
        if (k != i && k != j) rest.push_back(numbers[k]);
      }
      for (const int result : {a + b, a - b, a * b, b > 1 && a % b == 0 ? a / b : 0}) {
        if (result < 1 || result > 99) continue;
        rest.push_back(result);
        slow_reach(rest, reached);
        rest.pop_back();
      }
    }
  }
}

// Value of an integer expression with + - * / and parentheses; collects its numbers.
class Calculator {
 public:
  explicit Calculator(std::string text) : text_(std::move(text)) { value = sum(); }
  bool is_finished() const { return at_ == text_.size(); }

  double value = 0;
  Numbers numbers;

 private:
  double sum() {
    double result = product();
    while (text_[at_] == '+' || text_[at_] == '-')
      result = text_[at_++] == '+' ? result + product() : result - product();
    return result;
  }
  double product() {
    double result = unit();
    while (text_[at_] == '*' || text_[at_] == '/')
      result = text_[at_++] == '*' ? result * unit() : result / unit();
    return result;
  }
  double unit() {
    if (text_[at_] == '(') {
      ++at_;
      const double result = sum();
      EXPECT_EQ(text_[at_], ')');
      ++at_;
      return result;
    }
    size_t digits = 0;
    numbers.push_back(std::stoi(text_.substr(at_), &digits));
    at_ += digits;
    return numbers.back();
  }

  const std::string text_;
  size_t at_ = 0;
};

Numbers numbers_of(const std::string& text) {
  Numbers numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) numbers.push_back(std::stoi(part));
  return numbers;
}

int apply(char operation, int a, int b) {
  return operation == '+'   ? a + b
         : operation == '-' ? a - b
         : operation == '*' ? a * b
         : a % b == 0       ? a / b
                            : -1;
}

// Checks every line of a response and its answer; returns whether the answer is correct.
bool check_demonstration(const CountdownProblem& problem, const std::string& response) {
  constexpr std::string_view kBefore = "</think><answer>", kAfter = "</answer><eos>";
  const std::string trace = response.substr(0, response.find('<'));
  EXPECT_TRUE(response.substr(trace.size()).starts_with(kBefore) && response.ends_with(kAfter))
      << response;
  const size_t begin = trace.size() + kBefore.size();
  const std::string answer = response.substr(begin, response.size() - begin - kAfter.size());
  Numbers start;
  for (const int number : problem.start.values()) start.push_back(number);

  std::ranges::sort(start);
  std::set<Numbers> states = {
      start};  // where a line may begin, sorted: of two equal numbers either may be used
  int last = 0;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    char text[64] = "", operation = '?';
    int target = 0, a = 0, b = 0, end = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "%63[0-9,]:%d>%d%c%d=%d%n", text, &target, &a, &operation,
                          &b, &last, &end),
              6)
        << line;
    EXPECT_EQ(line.size(), static_cast<size_t>(end)) << line;
    Numbers state = numbers_of(text);
    std::ranges::sort(state);
    EXPECT_TRUE(states.contains(state)) << line << "\n" << response;
    EXPECT_EQ(target, problem.target);
    EXPECT_GE(a, b) << line;
    EXPECT_EQ(last, apply(operation, a, b)) << line;
    EXPECT_TRUE(last >= 1 && last <= 99) << line;
    for (const int used : {a, b}) {
      const auto found = std::ranges::find(state, used);
      EXPECT_NE(found, state.end()) << line;
      if (found != state.end()) state.erase(found);
    }
    state.push_back(last);
    std::ranges::sort(state);
    states.insert(state);
  }
  Calculator calculator(answer);
  EXPECT_TRUE(calculator.is_finished()) << answer;
  std::ranges::sort(calculator.numbers);
  EXPECT_EQ(calculator.numbers, start) << answer;
  const bool is_right = calculator.value == problem.target;
  EXPECT_EQ(is_right, last == problem.target) << response;
  return is_right;
}

TEST(CountdownTest, StepsAreOrderedByPair) {
  std::string text;
  for (const CountdownStep& step : countdown_steps(state_of({7, 6, 3}))) {
    text += std::to_string(step.left) + step.operation + std::to_string(step.right) + "=" +
            std::to_string(step.result) + ":";
    for (const int number : step.next.values()) text += std::to_string(number) + ",";
    text += " ";
  }
  EXPECT_EQ(text,
            "7+6=13:13,3, 7-6=1:1,3, 7*6=42:42,3, 7+3=10:10,6, 7-3=4:4,6, 7*3=21:21,6, 6+3=9:9,7, "
            "6-3=3:3,7, "
            "6*3=18:18,7, 6/3=2:2,7, ");
}

TEST(CountdownTest, ReachMatchesBruteForce) {
  RandomStream random(7, {});
  for (int round = 0; round < 300; ++round) {
    Numbers numbers;
    const uint64_t largest = random.below(2) ? 12 : 99;
    for (uint64_t count = 1 + random.below(4); count > 0; --count)
      numbers.push_back(static_cast<int>(1 + random.below(largest)));
    std::set<int> want;
    slow_reach(numbers, want);
    const auto reach = countdown_reach(state_of(numbers));
    for (int value = 0; value <= 99; ++value)
      ASSERT_EQ(reach.test(value), want.contains(value)) << value;
  }
}

// Counted with the prototype: 364 sorted triples of 1..12.
TEST(CountdownTest, ASixteenthIsHeldOut) {
  int problems = 0, held_out = 0;
  for (int c = 1; c <= 12; ++c) {
    for (int b = 1; b <= c; ++b) {
      for (int a = 1; a <= b; ++a) {
        const CountdownState state = state_of({b, c, a});  // the order does not matter
        for (int target = 10; target <= 99; ++target) {
          if (!countdown_reach(state).test(target)) continue;
          ++problems;
          held_out += CountdownProblem{state, target}.is_held_out();
        }
      }
    }
  }
  EXPECT_EQ(problems, 3248);
  EXPECT_EQ(held_out, 206);
}

TEST(CountdownTest, ProblemsAreSolvableAndDistinct) {
  for (const bool is_held_out : {false, true}) {
    RandomStream random(8, {});
    int four = 0;
    for (int i = 0; i < 2000; ++i) {
      const CountdownProblem problem = make_problem(random, {.is_held_out = is_held_out});
      ASSERT_EQ(problem.is_held_out(), is_held_out);
      ASSERT_GE(problem.target, 10);
      ASSERT_TRUE(countdown_reach(problem.start).test(problem.target)) << problem.ground_truth();
      for (const int number : problem.start.values()) ASSERT_TRUE(number >= 1 && number <= 12);
      four += problem.start.size == 4;
    }
    EXPECT_NEAR(four, 200, 60);
  }
}

TEST(CountdownTest, PromptAndGroundTruthHaveTheTasksFormat) {
  const CountdownProblem problem{state_of({7, 6, 3}), 60};
  EXPECT_EQ(problem.prompt(), "7,6,3:60<think>");
  EXPECT_EQ(problem.ground_truth(), "7,6,3:60");
}

TEST(CountdownTest, DemonstrationsAreWellFormed) {
  RandomStream random(9, {});
  int right = 0;
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    const CountdownProblem problem = make_problem(random, {.four_share = 0.3});
    right += check_demonstration(problem, demonstrate(random, problem, {}));
    if (HasFailure()) return;
  }
  EXPECT_GT(right, kRounds * 0.5);
  EXPECT_LT(right, kRounds * 0.95);
}

// 99*98 and 99+98 exceed the limit: pairs with a single operation, which may be the right one.
TEST(CountdownTest, LargeNumbersAreWellFormed) {
  RandomStream random(10, {});
  for (int i = 0; i < 200; ++i) {
    const CountdownProblem problem = make_problem(random, {.four_share = 0.5, .largest = 99});
    check_demonstration(problem,
                        demonstrate(random, problem, {.patience = 0.1, .tries = 3, .width = 4}));
    if (HasFailure()) return;
  }
}

TEST(CountdownTest, PatienceAlwaysSolves) {
  RandomStream random(11, {});
  for (int i = 0; i < 300; ++i) {
    const CountdownProblem problem = make_problem(random, {});
    ASSERT_TRUE(check_demonstration(
        problem, demonstrate(random, problem, {.insight = 0.4, .patience = 1.0})));
  }
}

TEST(CountdownTest, TheSameStreamGivesTheSameTraces) {
  const auto traces = [](uint64_t seed) {
    RandomStream random(seed, {});
    std::string text;
    for (int i = 0; i < 20; ++i) text += demonstrate(random, make_problem(random, {}), {}) + "\n\n";
    return text;
  };
  EXPECT_EQ(traces(12), traces(12));
  EXPECT_NE(traces(12), traces(13));
}

const std::string kDemoTokenizer = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/demo";

TEST(CountdownTokenizerTest, EveryNumberIsOneToken) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(kDemoTokenizer);
  EXPECT_EQ(tokenizer.vocab_size(), 117);
  EXPECT_EQ(tokenizer.roles().eos, std::vector<int32_t>{1});
  for (int number = 0; number < 100; ++number) {
    EXPECT_EQ(tokenizer.encode(std::to_string(number)), std::vector<int32_t>{17 + number});
  }
}

TEST(CountdownTokenizerTest, TracesRoundTrip) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(kDemoTokenizer);
  RandomStream random(1, {});
  for (int i = 0; i < 200; ++i) {
    const CountdownProblem problem = make_problem(random, {});
    const std::string text = problem.prompt() + demonstrate(random, problem, {});
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    ASSERT_EQ(tokenizer.decode(tokens), text);
    ASSERT_EQ(tokens.back(), 1);
  }
}

}  // namespace
}  // namespace tlt::data
