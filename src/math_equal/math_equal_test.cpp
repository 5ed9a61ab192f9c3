// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_equal.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "math_equal/latex_parser.h"

namespace tlt::math_equal {
namespace {

using Json = nlohmann::json;

const std::string kGolden = std::string(TLT_SOURCE_DIR) + "/tests/golden/";

// tests/tools/make_math_goldens.py has SymPy's results, and why ours differ where they do.
TEST(MathEqualTest, ResultsMatchSymPy) {
  std::ifstream file(kGolden + "math_pairs.jsonl");
  int pairs = 0, exceptions = 0;
  for (std::string line; std::getline(file, line); ++pairs) {
    const Json row = Json::parse(line);
    const std::string a = row["a"], b = row["b"];
    const bool want = row["equal"];
    ASSERT_TRUE(want == row["sympy"] || !row.value("why", "").empty()) << line;
    exceptions += want != row["sympy"] ? 1 : 0;
    EXPECT_EQ(math_equal(a, b), want) << a << "  and  " << b << "  (" << row["kind"] << ")";
    EXPECT_EQ(math_equal(b, a), want) << b << "  and  " << a << "  (" << row["kind"] << ")";
    EXPECT_TRUE(math_equal(a, a)) << a;
  }
  EXPECT_GE(pairs, 300);
  EXPECT_LE(exceptions, pairs / 10);
}

std::vector<std::string> math500() {
  const std::string path = std::string(TLT_SHARED_DATA) + "/math/math500.json";
  std::vector<std::string> answers;
  if (*TLT_SHARED_DATA == '\0' || !std::filesystem::exists(path)) return answers;
  std::ifstream file(path);
  for (const Json& row : Json::parse(file)) answers.push_back(row["answer"]);
  return answers;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Inserts a blank at every position between two tokens where TeX allows one.
std::string spaced(const std::string& answer) {
  std::string text;
  for (size_t i = 0; i < answer.size(); ++i) {
    text += answer[i];
    const bool ends_word = std::string("+-=(){}").find(answer[i]) != std::string::npos;
    const bool in_command = i > 0 && answer[i - 1] == '\\';
    const bool in_text = answer.find("\\text") != answer.npos ||
                         answer.find("\\mbox") != answer.npos ||
                         answer.find("\\begin") != answer.npos;
    if (ends_word && !in_command && !in_text) text += "\\, ";
  }
  return text;
}

// Ten change every answer, the others only answers that contain what they rewrite.
const std::vector<std::pair<std::string, std::function<std::string(std::string)>>> kRewritings = {
    {"parentheses", [](const std::string& a) { return "\\(" + a + "\\)"; }},
    {"brackets", [](const std::string& a) { return "\\[ " + a + " \\]"; }},
    {"double dollars", [](const std::string& a) { return "$$" + a + "$$"; }},
    {"style in a box", [](const std::string& a) { return "\\boxed{\\displaystyle " + a + "}"; }},
    {"lines", [](const std::string& a) { return "\n" + a + " \t\r\n"; }},
    {"dollars in a box", [](const std::string& a) { return "\\boxed{$" + a + "$}"; }},
    {"thin spaces", [](const std::string& a) { return "\\, " + a + "\\; "; }},
    {"dollars", [](const std::string& a) { return "$" + a + "$"; }},
    {"full stop", [](const std::string& a) { return a + "."; }},
    {"box", [](const std::string& a) { return "\\boxed{" + a + "}"; }},
    {"blanks", spaced},
    {"display fractions", [](const std::string& a) { return replaced(a, "\\frac", "\\dfrac"); }},
    {"no left and right",
     [](const std::string& a) { return replaced(replaced(a, "\\left", ""), "\\right", ""); }},
    {"style", [](const std::string& a) { return "\\displaystyle " + a + " \\ "; }},
    {"mathrm", [](const std::string& a) { return replaced(a, "\\text{", "\\mathrm{"); }},
    {"bmatrix", [](const std::string& a) { return replaced(a, "pmatrix", "bmatrix"); }},
    {"degree", [](const std::string& a) { return replaced(a, "^\\circ", "^{\\circ}"); }},
    {"root braces", [](const std::string& a) { return replaced(a, "\\sqrt2", "\\sqrt{2}"); }},
    {"unicode",
     [](const std::string& a) { return replaced(replaced(a, "\\pi", "π "), "-", "−"); }}};

TEST(MathEqualTest, Math500AnswersEqualTheirRewritings) {
  const auto answers = math500();
  if (answers.empty()) GTEST_SKIP() << "no TLT_SHARED_DATA/math/math500.json";
  ASSERT_EQ(answers.size(), 500U);
  for (const std::string& answer : answers) {
    std::set<std::string> others;
    for (const auto& [name, rewrite] : kRewritings) {
      others.insert(rewrite(answer));
      EXPECT_TRUE(math_equal(answer, rewrite(answer))) << name << ": " << rewrite(answer);
      EXPECT_TRUE(math_equal(rewrite(answer), answer)) << name << ": " << rewrite(answer);
    }
    others.erase(answer);
    EXPECT_GE(others.size(), 10U) << answer;
  }
}

// Rewritings that need mathematics: only for scalars that are parsed as such.
TEST(MathEqualTest, Math500NumbersEqualTheirTransformations) {
  const auto answers = math500();
  if (answers.empty()) GTEST_SKIP() << "no TLT_SHARED_DATA/math/math500.json";
  int numbers = 0;
  for (const std::string& answer : answers) {
    const auto tree = try_parse_math(answer);
    if (!tree || !is_scalar(tree->nodes[tree->root].kind) || tree->nodes[tree->root].is_unit ||
        tree->nodes[tree->root].has_plus_minus ||
        tree->nodes[tree->root].kind == NodeKind::kBased ||
        tree->nodes[tree->root].kind == NodeKind::kMeasured) {
      continue;
    }
    ++numbers;
    const std::string one = "{" + answer + "}";  // in brackets, 58,500 is a pair
    for (const std::string& same :
         {one + "+0", "2" + one + "-" + one, "\\frac{7" + one + "}{7}", one + "^2/" + one,
          one + "\\cdot\\sqrt2\\cdot\\sqrt{\\frac{1}{2}}", "-{-" + one + "}"}) {
      if (answer == "0" && same.find("^2") != same.npos) continue;
      EXPECT_TRUE(math_equal(answer, same)) << answer << "  and  " << same;
    }
    for (const std::string& other : {one + "+10^{-40}", one + "+1", "1.00001" + one + "+10^{-9}"}) {
      EXPECT_FALSE(math_equal(answer, other)) << answer << "  and  " << other;
    }
  }
  EXPECT_GE(numbers, 400);
}

TEST(MathEqualTest, Math500PairsAgreeWithSymPy) {
  const auto answers = math500();
  if (answers.empty()) GTEST_SKIP() << "no TLT_SHARED_DATA/math/math500.json";
  std::vector<size_t> class_of(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) class_of[i] = i;
  std::ifstream file(kGolden + "math500_classes.json");
  for (const Json& members : Json::parse(file)) {
    for (const size_t member : members) class_of[member] = members[0];
  }
  // Equal to SymPy, not to math-verify, which reads no pi here; and both are 36, but not each
  // other.
  const std::set<std::pair<std::string, std::string>> reversed = {{"\\pi", "180^\\circ"},
                                                                  {"\\$36", "36^\\circ"}};
  int equal = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const bool is_reversed = reversed.contains(
          std::pair(std::max(answers[i], answers[k]), std::min(answers[i], answers[k])));
      const bool want = (class_of[i] == class_of[k]) != is_reversed;
      equal += want ? 1 : 0;
      EXPECT_EQ(math_equal(answers[i], answers[k]), want) << answers[i] << "  and  " << answers[k];
    }
  }
  EXPECT_GT(equal, 1000);
}

// ---- time

std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (!part.empty() && text.size() + part.size() <= bytes) text += part;
  return text;
}

// Text of random meaningful parts, nested and cut anywhere.
std::string random_text(RandomStream& random) {
  static const std::vector<std::string> kParts = {"\\frac",
                                                  "{",
                                                  "}",
                                                  "(",
                                                  ")",
                                                  "[",
                                                  "]",
                                                  "\\sqrt",
                                                  "^",
                                                  "_",
                                                  "1",
                                                  "23",
                                                  "0.5",
                                                  "x",
                                                  "y",
                                                  "\\pi",
                                                  "e",
                                                  "i",
                                                  "+",
                                                  "-",
                                                  "*",
                                                  "/",
                                                  "!",
                                                  "\\%",
                                                  "^\\circ",
                                                  "\\pm ",
                                                  ",",
                                                  "=",
                                                  "<",
                                                  "\\cup ",
                                                  "\\{",
                                                  "\\}",
                                                  "|",
                                                  "\\sin ",
                                                  "\\ln ",
                                                  "\\binom",
                                                  "&",
                                                  "\\\\",
                                                  "9999",
                                                  "\\infty ",
                                                  " ",
                                                  "$",
                                                  "\\left(",
                                                  "\\right)",
                                                  "\\text{cm}",
                                                  "\\begin{pmatrix}",
                                                  "\\end{pmatrix}",
                                                  "1000!",
                                                  "10^{999999999}",
                                                  "\\sqrt[7]{",
                                                  "π",
                                                  "é",
                                                  "\\unknown",
                                                  "\\",
                                                  "\n",
                                                  "1e999",
                                                  "0.\\overline{3}"};
  std::string text;
  for (uint64_t n = random.below(random.below(10) == 0 ? 400 : 30); n > 0; --n) {
    text += kParts[random.below(kParts.size())];
  }
  return text;
}

// Parts whose repetition would slow a naive comparison down.
std::string adversarial_text(RandomStream& random) {
  static const std::vector<std::string> kHeads = {"",
                                                  "(",
                                                  "{",
                                                  "\\frac{1}{",
                                                  "\\sqrt{",
                                                  "\\left(",
                                                  "|",
                                                  "\\{",
                                                  "[",
                                                  "1+",
                                                  "x*",
                                                  "1/",
                                                  "2^",
                                                  "-",
                                                  "3!",
                                                  "\\sin ",
                                                  "1,",
                                                  "x,",
                                                  "\\pm 1,",
                                                  "9^{9}^",
                                                  "\\sqrt{999999999989}+",
                                                  "\\frac{99999999977}{99999999943}+",
                                                  "1e-18+",
                                                  "\\begin{pmatrix}1\\\\",
                                                  "100000!+",
                                                  "\\binom{99999999}{50000}+",
                                                  "x^{",
                                                  "0.1+",
                                                  "\\cup(1,2)",
                                                  "\\overline{1",
                                                  "1,\\!   ",
                                                  "\\text{",
                                                  "e^{x}+",
                                                  "\\ln x+",
                                                  "(1+\\sqrt{2})^{99999999}+",
                                                  "x=",
                                                  "x<"};
  static const std::vector<std::string> kTails = {
      "", ")", "}", "1", "x", "|", "]", "\\}", "1)", "1}", "\\end{pmatrix}"};
  const std::string& head = kHeads[random.below(kHeads.size())];
  const std::string& tail = kTails[random.below(kTails.size())];
  const size_t bytes = size_t{1} << (4 + random.below(10));  // up to 8 KiB: some too long to parse
  return repeated(head, bytes / 2) + kTails[random.below(kTails.size())] +
         repeated(tail, bytes / 2);
}

double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The bound in seconds is of the program that judges answers, whose slowest text takes 3 ms. The
// sanitized one, compiled for short builds, takes 24 ms.
#if defined(__SANITIZE_ADDRESS__)
constexpr double kSlowdown = 5;
#else
constexpr double kSlowdown = 1;
#endif

// The step budget limits the work equally on every machine. The time is checked too: processor
// time, the least of three if the first was above the limit, since a busy machine shares its
// caches.
TEST(MathEqualTest, TimeIsBounded) {
  RandomStream random(2026, {});
  constexpr int kTexts = 100'000;
  constexpr double kMaxSeconds = 0.010 * kSlowdown;
  int64_t most_steps = 0;
  double slowest = 0;
  std::string slowest_text;
  std::string before = "x+1";
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = i % 4 == 0 ? adversarial_text(random) : random_text(random);
    const double start = thread_seconds();
    const MathJudgement judgement = judge_math(text, before);
    double taken = thread_seconds() - start;
    EXPECT_LE(judgement.steps, kMaxMathSteps) << text;
    for (int more = 0; more < 2 && taken > kMaxSeconds; ++more) {
      const double again = thread_seconds();
      judge_math(text, before);
      taken = std::min(taken, thread_seconds() - again);
    }
    EXPECT_LE(taken, kMaxSeconds) << text.size() << " bytes: " << text.substr(0, 200);
    most_steps = std::max(most_steps, judgement.steps);
    if (taken > slowest) slowest = taken, slowest_text = text;
    before = i % 3 == 0 ? text : random.below(2) == 0 ? "\\frac{x}{2}" : text + " ";
  }
  RecordProperty("most_steps", std::to_string(most_steps));
  std::printf("slowest of %d: %.2f ms, %zu bytes, `%.60s`; most steps %lld\n", kTexts,
              1e3 * slowest, slowest_text.size(), slowest_text.c_str(),
              static_cast<long long>(most_steps));
}

// More work than the budget means not equal, on every machine.
TEST(MathEqualTest, ExhaustedBudgetIsNotEqual) {
  EXPECT_TRUE(judge_math("10!", "3628800").is_equal);
  EXPECT_FALSE(judge_math("10!", "3628800", 10).is_equal);
  const MathJudgement huge = judge_math("1000000!", "1000000! + 0");
  EXPECT_FALSE(huge.is_equal);
  EXPECT_LE(huge.steps, kMaxMathSteps);
  EXPECT_TRUE(judge_math("1000000!", "1000000 !").is_equal);  // as strings
}

TEST(MathEqualTest, HostileNumbersTakeLittleTime) {
  std::string tower = "x";
  for (int i = 0; i < 30; ++i) tower = "(" + tower + ")^{999999999}";
  for (const std::string& text :
       {std::string("10^{10^{10}}"), std::string("9^{9^{9^9}}"), std::string("3!!!!!!"),
        std::string("999999999!"), std::string("10^{10^{10}}x"), std::string("(x+10^{9})!"),
        std::string("\\binom{999999999999}{400000000}"), std::string("e^{e^{e^{e^{e^e}}}}"),
        std::string("\\sqrt[999999]{10^{16000}}"), std::string("\\sin(10^{16000}\\pi)"),
        std::string("\\lfloor 10^{16000}\\pi\\rfloor"),
        "0.\\overline{" + repeated("91", 4000) + "}", std::string("2^{-10^{9}}x"),
        std::string("1e999999999"), std::string("x^{-1e99999}"), tower,
        repeated("\\pm", 600) + "5000!", repeated("5000!\\cdot", 3000) + "x"}) {
    const double start = thread_seconds();
    EXPECT_LE(judge_math(text, text + "+0").steps, kMaxMathSteps) << text;
    EXPECT_LE(thread_seconds() - start, 0.020) << text.substr(0, 100);
  }
}

TEST(MathEqualTest, LargeNumbersAreExact) {
  EXPECT_TRUE(math_equal("2^{2000}+1", "1+4^{1000}"));
  EXPECT_FALSE(math_equal("2^{2000}+1", "4^{1000}"));
  EXPECT_TRUE(math_equal("2^{30000}+2^{30000}+1", "1+2^{30001}"));
  EXPECT_TRUE(math_equal("\\frac{2500!}{2498!}", "2500\\cdot2499"));
  EXPECT_TRUE(math_equal("(1+\\sqrt2)^{1000}(\\sqrt2-1)^{1000}x", "x"));
  EXPECT_TRUE(math_equal("\\lfloor\\sqrt{49}\\rfloor+8^{\\frac23}", "11"));
  EXPECT_FALSE(math_equal("10^{100}x+1", "10^{100}x+2"));
  EXPECT_FALSE(math_equal("x\\sin(10^{-20})", "10^{-20}x"));  // equal in double precision
}

TEST(MathEqualTest, RoundingDoesNotChooseTheBranch) {
  EXPECT_TRUE(math_equal("\\ln(e^{i\\pi})", "i\\pi"));
  EXPECT_TRUE(math_equal("\\sqrt{e^{i\\pi}}", "i"));
}

// A sanitized build finds what a thread has not freed.
TEST(MathEqualTest, ThreadsFreeWhatTheyUse) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        EXPECT_TRUE(math_equal("\\sin(\\ln x)n!+2^{999}", "2^{999}+n!\\sin(\\ln x)"));
        EXPECT_TRUE(math_equal("e\\pi\\arctan x", "\\pi e\\arctan x"));
      });
    }
  }
}

TEST(MathEqualTest, EmptyAndInvalidAnswersEqualOnlyThemselves) {
  EXPECT_FALSE(math_equal("", ""));
  EXPECT_FALSE(math_equal("$", "."));
  EXPECT_FALSE(math_equal("", "0"));
  EXPECT_FALSE(math_equal("\\frac{1}{0}", "\\frac{2}{0}"));
  EXPECT_FALSE(math_equal("\\unknown{1}", "\\unknown{2}"));
  EXPECT_TRUE(math_equal("\\unknown{1}", "\\unknown{1}"));
  EXPECT_FALSE(math_equal("\\frac{1}{", "1"));
  EXPECT_FALSE(math_equal(std::string(10'000, '('), "1"));
  EXPECT_FALSE(math_equal(std::string(10'000, '1'), "1"));
}

}  // namespace
}  // namespace tlt::math_equal
