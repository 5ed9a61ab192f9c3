// JSON lines: one JSON value per line, read and written as a stream.
//
// Threading  one thread at a time for each object.
//
//   JsonLinesReader reader("prompts.jsonl");
//   nlohmann::json row;
//   while (reader.try_next(row)) … use row; reader.place() is "prompts.jsonl:17" …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/files.h"

namespace tlt {

class JsonLinesReader {
 public:
  static constexpr int64_t kMaxLineBytes = int64_t{64} << 20;

  explicit JsonLinesReader(const std::string& path, int64_t max_line_bytes = kMaxLineBytes);
  // From an open file: JsonLinesReader(open_input(path)) accepts "-" for standard input.
  explicit JsonLinesReader(FileHandle file, int64_t max_line_bytes = kMaxLineBytes);

  // The next row; false at the end. Empty lines are skipped. Throws InputError with path and line
  // for a line that is not JSON, is too long or exceeds a limit of json_limits.h.
  [[nodiscard]] bool try_next(nlohmann::json& row);
  [[nodiscard]] bool try_next(nlohmann::ordered_json& row);  // members in the order of the file

  // Line number of the last row, from 1, and the location for error messages.
  int64_t line() const { return line_; }
  std::string place() const;

 private:
  bool try_read_line();
  template <class Json>
  bool try_parse_next(Json& row);

  const int64_t max_line_bytes_;
  FileHandle file_;
  std::string buffer_;  // bytes read but not used yet begin at used_
  size_t used_ = 0;
  int64_t line_ = 0;
  std::string text_;  // the line
};

class JsonLinesWriter {
 public:
  enum class Mode { kReplace, kAppend };

  explicit JsonLinesWriter(const std::string& path, Mode mode = Mode::kReplace);

  // The destructor writes the rest but cannot report an error: call flush() at the end.
  ~JsonLinesWriter();
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  JsonLinesWriter& operator=(const JsonLinesWriter&) = delete;

  // Appends a row. Bytes that are not UTF-8 (a response cut inside a character) become U+FFFD.
  void write(const nlohmann::json& row);
  void write(const nlohmann::ordered_json& row);

  // Passes all rows to the operating system.
  void flush();

 private:
  void write_line(std::string_view text);

  FileHandle file_;
  std::string buffer_;
};

}  // namespace tlt
