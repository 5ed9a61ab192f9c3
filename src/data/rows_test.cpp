// SPDX-License-Identifier: Apache-2.0
#include "data/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "tests/support/test_folder.h"

namespace tlt::data {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;

class ListRowsTest : public ::testing::Test {
 protected:
  std::vector<ordered_json> rows(const std::string& text) const {
    write_file_atomic(path_, text);
    std::vector<ordered_json> all;
    for_each_row(path_, [&](const ordered_json& row, const std::string& place) {
      all.push_back(row);
      EXPECT_EQ(place, path_ + ": row " + std::to_string(all.size()));
    });
    return all;
  }

  // The error message without the path.
  std::string error(const std::string& text) const {
    const std::string whole = thrown_message<InputError>([&] { rows(text); });
    return whole.starts_with(path_) ? whole.substr(path_.size()) : whole;
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "rows.json";
};

TEST_F(ListRowsTest, ReadsTheObjectsOfAList) {
  EXPECT_THAT(rows("[]"), ElementsAre());
  EXPECT_THAT(rows("\xEF\xBB\xBF \r\n[ \t]\n"), ElementsAre());
  EXPECT_THAT(rows("[{}]"), ElementsAre(ordered_json::object()));
  std::vector<ordered_json> want;
  for (const char* row :
       {R"({"b": "],}\\\"[", "a": [1, {"c": "\\"}, "\"]"]})", R"({"a": 2})", "{}"})
    want.push_back(ordered_json::parse(row));
  std::string text = "\xEF\xBB\xBF\n[\n";
  for (const ordered_json& row : want) text += "  " + row.dump(2) + "\n,";
  text.back() = ']';
  EXPECT_EQ(rows(text + "\n \n"), want);
}

TEST_F(ListRowsTest, RowsOfAnyLengthAreWhole) {
  std::vector<ordered_json> want;
  for (const int bytes : {1, 262'130, 262'131, 262'132, 524'288, 3})
    want.emplace_back()["a"] = std::string(static_cast<size_t>(bytes), 'x');
  EXPECT_EQ(rows(ordered_json(want).dump()), want);
}

TEST_F(ListRowsTest, ErrorSaysWhichRow) {
  const std::string no_list =
      ": not a JSON list of rows; a file with one row per line is named .jsonl";
  for (const char* text : {"", " ", "{}", "x[]"}) EXPECT_EQ(error(text), no_list) << text;
  const std::string no_json = ": not JSON; give a list of objects, like [{\"prompt\": \"…\"}, …]";
  for (const char* text : {"[{},]", "[{},,{}]", "[{},{} {}]", "[{},{}}]", "[{},\"\xff\"]"})
    EXPECT_EQ(error(text), ": row 2" + no_json) << text;
  EXPECT_EQ(error("[,{}]"), ": row 1" + no_json);
  EXPECT_EQ(error("[{},3]"), ": row 2: a row must be a JSON object, like {\"prompt\": \"…\"}");
  EXPECT_EQ(error("[{}"), ": the list of rows has no end; copy the file again");
  EXPECT_EQ(error("[{},\"]"), ": the list of rows has no end; copy the file again");
  EXPECT_EQ(error("[{}]]"), ": there is more after the list of rows");
}

// The list was parsed as a whole: 300 MB of {} took 4.5 GB.
TEST_F(ListRowsTest, RowIsReadWithoutThoseThatFollow) {
  write_file_atomic(path_, "[{\"a\": 1}, {\"a\": \"not closed");
  const auto reader = open_rows(path_);
  ordered_json row;
  ASSERT_TRUE(reader->try_next(row));
  EXPECT_EQ(row, ordered_json({{"a", 1}}));
  EXPECT_THROW(static_cast<void>(reader->try_next(row)), InputError);
}

TEST_F(ListRowsTest, LimitsAreThoseOfARow) {
  std::string list = "[0";
  for (int64_t i = 0; i < kMaxJsonValues; ++i) list += ",0";
  EXPECT_EQ(error("[{},{\"a\":" + list + "]}]"),
            ": row 2: more than 3000000 values in lists and objects are not supported");
  std::string text = "[{}";
  for (int64_t i = 0; i < kMaxJsonMembers; ++i) text += ",{\"a\":[]}";
  EXPECT_EQ(std::ssize(rows(text + "]")), kMaxJsonMembers + 1);
}

// A FIFO that no program writes to was opened for ever.
TEST(OpenRowsTest, OnlyRegularFilesAreRead) {
  const TestFolder folder;
  for (const char* name : {"a.jsonl", "a.json", "a.parquet"}) {
    const std::string path = folder / name;
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(thrown_message<InputError>([&] { open_rows(path); }),
              path + " is a FIFO (named pipe), not a file; give the name of a file");
  }
}

}  // namespace
}  // namespace tlt::data
