// SPDX-License-Identifier: Apache-2.0
#include "data/parquet_rows.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "base/json_lines.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kParquetFolder = std::string(TLT_SOURCE_DIR) + "/tests/golden/parquet/";

// Intact files, small ones that stand for a lot of memory.
const std::string kLimitsFolder = kParquetFolder + "limits/";

std::vector<Json> read_all(RowReader& reader) {
  std::vector<Json> rows;
  for (Json row; reader.try_next(row);) rows.push_back(row);
  return rows;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The error message without the folder of the file.
std::string error_of(const std::string& path) {
  try {
    ParquetRows rows(path);
    read_all(rows);
  } catch (const InputError& error) {
    const std::string text = error.what(), folder = path.substr(0, path.rfind('/') + 1);
    return text.starts_with(folder) ? text.substr(folder.size()) : text;
  }
  return "no error";
}

std::string copy_of(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// pyarrow's bytes are {"base64": …} in the golden rows.
Json shown(const Json& value) {
  if (!value.is_binary()) return value;
  const std::string bytes(value.get_binary().begin(), value.get_binary().end());
  return {{"base64", bytes.empty() ? "" : bytes == std::string("\0\xff", 2) ? "AP8=" : "other"}};
}

class ParquetGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ParquetGoldenTest, RowsMatchPyarrow) {
  const std::string path = kParquetFolder + GetParam();
  ParquetRows reader(path + ".parquet");
  const std::vector<Json> rows = read_all(reader);
  std::vector<Json> want;
  if (!text_of_file(path + ".jsonl").empty()) {
    JsonLinesReader lines(path + ".jsonl");
    for (Json row; lines.try_next(row);) want.push_back(row);
  }
  ASSERT_EQ(rows.size(), want.size());
  EXPECT_EQ(reader.size(), std::ssize(want));
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), want[i].size()) << "row " << i + 1;
    for (const auto& [name, value] : rows[i].items())
      EXPECT_EQ(shown(value), want[i].at(name)) << "row " << i + 1 << ", column " << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ParquetGoldenTest,
                         ::testing::Values("verl_gsm8k", "trl", "trl_chat", "types", "wrong_type",
                                           "empty"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ParquetRowsTest, HasColumnsAndRowGroups) {
  const ParquetRows rows(kParquetFolder + "verl_gsm8k.parquet");
  EXPECT_EQ(rows.size(), 24);
  EXPECT_EQ(rows.row_groups(), 3);
  ASSERT_EQ(rows.columns().size(), 5U);
  EXPECT_EQ(rows.columns()[0].name, "data_source");
  EXPECT_EQ(rows.columns()[0].type, "string");
  EXPECT_EQ(rows.columns()[3].name, "reward_model");
  EXPECT_TRUE(rows.columns()[3].type.starts_with("struct<")) << rows.columns()[3].type;
}

TEST(ParquetRowsTest, PlaceIsTheRow) {
  ParquetRows rows(kParquetFolder + "trl.parquet");
  Json row;
  for (int i = 0; i < 251; ++i) ASSERT_TRUE(rows.try_next(row));
  EXPECT_EQ(rows.place(), kParquetFolder + "trl.parquet: row 251");
}

TEST(ParquetRowsTest, OtherFilesAreAnError) {
  EXPECT_TRUE(error_of("/nowhere.parquet").starts_with("nowhere.parquet: cannot open"));
  EXPECT_TRUE(error_of(copy_of("short.parquet", "PAR1"))
                  .starts_with("short.parquet: not a whole Parquet file; copy the file again"));
  EXPECT_TRUE(error_of(copy_of("no.parquet", std::string(1000, 'x')))
                  .starts_with("no.parquet: not a whole Parquet file; copy the file again"));
  const std::string whole = text_of_file(kParquetFolder + "verl_gsm8k.parquet");
  EXPECT_TRUE(error_of(copy_of("cut.parquet", whole.substr(0, whole.size() / 2)))
                  .starts_with("cut.parquet: not a whole Parquet file; copy the file again"));
}

TEST(ParquetRowsTest, StringThatIsNotUtf8NamesRowAndColumn) {
  EXPECT_EQ(error_of(kParquetFolder + "not_utf8.parquet"),
            "not_utf8.parquet: row 2: column prompt: a string is not UTF-8; save it as UTF-8");
}

// Found by the fuzzer: a line break in the name was a line break in the message.
TEST(ParquetRowsTest, NameWithALineBreakIsOneSentence) {
  std::string bytes = text_of_file(kParquetFolder + "not_utf8.parquet");
  for (size_t at = 0; (at = bytes.find("prompt", at)) != bytes.npos;) bytes[at + 3] = '\n';
  const std::string error = error_of(copy_of("name.parquet", bytes));
  EXPECT_NE(error.find("row 2: column pro"), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

// Found by the fuzzer: such a name became the key of a row that could not be written.
TEST(ParquetRowsTest, NameThatIsNotUtf8IsAnError) {
  std::string bytes = text_of_file(kParquetFolder + "wrong_type.parquet");
  for (size_t at = 0; (at = bytes.find("prompt", at)) != bytes.npos;) bytes[at] = '\xff';
  EXPECT_EQ(error_of(copy_of("name.parquet", bytes)),
            "name.parquet: a column whose name is not UTF-8; name it in UTF-8");
}

// Found by the fuzzer: a page header of eight bytes states 2 GB, which Arrow allocated and zeroed
// before it reached the end of the file.
TEST(ParquetRowsTest, LengthOfADamagedPageIsNotAllocated) {
  std::string bytes = text_of_file(kParquetFolder + "trl.parquet");
  bytes.replace(6903, 8, std::string("\xff\xff\xff\x7f\0\0\0\0", 8));
  const std::string error = error_of(copy_of("page.parquet", bytes));
  EXPECT_TRUE(
      error.starts_with("page.parquet: row 1: a page or a batch of rows needs more memory "
                        "than the limit; write the file again with smaller pages and row "
                        "groups, or copy it again if it is damaged ("))
      << error;
  EXPECT_NE(error.find("limit=268435456"), std::string::npos) << error;
}

// An intact file: a page of 300 MB was called damage.
TEST(ParquetRowsTest, LargePageIsNotCalledDamage) {
  EXPECT_TRUE(error_of(kLimitsFolder + "large_page.parquet")
                  .starts_with("large_page.parquet: row 1: a page or a batch of rows needs more "
                               "memory than the limit; write the file again with smaller pages"));
}

// A few kilobytes that stand for 5 GB: 100,000 times a word of 50 KB.
TEST(ParquetRowsTest, RowsOfASmallFileAreLimited) {
  for (const char* name : {"repeated_word.parquet", "repeated_dictionary_word.parquet"}) {
    ParquetRows reader(kLimitsFolder + name);
    int64_t rows = 0;
    std::string error;
    try {
      for (Json row; reader.try_next(row);) ++rows;
    } catch (const InputError& refused) {
      error = refused.what();
    }
    EXPECT_GT(rows, 900) << name;
    EXPECT_LT(rows, 1400) << name;
    EXPECT_NE(error.find(": column word: the rows so far have more than 64 MB, the most for a file "
                         "of this size; write it again without compression"),
              error.npos)
        << error;
  }
}

// A word of 20 MB that no row uses: Arrow copies the dictionary for every batch.
TEST(ParquetRowsTest, CopiesOfADictionaryCount) {
  const std::string error = error_of(kLimitsFolder + "unused_word.parquet");
  EXPECT_NE(error.find("the rows so far have more than 64 MB"), error.npos) << error;
}

TEST(ParquetRowsTest, MapWithManyKeysIsRefused) {
  EXPECT_EQ(error_of(kLimitsFolder + "many_keys.parquet"),
            "many_keys.parquet: row 2: column map: an object with more than 2000 members is not "
            "supported");
}

// Whatever a flipped byte does, the result is rows or an InputError that begins with the file.
TEST(ParquetRowsTest, DamagedBytesAreRowsOrOneSentence) {
  int refused = 0, in_the_middle = 0;
  for (const char* name : {"verl_gsm8k.parquet", "types.parquet"}) {
    const std::string whole = text_of_file(kParquetFolder + name);
    for (size_t at = 0; at < whole.size(); at += 23) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      const std::string error = error_of(copy_of("damaged.parquet", damaged));
      if (error == "no error") continue;
      EXPECT_TRUE(error.starts_with("damaged.parquet: ")) << at << ": " << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << at << ": " << error;
      ++refused;
      in_the_middle += error.starts_with("damaged.parquet: row ");
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(in_the_middle, 10);
}

}  // namespace
}  // namespace tlt::data
