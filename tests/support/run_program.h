// run_program: runs build/tlt as a user would, to its end.
//
//   const Ended ended = run_program({"generate", "--model", folder, …});
//   EXPECT_EQ(ended.exit_code, 2) << ended.err;
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "tests/support/program.h"

namespace tlt::apps {

struct Ended {
  int exit_code = -1;  // 128 + n: signal n
  std::string out, err;
};

// A folder of the current test, empty at its start.
inline std::string scratch_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = ::testing::TempDir() + "tlt_" + test->test_suite_name() + "_" +
                             test->name() + "_" + std::to_string(getpid());
  static std::string last;
  if (folder != last) std::filesystem::remove_all(folder);
  last = folder;
  make_folder(folder);
  return folder;
}

// Runs the program under test with these words and `input` as standard input.
inline Ended run_program(const std::vector<std::string>& words, const std::string& input = "") {
  const std::string folder = scratch_folder() + "/program";
  make_folder(folder);
  const tests::Streams streams{
      .out = folder + "/out", .err = folder + "/err", .in = folder + "/in"};
  write_file_atomic(streams.in, input);
  const int exit_code = tests::Program(words, streams).wait();
  constexpr int64_t kMaxBytes = 1 << 26;
  return {exit_code, read_file(streams.out, kMaxBytes), read_file(streams.err, kMaxBytes)};
}

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

inline std::vector<nlohmann::json> json_file(const std::string& path) {
  return json_lines(read_file(path, 1 << 26));
}

// Writes a file in the test's scratch folder; returns its path.
inline std::string scratch_file(const std::string& name, const std::string& text) {
  const std::string path = scratch_folder() + "/" + name;
  write_file_atomic(path, text);
  return path;
}

inline std::string golden_model(const std::string& name) {
  return std::string(TLT_SOURCE_DIR) + "/tests/golden/models/" + name;
}
inline std::string golden_tokenizer(const std::string& name) {
  return std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/" + name;
}

// A writable copy of a golden model.
inline std::string copied_model(const std::string& name) {
  const std::string folder = scratch_folder() + "/" + name;
  std::filesystem::copy(
      golden_model(name), folder,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  return folder;
}

// The last error line of the program on stderr, without "tlt …: "; empty if there is none.
inline std::string complaint(const Ended& ended, const std::string& command) {
  const std::string mark = "tlt " + command + ": ";
  const size_t at = ended.err.rfind(mark);
  return at == std::string::npos ? "" : ended.err.substr(at + mark.size());
}

}  // namespace tlt::apps
