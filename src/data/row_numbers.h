// RowNumbers: numbers the rows of a split over all its files, up to the split's largest number of
// rows.
//
// Threading  one thread.
//
//   while (!numbers.is_full() && rows->try_next(row)) add(row, numbers.next());
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "data/countdown_source.h"
#include "data/data_options.h"

namespace tlt::data {

class RowNumbers {
 public:
  RowNumbers(const DataOptions& options, Split split)
      : is_held_out_(split == Split::kValidation), most_(options.files_of(split).max_rows) {}

  bool is_full() const { return used_ >= most_; }
  // REQUIRES: !is_full().
  int64_t next() { return used_++; }

  struct Generated {
    CountdownSource source;  // as many rows as are left
    int64_t first_row = 0;
  };
  // The rows of a generator; InputError as CountdownSource::parse().
  Generated generated(const std::string& file, CountdownSource::Use use) {
    Generated rows{CountdownSource::parse(file, is_held_out_, use), used_};
    rows.source.size = std::min(rows.source.size, most_ - used_);
    used_ += rows.source.size;
    return rows;
  }

 private:
  const bool is_held_out_;
  const int64_t most_;
  int64_t used_ = 0;
};

}  // namespace tlt::data
