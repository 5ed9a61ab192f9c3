// The tests of a row for the reward code, the code in a response, and the comparison of outputs. No
// code is run here (code.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::reward {

struct CodeTest {
  enum class Kind { kOutput, kResult, kStatements } kind;
  nlohmann::ordered_json request;  // for the sandbox, without the code
  std::string wanted_output;       // kOutput
  nlohmann::ordered_json wanted;   // kResult

  // Whether the output of a run that ended with kOk passes the test. Statements are judged inside
  // the sandbox, in a process without the code; their output is the verdict.
  bool is_passed_by(const std::string& output) const;

  // Maximum size of a correct output, with space for blanks.
  int64_t most_output_bytes() const;
};

// Formats as in code.h. Throws InputError if there is no test or the format is unknown.
std::vector<CodeTest> parse_code_tests(std::string_view ground_truth);

// nullopt: the response has no closed code block.
std::optional<std::string> code_of(std::string_view response);

// Compares line by line without blanks at the ends of lines and empty lines at the end; else word
// by word, where numbers with a point are equal that differ by at most 1e-6, or 1e-6 of the larger; a
// number with a point equals one without only if they differ by at most 1e-6.
bool is_same_output(std::string_view got, std::string_view wanted);

}  // namespace tlt::reward
