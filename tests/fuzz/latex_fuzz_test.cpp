// SPDX-License-Identifier: Apache-2.0
#include "math_equal/latex_parser.h"
#include "math_equal/math_equal.h"
#include "reward/math.h"
#include "tests/support/fuzz.h"

namespace tlt::tests {
namespace {

const std::vector<std::string> kLatexWords = {"\\frac",
                                              "\\frac{",
                                              "\\sqrt",
                                              "\\sqrt[3]{",
                                              "\\boxed{",
                                              "\\left(",
                                              "\\right)",
                                              "\\text{",
                                              "\\pi",
                                              "\\infty",
                                              "\\cdot",
                                              "\\times",
                                              "\\pm",
                                              "\\cup",
                                              "\\setminus",
                                              "\\in",
                                              "\\leq",
                                              "\\begin{pmatrix}",
                                              "\\end{pmatrix}",
                                              "\\begin{array}{cc}",
                                              "\\end{array}",
                                              "\\\\",
                                              "&",
                                              "\\{",
                                              "\\}",
                                              "\\langle",
                                              "\\rangle",
                                              "\\lfloor",
                                              "\\rfloor",
                                              "\\binom",
                                              "\\log_",
                                              "\\sin^{-1}",
                                              "\\arctan",
                                              "\\overline{",
                                              "\\mathbb{R}",
                                              "\\circ",
                                              "\\%",
                                              "\\$",
                                              "^",
                                              "_",
                                              "^{",
                                              "}",
                                              "{",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              "|",
                                              "!",
                                              "%",
                                              "1e",
                                              "1e999999999",
                                              "0.\\overline{3}",
                                              "_8",
                                              "1\\frac45",
                                              "x",
                                              "y",
                                              "i",
                                              "e",
                                              "sqrt(",
                                              "and",
                                              " cm",
                                              " miles per hour",
                                              "=",
                                              "<",
                                              "!=",
                                              ",",
                                              ";",
                                              ":",
                                              "\xc2\xb2",
                                              "\xe2\x88\x9a",
                                              "\xcf\x80",
                                              "answer is ",
                                              "$",
                                              "\\boxed",
                                              "99999999999999999999!",
                                              "2^2^2^2^2^2^2",
                                              "\n"};

std::string kinds_of(const std::optional<math_equal::MathTree>& tree) {
  if (!tree) return "none";
  std::set<char> kinds;
  for (const math_equal::MathNode& node : tree->nodes) {
    kinds.insert(static_cast<char>('a' + static_cast<int>(node.kind)));
    for (const int child : node.children)
      TLT_CHECK(child >= 0 && child < std::ssize(tree->nodes), child);
  }
  return std::string(kinds.begin(), kinds.end());
}

// The first line is one answer, the rest the other, and the whole a response.
std::string judge(const std::string& text) {
  const size_t cut = std::min(text.find('\n'), text.size());
  const std::string a = text.substr(0, cut), b = text.substr(std::min(cut + 1, text.size()));
  try {
    const math_equal::MathJudgement judgement = math_equal::judge_math(a, b);
    TLT_CHECK(judgement.is_equal == math_equal::judge_math(b, a).is_equal, "the order matters");
    for (const auto method : {reward::MathMethod::kStrict, reward::MathMethod::kFlexible})
      reward::MathReward(method).score({.response = text, .ground_truth = a});
    return kinds_of(math_equal::try_parse_math(a)) + " " + kinds_of(math_equal::try_parse_math(b)) +
           (judgement.is_equal ? " equal" : "");
  } catch (const InputError& error) {
    throw std::logic_error(error.what());  // an answer of a model must not be an InputError
  }
}

TEST(LatexFuzzTest, AnyTwoAnswersAreCompared) {
  FuzzPlan plan{.name = "latex", .dictionary = kLatexWords, .inputs = 10000, .max_bytes = 10000};
  std::istringstream lines(read_text(TLT_SOURCE_DIR "/tests/golden/math_pairs.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto pair = nlohmann::json::parse(line);
    plan.corpus.push_back(pair.at("a").get<std::string>() + "\n" + pair.at("b").get<std::string>());
  }
  fuzz(plan, judge);
}

}  // namespace
}  // namespace tlt::tests
