// SPDX-License-Identifier: Apache-2.0
#include "base/json_lines.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/random.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class JsonLinesTest : public testing::Test {
 protected:
  std::vector<json> rows(const std::string& text, int64_t max_line_bytes = 1 << 20) {
    write_file_atomic(path_, text);
    JsonLinesReader reader(path_, max_line_bytes);
    std::vector<json> rows;
    json row;
    while (reader.try_next(row)) rows.push_back(row);
    return rows;
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "rows.jsonl";
};

TEST_F(JsonLinesTest, ReadsRowsWithAndWithoutALastNewline) {
  EXPECT_THAT(rows("{\"a\":1}\n[2]\n3\n"), ElementsAre(json{{"a", 1}}, json::array({2}), json(3)));
  EXPECT_THAT(rows("1\n2"), ElementsAre(json(1), json(2)));
  EXPECT_THAT(rows(""), ElementsAre());
}

TEST_F(JsonLinesTest, SkipsEmptyLinesCarriageReturnsAndBom) {
  EXPECT_THAT(rows("\xEF\xBB\xBF"
                   "1\r\n\r\n  \n2\r\n\n"),
              ElementsAre(json(1), json(2)));
}

TEST_F(JsonLinesTest, ErrorNamesFileAndLine) {
  const std::string message = thrown_message<InputError>([&] { rows("1\n\n{\"a\": }\n"); });
  EXPECT_THAT(message,
              HasSubstr(path_ + ":3: not JSON; give one JSON value per line (column 7: syntax"));
  EXPECT_THAT(thrown_message<InputError>([&] { rows("1e999\n"); }),
              HasSubstr(" (number overflow parsing '1e999')"));
  EXPECT_NE(thrown_message<InputError>([&] { rows("1 2\n"); }), "");
  EXPECT_NE(thrown_message<InputError>([&] { rows("\"\xff\"\n"); }), "") << "not UTF-8";
}

TEST_F(JsonLinesTest, PlaceIsTheLineOfTheLastRow) {
  write_file_atomic(path_, "1\n\n2\n");
  JsonLinesReader reader(path_);
  json row;
  ASSERT_TRUE(reader.try_next(row));
  EXPECT_EQ(reader.place(), path_ + ":1");
  ASSERT_TRUE(reader.try_next(row));
  EXPECT_EQ(reader.line(), 3);
}

TEST_F(JsonLinesTest, TooLongLineIsRejected) {
  const std::string fits(100, '1'), long_one(101, '1'), huge(2'000'000, '1');
  EXPECT_EQ(rows("\"" + std::string(98, 'x') + "\"\n", 100).size(), 1u);
  for (const std::string& line : {long_one, huge}) {
    for (const char* end : {"\n", "", "\n2\n"}) {
      EXPECT_THAT(thrown_message<InputError>([&] { rows("1\n" + line + end, 100); }),
                  HasSubstr(path_ + ":2: a line of more than 100 bytes"));
    }
  }
}

// A value of two bytes takes 16 or more of memory: a line of 60 MB took 1.7 GB.
TEST_F(JsonLinesTest, LineWithTooManyValuesIsRejected) {
  std::string line = "[0";
  for (int64_t i = 0; i < kMaxJsonValues; ++i) line += ",0";
  EXPECT_THAT(thrown_message<InputError>([&] { rows("1\n" + line + "]\n", 1 << 23); }),
              HasSubstr(path_ + ":2: more than 3000000 values"));
}

TEST_F(JsonLinesTest, RandomRowsRoundTripWithAnyBufferSize) {
  RandomStream random(1, {});
  std::vector<json> written;
  std::string text;
  for (int i = 0; i < 300; ++i) {
    written.push_back({{"id", i}, {"text", std::string(random.below(5'000), 'x')}});
    text += written.back().dump() + (random.below(4) ? "\n" : "\n\n");
  }
  EXPECT_EQ(rows(text), written);
}

// The file is read in chunks of 2^18 bytes.
TEST_F(JsonLinesTest, NewlineOnEitherSideOfAChunkBoundary) {
  for (const size_t bytes : {262'142, 262'143, 262'144, 262'145, 524'287, 524'288}) {
    const std::string line = "\"" + std::string(bytes - 2, 'x') + "\"";
    EXPECT_THAT(rows(line + "\n1\n"), ElementsAre(json::parse(line), json(1))) << bytes;
  }
}

// `tlt tokenize` answers each line of a pipe before the next one arrives.
TEST_F(JsonLinesTest, RowOfAPipeIsReturnedWithoutTheNextLine) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  FileHandle pipe(path_, O_RDWR);
  JsonLinesReader reader(FileHandle::duplicate_of(pipe.descriptor(), path_));
  json row;
  for (int i = 0; i < 3; ++i) {
    pipe.write(std::to_string(i) + "\n");
    ASSERT_TRUE(reader.try_next(row));
    EXPECT_EQ(row, i);
  }
}

TEST_F(JsonLinesTest, WriterReplacesOrAppends) {
  for (const auto mode : {JsonLinesWriter::Mode::kReplace, JsonLinesWriter::Mode::kAppend}) {
    JsonLinesWriter writer(path_, mode);
    writer.write(json{{"b", 1}, {"a", 2}});
    writer.write(nlohmann::ordered_json{{"b", 1}, {"a", 2}});
    writer.flush();
  }
  EXPECT_EQ(read_file(path_, 1000),
            "{\"a\":2,\"b\":1}\n{\"b\":1,\"a\":2}\n{\"a\":2,\"b\":1}\n{\"b\":1,\"a\":2}\n");
  { JsonLinesWriter(path_).write(json(1)); }
  EXPECT_EQ(read_file(path_, 1000), "1\n");
}

TEST_F(JsonLinesTest, BytesThatAreNotUtf8AreReplaced) {
  {
    JsonLinesWriter writer(path_);
    writer.write(json{{"text", "a\xE2\x82"}});
  }
  EXPECT_EQ(read_file(path_, 1000), "{\"text\":\"a\xEF\xBF\xBD\"}\n");
}

TEST_F(JsonLinesTest, FullDiskIsReportedByFlush) {
  JsonLinesWriter writer("/dev/full");
  writer.write(json(1));
  EXPECT_THAT(thrown_message<InputError>([&] { writer.flush(); }), HasSubstr("the disk is full"));
}

}  // namespace
}  // namespace tlt
