// SPDX-License-Identifier: Apache-2.0
#include "data/rows.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/json_lines.h"
#include "data/parquet_rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

void check_object(const Json& row, const std::string& place) {
  TLT_CHECK_INPUT(row.is_object(), place,
                  ": a row must be a JSON object, like {\"prompt\": \"…\"}");
}

std::string names_of(const Json& row) {
  std::string names;
  for (const auto& [name, value] : row.items())
    names.append(names.empty() ? "" : ", ").append(name);
  return names.empty() ? "none" : names;
}

class LineRows final : public RowReader {
 public:
  explicit LineRows(const std::string& path) : lines_(path) {}

  bool try_next(Json& row) override {
    if (!lines_.try_next(row)) return false;
    check_object(row, place());
    return true;
  }

  std::string place() const override { return lines_.place(); }

 private:
  JsonLinesReader lines_;
};

// Reads a list of rows value by value.
class ListRows final : public RowReader {
 public:
  explicit ListRows(const std::string& path) : path_(path), file_(open_file(path)) {}

  bool try_next(Json& row) override {
    if (is_done_) return false;
    if (++number_ == 1) read_begin();
    read_value();
    const bool is_blank = text_.find_first_not_of(kBlanks) == text_.npos;
    if (is_done_ && is_blank && number_ == 1) return false;  // []
    check_json_limits(text_, place());
    row = Json::parse(text_, nullptr, /*allow_exceptions=*/false);
    TLT_CHECK_INPUT(!row.is_discarded(), place(),
                    ": not JSON; give a list of objects, like [{\"prompt\": \"…\"}, …]");
    check_object(row, place());
    return true;
  }

  std::string place() const override { return path_ + ": row " + std::to_string(number_); }

 private:
  static constexpr std::string_view kBlanks = " \t\r\n";
  static constexpr size_t kPieceBytes = 1 << 18;
  static constexpr int kEnd = -1;

  // The next byte; kEnd at the end of the file.
  int next_byte() {
    if (used_ == piece_.size()) {
      piece_.resize(kPieceBytes);
      piece_.resize(file_.read(piece_.data(), kPieceBytes));
      used_ = 0;
    }
    return piece_.empty() ? kEnd : static_cast<unsigned char>(piece_[used_++]);
  }

  // The next byte that is not blank.
  int next_mark() {
    int byte = next_byte();
    while (byte != kEnd && kBlanks.find(static_cast<char>(byte)) != kBlanks.npos)
      byte = next_byte();
    return byte;
  }

  void read_begin() {
    int mark = next_mark();
    for (const int byte : {0xEF, 0xBB, 0xBF})  // a byte order mark
      if (mark == byte) mark = next_mark();
    TLT_CHECK_INPUT(mark == '[', path_,
                    ": not a JSON list of rows; a file with one row per line is named .jsonl");
  }

  // Reads into text_ up to the comma after the value, or to the end of the list.
  void read_value() {
    text_.clear();
    int64_t depth = 0;
    bool is_string = false, is_escape = false;
    for (int byte = next_byte(); byte != kEnd; byte = next_byte()) {
      if (is_string) {
        is_string = is_escape || byte != '"';
        is_escape = !is_escape && byte == '\\';
      } else if (depth <= 0 && (byte == ',' || byte == ']')) {
        is_done_ = byte == ']';
        TLT_CHECK_INPUT(!is_done_ || next_mark() == kEnd, path_,
                        ": there is more after the list of rows");
        return;
      } else {
        is_string = byte == '"';
        if (byte == '[' || byte == '{') ++depth;
        if (byte == ']' || byte == '}') --depth;
      }
      TLT_CHECK_INPUT(std::ssize(text_) < JsonLinesReader::kMaxLineBytes, place(),
                      ": a row of more than ", JsonLinesReader::kMaxLineBytes, " bytes");
      text_ += static_cast<char>(byte);
    }
    throw InputError(path_ + ": the list of rows has no end; copy the file again");
  }

  const std::string path_;
  FileHandle file_;
  std::string piece_;  // bytes of the file, used up to used_
  size_t used_ = 0;
  std::string text_;  // of the row
  int64_t number_ = 0;
  bool is_done_ = false;  // the list has ended
};

// The value, which may be null; nullptr: the row has no such field.
const Json* find_value(const Json& row, std::string_view name) {
  if (!row.is_object()) return nullptr;
  const auto found = row.find(std::string(name));
  if (found != row.end()) return &*found;
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = row.find(std::string(name.substr(0, dot)));
  return outer == row.end() ? nullptr : find_value(*outer, name.substr(dot + 1));
}

}  // namespace

std::unique_ptr<RowReader> open_rows(const std::string& path) {
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind == ".jsonl") return std::make_unique<LineRows>(path);
  if (kind == ".parquet") return std::make_unique<ParquetRows>(path);
  if (kind == ".json") return std::make_unique<ListRows>(path);
  throw InputError(path +
                   ": not a data file that can be read; give .parquet, .jsonl, .json or "
                   "countdown:seed=…");
}

void for_each_row(const std::string& path,
                  const std::function<void(const Json&, const std::string&)>& visit) {
  const std::unique_ptr<RowReader> rows = open_rows(path);
  for (Json row; rows->try_next(row);) visit(row, rows->place());
}

const Json* find_field(const Json& row, std::string_view name) {
  const Json* found = find_value(row, name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json& require_field(const Json& row, std::string_view name, const std::string& place,
                          std::string_view option) {
  const Json* field = find_value(row, name);
  TLT_CHECK_INPUT(field == nullptr || !field->is_null(), place, ": the field \"", name,
                  "\" is null; give it a value, or set ", option);
  TLT_CHECK_INPUT(field != nullptr, place, ": no field \"", name, "\"; set ", option,
                  " (the row has: ", names_of(row), ")");
  return *field;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace tlt::data
