// ParquetRows: the rows of a Parquet file as JSON objects, in order.
//
// Lists become lists, structs and maps with string keys objects, dates, times and decimals strings;
// nulls stay null. Error messages name the column.
//
// Owns       the open file and one batch of kBatchRows rows. Memory is bounded by that batch and
//            one page of each column, whatever the size of the file and its row groups, and by the
//            limits below: a small file can stand for any number of bytes.
// Not here   which fields a row needs (dataset.h); other file formats (rows.h).
// Threading  one thread at a time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/rows.h"

namespace tlt::data {

class ParquetRows final : public RowReader {
 public:
  static constexpr int64_t kBatchRows = 256;
  static constexpr int64_t kMaxRowBytes = int64_t{64} << 20;  // in memory, as those that follow
  static constexpr int64_t kMaxDecodedPerByte = 100;  // all rows, for each byte of the file …
  static constexpr int64_t kMinDecodedBytes = int64_t{64} << 20;  // … or this many, if more

  struct Column {
    std::string name;
    std::string type;  // in Arrow's notation: "list<element: struct<role: string, …>>"
  };

  // InputError: no such file, or not a complete Parquet file.
  explicit ParquetRows(const std::string& path);
  ~ParquetRows() override;

  // InputError, with file and row: a damaged page; with its column: a string that is not UTF-8, a
  // row that exceeds a limit, an object with more than kMaxJsonMembers members.
  [[nodiscard]] bool try_next(nlohmann::ordered_json& row) override;
  std::string place() const override;

  int64_t size() const;
  int64_t row_groups() const;
  const std::vector<Column>& columns() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace tlt::data
