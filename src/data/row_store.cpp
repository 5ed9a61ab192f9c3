// SPDX-License-Identifier: Apache-2.0
#include "data/row_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/check.h"

namespace tlt::data {
namespace {

FileHandle open_nameless_file() {
  static int count = 0;
  const std::filesystem::path disk = "/var/tmp";
  const std::filesystem::path folder =
      std::filesystem::is_directory(disk) ? disk : std::filesystem::temp_directory_path();
  const std::string path =
      folder / ("tlt_rows_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  std::filesystem::remove(path);  // left by a killed process with this id
  FileHandle file(path, O_RDWR | O_CREAT | O_EXCL);
  std::filesystem::remove(path);
  return file;
}

}  // namespace

void RowStore::append(std::string_view row) {
  if (!memory_.empty() && memory_.size() + row.size() > memory_bytes_) write_out();
  const size_t bytes = memory_.size() + row.size();
  // A growing string doubles its capacity and exists twice meanwhile: avoid that for the last
  // growth.
  if (bytes > memory_.capacity() && bytes <= memory_bytes_ && bytes > memory_bytes_ / 2)
    memory_.reserve(memory_bytes_);
  memory_ += row;
  ends_.push_back(in_file_ + static_cast<int64_t>(bytes));
}

void RowStore::write_out() {
  if (!file_.is_open()) file_ = open_nameless_file();
  file_.write(memory_);
  in_file_ += static_cast<int64_t>(memory_.size());
  memory_.clear();
}

std::string RowStore::row(int64_t index) const {
  TLT_CHECK(index >= 0 && index < size(), index, " of ", size());
  const auto i = static_cast<size_t>(index);
  const int64_t begin = i == 0 ? 0 : ends_[i - 1];
  const auto bytes = static_cast<size_t>(ends_[i] - begin);
  if (begin >= in_file_) return memory_.substr(static_cast<size_t>(begin - in_file_), bytes);
  std::string row(bytes, '\0');
  const size_t got = file_.read_at(begin, row.data(), bytes);
  TLT_CHECK(got == bytes, file_.path(), ": ", got, " of ", bytes, " bytes");
  return row;
}

}  // namespace tlt::data
