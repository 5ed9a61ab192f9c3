// SPDX-License-Identifier: Apache-2.0
#include "reward/reward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "reward/combine.h"

namespace tlt::reward {
namespace {

RewardOptions with(const std::function<void(RewardOptions&)>& change) {
  RewardOptions options;
  change(options);
  return options;
}

TEST(RewardOptionsTest, DefaultsAreValid) { EXPECT_EQ(make_reward({})->name(), "auto"); }

TEST(RewardOptionsTest, EveryOptionIsListedOnce) {
  RewardOptions options;
  const std::vector<OptionRef> refs = collect_options(options);
  std::vector<std::string> names;
  for (const OptionRef& ref : refs) names.push_back(ref.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"functions", "weights", "regex", "format", "command", "http",
                                      "judge.base_url", "judge.model", "judge.prompt",
                                      "overlong_buffer.len", "timeout_seconds", "threads"}));
  apply_override(refs, "functions=[\"gsm8k\", \"exact\"]");
  apply_override(refs, "weights=[1.0, 0.5]");
  EXPECT_EQ(make_reward(options)->name(), "gsm8k+exact");
}

TEST(RewardOptionsTest, InvalidOptionsAreInputErrors) {
  using O = RewardOptions;
  const std::function<void(O&)> kMistakes[] = {
      [](O& o) { o.functions = {}; },
      [](O& o) { o.functions = {"gsm9k"}; },
      [](O& o) {
        o.functions = {"gsm8k", "gsm8k"};
      },
      [](O& o) {
        o.weights = {1, 2};
      },
      [](O& o) { o.weights = {NAN}; },
      [](O& o) { o.functions = {"math_lax"}; },
      [](O& o) { o.functions = {"regex"}; },
      [](O& o) { o.functions = {"regex"}, o.regex = "("; },
      [](O& o) { o.functions = {"format"}, o.format = "("; },
      [](O& o) { o.regex = "a"; },
      [](O& o) { o.functions = {"command"}; },
      [](O& o) { o.command = "cat"; },
      [](O& o) { o.overlong_buffer.len = 0; },
      [](O& o) { o.timeout_seconds = 0; },
      [](O& o) { o.timeout_seconds = NAN; },
      [](O& o) { o.timeout_seconds = 1e12; },
      [](O& o) { o.threads = 0; },
      [](O& o) { o.threads = 100'000; },
  };
  int number = 0;
  for (const auto& mistake : kMistakes) {
    EXPECT_THROW(make_reward(with(mistake)), InputError) << "mistake " << number;
    ++number;
  }
}

TEST(RewardOptionsTest, EachFunctionIsMadeByItsName) {
  for (const std::string name : {"auto", "gsm8k", "gsm8k_flexible", "math", "math_strict", "code",
                                 "code_partial", "countdown", "countdown_trace", "exact", "regex",
                                 "command", "http", "format", "length", "repetition"}) {
    const auto reward = make_reward(with([&](RewardOptions& o) {
      o.functions = {name};
      if (name == "regex") o.regex = "a";
      if (name == "command") o.command = "cat";
      if (name == "http") o.http = {"http://localhost:5000/get_reward"};
    }));
    EXPECT_EQ(reward->name(), name);
  }
}

TEST(RewardOptionsTest, NamesSelectTheMethod) {
  const RewardInput text{.response = "it is 42", .ground_truth = "42"};
  const auto score = [&](const std::string& name) {
    return make_reward(with([&](RewardOptions& o) { o.functions = {name}; }))->score(text).score;
  };
  EXPECT_EQ(score("gsm8k"), 0);
  EXPECT_EQ(score("gsm8k_flexible"), 1);
  EXPECT_EQ(score("math"), 1);
  EXPECT_EQ(score("math_strict"), 0);
}

TEST(WeightedRewardTest, SumsItsPartsAndReportsThem) {
  const auto reward = make_reward(with([](RewardOptions& o) {
    o.functions = {"gsm8k", "regex"};
    o.weights = {2, -0.5};
    o.regex = "because";
  }));
  EXPECT_EQ(reward->name(), "gsm8k+regex");
  const RewardResult result = reward->score({.response = "because #### 42", .ground_truth = "42"});
  EXPECT_EQ(result.score, 1.5);
  EXPECT_EQ(result.extras, (std::map<std::string, double>{{"gsm8k", 1}, {"regex", 1}}));
  EXPECT_EQ(reward->score({.response = "#### 42", .ground_truth = "42"}).score, 2);
  EXPECT_THROW(reward->check_row({.ground_truth = "none ####  "}), InputError);
}

TEST(WeightedRewardTest, SingleFunctionMayHaveAWeight) {
  const auto reward =
      make_reward(with([](RewardOptions& o) { o.functions = {"exact"}, o.weights = {3}; }));
  EXPECT_EQ(reward->score({.response = "a", .ground_truth = "a"}).score, 3);
}

TEST(WeightedRewardTest, AnswerIsThatOfTheFirstPartThatReadsOne) {
  const auto answer = [](const std::vector<std::string>& functions, std::string_view response) {
    RewardOptions options;
    options.functions = functions;
    if (std::ranges::count(functions, "regex") > 0) options.regex = "is (\\d+)";
    return make_reward(options)->score({.response = response, .ground_truth = "42"}).answer;
  };
  EXPECT_EQ(answer({"gsm8k"}, "so #### 1,234"), "1234");
  EXPECT_EQ(answer({"gsm8k"}, "none"), "");
  EXPECT_EQ(answer({"math"}, "\\boxed{ x + 1 }"), "x + 1");
  EXPECT_EQ(answer({"exact"}, " 42\n"), "42");
  EXPECT_EQ(answer({"regex"}, "it is 7"), "7");
  EXPECT_EQ(answer({"format"}, "<think></think>"), "");
  EXPECT_EQ(answer({"format", "gsm8k", "regex"}, "it is 7 #### 8"), "8");
}

TEST(WeightedRewardTest, ErrorNamesThePart) {
  const auto reward = make_reward(with([](RewardOptions& o) { o.functions = {"exact", "auto"}; }));
  try {
    reward->score({.data_source = "tlt/countdown_trace", .response = "a", .ground_truth = "b"});
    FAIL();
  } catch (const RewardError& error) {
    EXPECT_EQ(error.reward(), "countdown_trace");
  }
}

TEST(SourceRewardTest, DataSourceSelectsTheReward) {
  const auto reward = make_reward({});
  const auto score = [&](std::string_view source, std::string_view text, std::string_view truth) {
    return reward
        ->score(
            {.data_source = source, .response = text, .raw_response = text, .ground_truth = truth})
        .score;
  };
  EXPECT_EQ(score("openai/gsm8k", "#### 7", "7"), 1);
  EXPECT_EQ(score("HuggingFaceH4/MATH-500", "\\boxed{\\frac{2}{4}}", "0.5"), 1);
  EXPECT_EQ(score("aime2024", "\\boxed{034}", "34"), 1);
  EXPECT_EQ(score("countdown", "<answer>3+4</answer>", "3,4:7"), 1);
  EXPECT_EQ(score("Jiayi-Pan/countdown-3to4", "<answer>3*4</answer>", "3,4:7"), 0.1);
  EXPECT_EQ(score("tlt/countdown_trace", "<answer>3+4</answer>", "3,4:7"), 0);
  EXPECT_EQ(score("taco", "no code", R"({"inputs": ["1"], "outputs": ["2"]})"), 0);
  EXPECT_EQ(score("tlt/countdown_trace", "</think><answer>3+4</answer><eos>", "3,4:7"), 1);
}

TEST(SourceRewardTest, CheckRowRejectsUnknownDataSource) {
  const auto reward = make_reward({});
  EXPECT_NO_THROW(reward->check_row({.data_source = "openai/gsm8k", .ground_truth = "7"}));
  EXPECT_THROW(reward->check_row({.data_source = "openai/gsm8k", .ground_truth = ""}), InputError);
  EXPECT_NO_THROW(reward->check_row({.data_source = "lighteval/MATH", .ground_truth = "x^2"}));
  EXPECT_THROW(reward->check_row({.data_source = "openai/math", .ground_truth = "7"}), InputError);
  EXPECT_THROW(reward->check_row({.ground_truth = "7"}), InputError);
}

TEST(RewardNeedsTest, NeedsAreThoseOfItsParts) {
  RewardOptions options;
  EXPECT_TRUE(make_reward(options)->needs().data_source);
  options.functions = {"format", "length"};
  const RewardNeeds form = make_reward(options)->needs();
  EXPECT_FALSE(form.ground_truth || form.data_source);
  EXPECT_TRUE(form.response_tokens);
  options.functions = {"format", "regex"};
  options.regex = "a";
  EXPECT_FALSE(make_reward(options)->needs().ground_truth);
  options.regex = "(a)";
  EXPECT_TRUE(make_reward(options)->needs().ground_truth);
  EXPECT_FALSE(make_reward(options)->needs().data_source);
}

}  // namespace
}  // namespace tlt::reward
