// Arrow is not instrumented, but its results for a damaged file go through our code.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "data/parquet_rows.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {
namespace {

const std::string kFolder = std::string(TLT_SOURCE_DIR) + "/tests/golden/parquet/";

constexpr size_t kEndBytes = 8;  // length of the footer, "PAR1"

// Offset of the footer, which has all other offsets; 0: none.
size_t footer_of(const std::string& file) {
  size_t bytes = 0;
  for (size_t i = 0; i < 4 && file.size() > kEndBytes; ++i)
    bytes |= static_cast<size_t>(static_cast<unsigned char>(file[file.size() - kEndBytes + i]))
             << 8 * i;
  return bytes + kEndBytes < file.size() ? file.size() - kEndBytes - bytes : 0;
}

// Changes pages or footer, with correct bytes after them; or any bytes.
std::string mutate_file(Mutator& mutator, const std::string& file, const std::string& other) {
  const size_t footer = footer_of(file);
  if (footer == 0 || mutator.one_in(4)) return mutator.bytes(file, other);
  const std::string pages = file.substr(0, footer),
                    text = file.substr(footer, file.size() - kEndBytes - footer);
  if (mutator.one_in(2)) {
    std::string changed = mutator.bytes(pages, other);
    changed.resize(pages.size());  // keeps the footer's offsets correct
    return changed + file.substr(footer);
  }
  const std::string changed = mutator.bytes(text, std::string_view(other).substr(footer_of(other)));
  std::string end;
  for (size_t i = 0; i < 4; ++i) end += static_cast<char>(changed.size() >> 8 * i & 0xff);
  return pages + changed + end + "PAR1";
}

TEST(ParquetFuzzTest, FilesHaveRowsOrAreRejected) {
  FuzzPlan plan{.name = "parquet",
                .dictionary = {"PAR1", "ARROW:schema", "string", "\x15\x02", "\x19\x4c", "\x26"},
                .inputs = 1500,
                .mutate = mutate_file};
  for (const auto& file : std::filesystem::directory_iterator(kFolder))
    if (file.path().extension() == ".parquet") plan.corpus.push_back(read_text(file.path()));
  std::sort(plan.corpus.begin(), plan.corpus.end());
  const TestFolder folder;
  const std::string path = folder / "a.parquet";
  FileHandle file(path, O_RDWR | O_CREAT);
  fuzz(plan, [&](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    try {
      data::ParquetRows rows(path);
      std::string sketch;
      for (const auto& column : rows.columns()) sketch += column.type + ",";
      size_t bytes = 0;
      nlohmann::ordered_json row;
      for (int i = 0; i < 2000 && rows.try_next(row); ++i)
        bytes += row.dump().size();  // throws if not UTF-8
      return sketch + std::string(std::min<size_t>(bytes / 1000, 20), '.');
    } catch (const InputError& error) {
      const std::string message = error.what();
      TLT_CHECK(message.starts_with(path + ": "), message);
      throw InputError(message.substr(path.size()));
    }
  });
}

}  // namespace
}  // namespace tlt::tests
