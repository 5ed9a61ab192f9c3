// SPDX-License-Identifier: Apache-2.0
#include "reward/code_tests.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/text.h"

namespace tlt::reward {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTests = 10'000;
constexpr double kTolerance = 1e-6;
constexpr int64_t kSpareBytes = 4096;
constexpr std::string_view kFence = "```";
constexpr size_t kShownBytes = 80;  // of a faulty test
constexpr const char* kFunctionTest = "a test of a function";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_near(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

// Whether a decimal number is an integer but for its own rounding. Above 2^53 it may be another one.
bool is_same_integer(double a, double b) {
  constexpr double kMaxExact = 9007199254740992;
  return std::abs(a - b) <= kTolerance && std::abs(a) < kMaxExact && std::abs(b) < kMaxExact;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  auto lines = split(text, '\n');
  for (auto& line : lines) line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  for (size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::optional<double> number_of(std::string_view word) {
  double number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

bool is_same_word(std::string_view got, std::string_view wanted) {
  if (got == wanted) return true;
  const bool has_point = got.find('.') != got.npos, wants_point = wanted.find('.') != wanted.npos;
  if (!has_point && !wants_point) return false;
  const auto a = number_of(got), b = number_of(wanted);
  if (!a || !b) return false;
  return has_point && wants_point ? is_near(*a, *b) : is_same_integer(*a, *b);
}

// Makes a Json of text in which integers of more than 64 bits, which Json only has as rounded
// numbers, are binary values with their digits.
class ExactParser : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  using nlohmann::detail::json_sax_dom_parser<Json>::json_sax_dom_parser;

  bool number_float(Json::number_float_t number, const std::string& text) {
    if (text.find_first_of(".eE") != text.npos)
      return json_sax_dom_parser::number_float(number, text);
    Json::binary_t digits(std::vector<uint8_t>(text.begin(), text.end()));
    return json_sax_dom_parser::binary(digits);
  }
};

// Discarded if the text is no JSON, or exceeds a limit.
Json parse_exact(std::string_view text) {
  Json json = parse_limited_json(text);
  if (json.is_discarded()) return json;
  ExactParser parser(json, /*allow_exceptions=*/false);
  Json::sax_parse(text, &parser);
  return json;
}

// Integers are equal only exactly, also to a number with a point: 1000000.9 is not 1000000.
bool is_same_number(const Json& got, const Json& wanted) {
  if (!got.is_number() || !wanted.is_number()) return false;
  const double a = got.get<double>(), b = wanted.get<double>();
  const bool has_integer = !got.is_number_float() || !wanted.is_number_float();
  return has_integer ? is_same_integer(a, b) : is_near(a, b);
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as the JSON, whose parser limits the depth
bool is_same_value(const Json& got, const Json& wanted) {
  if (got.is_number_float() || wanted.is_number_float()) return is_same_number(got, wanted);
  if (got.is_array() && wanted.is_array()) return std::ranges::equal(got, wanted, is_same_value);
  if (!got.is_object() || !wanted.is_object()) return got == wanted;
  if (got.size() != wanted.size()) return false;
  return std::ranges::all_of(got.items(), [&](const auto& item) {
    return wanted.contains(item.key()) && is_same_value(item.value(), wanted.at(item.key()));
  });
}

std::string digits_of(const Json& integer) {
  const auto& digits = integer.get_binary();
  return {digits.begin(), digits.end()};
}

// A string, or a list of lines.
std::string text_of(const Json& value) {
  if (value.is_binary()) return digits_of(value);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& line : value) text += text_of(line) + "\n";
  return text;
}

Json json_of(std::string_view text) {
  check_json_limits(text, kFunctionTest);
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK_INPUT(!json.is_discarded(), kFunctionTest, " has ", text.substr(0, kShownBytes),
                  ", which is no JSON");
  return json;
}

// The value with large integers as numbers again, as Json writes them.
// NOLINTNEXTLINE(misc-no-recursion): as deep as the JSON, whose parser limits the depth
Json rounded(Json value) {
  if (value.is_binary()) return std::strtod(digits_of(value).c_str(), nullptr);
  if (value.is_structured())
    for (Json& item : value) item = rounded(std::move(item));
  return value;
}

// A list, or a string with one JSON value per line.
Json arguments_of(const Json& value) {
  if (value.is_array()) return rounded(value);
  TLT_CHECK_INPUT(value.is_string(), "a test of a function has the input ", value.dump(),
                  ", which is no list of arguments");
  Json arguments = Json::array();
  for (const std::string_view line : lines_of(value.get_ref<const std::string&>()))
    arguments.push_back(json_of(line));
  return arguments;
}

// A value, or its JSON; a string that is no JSON is itself wanted.
Json wanted_of(const Json& output) {
  if (!output.is_string()) return output;
  const auto& text = output.get_ref<const std::string&>();
  check_json_limits(text, kFunctionTest);
  return parse_exact(text);
}

CodeTest call_test(const std::string& function, const Json& input, const Json& output) {
  return {.kind = CodeTest::Kind::kResult,
          .request = {{"function", function}, {"arguments", arguments_of(input)}},
          .wanted_output = {},
          .wanted = wanted_of(output)};
}

CodeTest statement_test(const Json& statements) {
  TLT_CHECK_INPUT(statements.is_string(), "a test is ", statements.dump(), "; give statements");
  return {.kind = CodeTest::Kind::kStatements,
          .request = {{"check", statements}},
          .wanted_output = {},
          .wanted = {}};
}

std::vector<CodeTest> tests_of_pairs(const Json& tests) {
  TLT_CHECK_INPUT(tests.contains("inputs") && tests.contains("outputs"),
                  "the tests have neither inputs and outputs nor assert_case");
  const Json &inputs = tests.at("inputs"), &outputs = tests.at("outputs");
  TLT_CHECK_INPUT(inputs.is_array() && outputs.is_array() && inputs.size() == outputs.size(),
                  "the tests' inputs and outputs are no lists of one length");
  const bool is_call = tests.contains("fn_name") && tests.at("fn_name").is_string();
  std::vector<CodeTest> parsed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_call) {
      parsed.push_back(call_test(tests.at("fn_name").get<std::string>(), inputs[i], outputs[i]));
      if (parsed.back().wanted.is_discarded()) parsed.back().wanted = outputs[i];  // a string
    } else {
      parsed.push_back({.kind = CodeTest::Kind::kOutput,
                        .request = {{"stdin", text_of(inputs[i])}},
                        .wanted_output = text_of(outputs[i]),
                        .wanted = {}});
    }
  }
  return parsed;
}

std::vector<CodeTest> tests_of_statements(const Json& list) {
  TLT_CHECK_INPUT(list.is_array(), "the tests' assert_case is no list");
  std::vector<CodeTest> parsed;
  for (const Json& statements : list) parsed.push_back(statement_test(statements));
  return parsed;
}

}  // namespace

bool CodeTest::is_passed_by(const std::string& output) const {
  if (kind == Kind::kStatements) return output == "passed";
  if (kind == Kind::kOutput) return is_same_output(output, wanted_output);
  const Json got = parse_exact(output);
  if (got.is_discarded()) return false;
  const bool is_wrapped = wanted.is_array() && wanted.size() == 1;  // as in verl
  return is_same_value(got, wanted) || (is_wrapped && is_same_value(got, wanted[0]));
}

int64_t CodeTest::most_output_bytes() const {
  const size_t wanted_bytes = kind == Kind::kOutput ? wanted_output.size() : wanted.dump().size();
  return 8 * static_cast<int64_t>(wanted_bytes) + kSpareBytes;  // escapes: "\u00e9"
}

std::vector<CodeTest> parse_code_tests(std::string_view ground_truth) {
  check_json_limits(ground_truth, "the row's tests");
  const Json tests = parse_exact(ground_truth);
  std::vector<CodeTest> parsed;
  if (tests.is_object()) {
    const bool has_statements = tests.contains("assert_case") && !tests.at("assert_case").is_null();
    parsed = has_statements ? tests_of_statements(tests.at("assert_case")) : tests_of_pairs(tests);
  } else if (tests.is_array()) {
    parsed = tests_of_statements(tests);
  } else if (!trimmed(ground_truth).empty()) {
    parsed.push_back(statement_test(std::string(ground_truth)));
  }
  TLT_CHECK_INPUT(!parsed.empty(), "the reward code has no tests for this row");
  TLT_CHECK_INPUT(parsed.size() <= kMaxTests, "the reward code has ", parsed.size(),
                  " tests for this row; the limit is ", kMaxTests);
  return parsed;
}

std::optional<std::string> code_of(std::string_view response) {
  std::optional<std::string> last, last_python;
  for (size_t open = response.find(kFence); open != response.npos;) {
    const size_t line_end = response.find('\n', open);
    if (line_end == response.npos) break;
    const size_t close = response.find(kFence, line_end);
    if (close == response.npos) break;
    const std::string_view language =
        trimmed(response.substr(open + kFence.size(), line_end - open - kFence.size()));
    last = std::string(response.substr(line_end + 1, close - std::min(close, line_end + 1)));
    if (language == "python" || language == "py" || language == "python3") last_python = last;
    open = response.find(kFence, close + kFence.size());
  }
  return last_python ? last_python : last;
}

bool is_same_output(std::string_view got, std::string_view wanted) {
  if (lines_of(got) == lines_of(wanted)) return true;
  return std::ranges::equal(words_of(got), words_of(wanted), is_same_word);
}

}  // namespace tlt::reward
