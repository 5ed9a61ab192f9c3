// SPDX-License-Identifier: Apache-2.0
#include "base/json_lines.h"

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_fault.h"
#include "base/json_limits.h"
#include "base/log.h"

namespace tlt {
namespace {

constexpr size_t kReadBytes = 1 << 18;
constexpr size_t kWriteBytes = 1 << 16;

// The parser's message without the line number, which is always 1.
std::string fault_of(const std::exception& error) {
  const std::string what = json_fault(error);
  const size_t column = what.find("column ");
  return column == std::string::npos ? what : what.substr(column);
}

template <class Json>
std::string dump(const Json& row) {
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

JsonLinesReader::JsonLinesReader(const std::string& path, int64_t max_line_bytes)
    : JsonLinesReader(open_file(path), max_line_bytes) {}

JsonLinesReader::JsonLinesReader(FileHandle file, int64_t max_line_bytes)
    : max_line_bytes_(max_line_bytes), file_(std::move(file)) {}

std::string JsonLinesReader::place() const { return file_.path() + ":" + std::to_string(line_); }

bool JsonLinesReader::try_read_line() {
  size_t end = buffer_.find('\n', used_);
  while (end == std::string::npos) {
    buffer_.erase(0, std::exchange(used_, 0));
    TLT_CHECK_INPUT(static_cast<int64_t>(buffer_.size()) <= max_line_bytes_, file_.path(), ":",
                    line_ + 1, ": a line of more than ", max_line_bytes_,
                    " bytes; give one JSON value per line");
    const size_t before = buffer_.size();
    buffer_.resize(before + kReadBytes);
    buffer_.resize(before + file_.read(buffer_.data() + before, kReadBytes));
    if (buffer_.size() == before) break;
    end = buffer_.find('\n', before);
  }
  if (end == std::string::npos && used_ == buffer_.size()) return false;
  text_ = buffer_.substr(used_, end == std::string::npos ? end : end - used_);
  used_ = end == std::string::npos ? buffer_.size() : end + 1;
  ++line_;
  TLT_CHECK_INPUT(static_cast<int64_t>(text_.size()) <= max_line_bytes_, place(),
                  ": a line of more than ", max_line_bytes_,
                  " bytes; give one JSON value per line");
  if (line_ == 1 && text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
  return true;
}

bool JsonLinesReader::try_next(nlohmann::json& row) { return try_parse_next(row); }
bool JsonLinesReader::try_next(nlohmann::ordered_json& row) { return try_parse_next(row); }

template <class Json>
bool JsonLinesReader::try_parse_next(Json& row) {
  do {
    if (!try_read_line()) return false;
  } while (text_.find_first_not_of(" \t\r") == std::string::npos);
  check_json_limits(text_, place());
  try {
    row = Json::parse(text_);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(place() + ": not JSON; give one JSON value per line (" + fault_of(error) +
                     ")");
  }
  return true;
}

JsonLinesWriter::JsonLinesWriter(const std::string& path, Mode mode)
    : file_(path, O_WRONLY | O_CREAT | (mode == Mode::kAppend ? O_APPEND : O_TRUNC)) {}

JsonLinesWriter::~JsonLinesWriter() {
  try {
    flush();
  } catch (const Error& error) {
    log_error("{}", error.what());
  }
}

void JsonLinesWriter::write(const nlohmann::json& row) { write_line(dump(row)); }
void JsonLinesWriter::write(const nlohmann::ordered_json& row) { write_line(dump(row)); }

void JsonLinesWriter::write_line(std::string_view text) {
  buffer_ += text;
  buffer_ += '\n';
  if (buffer_.size() >= kWriteBytes) flush();
}

void JsonLinesWriter::flush() {
  const std::string bytes = std::exchange(buffer_, {});  // an error must not write them twice
  file_.write(bytes);
}

}  // namespace tlt
