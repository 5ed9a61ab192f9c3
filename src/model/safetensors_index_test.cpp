// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace tlt::model {
namespace {

std::string file_of(const std::string& json, size_t data_bytes) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return bytes + json + std::string(data_bytes, 'x');
}

SafetensorsIndex parse(const std::string& file) {
  return SafetensorsIndex::parse(file, file.size(), "a.safetensors");
}

std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsIndexTest, ReadsEntriesInTheOrderOfTheData) {
  const auto index =
      parse(file_of(R"({"b":)" + tensor("BF16", "[2,3]", "[4,16]") +
                        R"(,"__metadata__":{"format":"pt"},"a":)" + tensor("F32", "[]", "[0,4]") +
                        R"(,"empty":)" + tensor("I64", "[0,7]", "[16,16]") + "}  \n",
                    16));
  ASSERT_EQ(index.entries.size(), 3u);
  EXPECT_EQ(index.entries[0].name, "a");
  EXPECT_EQ(index.entries[0].elements(), 1);
  EXPECT_EQ(index.entries[1].type, DataType::kBF16);
  EXPECT_EQ(index.entries[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(index.entries[1].end - index.entries[1].begin, 12u);
  EXPECT_EQ(index.find("b"), &index.entries[1]);
  EXPECT_EQ(index.find("c"), nullptr);
  EXPECT_EQ(index.metadata.at("format"), "pt");
}

TEST(SafetensorsIndexTest, HeaderRoundTripsAndIsAligned) {
  std::vector<TensorEntry> entries = {{"x", DataType::kF32, {3}}, {"y\"ä", DataType::kU8, {5}}};
  const std::string header = make_safetensors_header(entries, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0u);
  const auto index = parse(header + std::string(17, 'x'));
  ASSERT_EQ(index.entries.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(index.entries[i].name, entries[i].name);
    EXPECT_EQ(index.entries[i].begin, entries[i].begin);
    EXPECT_EQ(index.entries[i].end, entries[i].end);
  }
}

TEST(SafetensorsIndexTest, ErrorNamesFileAndFault) {
  const std::string good = tensor("F32", "[2]", "[0,8]");
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += ",1";
  const struct {
    std::string file, reason;
  } cases[] = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "100 MB"},
      {std::string("\x20\0\0\0\0\0\0\0{}", 10), "header extends past"},
      {file_of("", 0), "does not start with '{'"},
      {file_of(" {}", 0), "does not start with '{'"},
      {file_of("{", 0), "not JSON"},
      {file_of("{} x", 0), "not JSON"},
      {file_of("{\"\xff\":1}", 0), "not JSON"},
      {file_of("{}", 1), "1 bytes after the last tensor"},
      {file_of("{\"a\":" + good + ",\"a\":" + good + "}", 8), "'a' is given twice"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "'dtype' is given twice"},
      {file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "'k' is given twice"},
      {file_of(R"({"__metadata__":{"k":1}})", 0), "a number where"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 0), "is missing"},
      {file_of(R"({"a":[1]})", 0), "a list where"},
      {file_of(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8), "a list where"},
      {file_of(R"({"a":{"dtype":{"x":1},"shape":[2],"data_offsets":[0,8]}})", 8),
       "an object where"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":true}})", 8),
       "a boolean where"},
      {file_of("{\"\":" + good + "}", 8), "without a name"},
      {file_of("{\"a\":" + tensor("F31", "[2]", "[0,8]") + "}", 8), "unknown dtype 'F31'"},
      {file_of("{\"a\":" + tensor("F32", "[-2]", "[0,8]") + "}", 8), "negative"},
      {file_of("{\"a\":" + tensor("F32", "[2.0]", "[0,8]") + "}", 8), "a fraction"},
      {file_of("{\"a\":" + tensor("F32", "[99999999999999999999]", "[0,8]") + "}", 8),
       "a fraction"},
      {file_of("{\"a\":" + tensor("F32", "[9300000000000000000]", "[0,8]") + "}", 8), "too large"},
      {file_of("{\"a\":" + tensor("F32", "[2]", "[0,8,9]") + "}", 8), "not a pair"},
      {file_of("{\"a\":" + tensor("F32", "[1" + many + "]", "[0,4]") + "}", 4), "32 dimensions"},
      {file_of("{\"a\":" + tensor("F32", "[2]", "[0,8" + many + "]") + "}", 8), "not a pair"},
      {file_of("{\"a\":" + tensor("F32", "[2]", "[8,0]") + "}", 8), "ends before it begins"},
      {file_of("{\"a\":" + tensor("F32", "[2]", "[0,8]") + "}", 7), "past the end of the file"},
      {file_of("{\"a\":" + tensor("F32", "[3]", "[0,8]") + "}", 8), "do not give its 8 bytes"},
      {file_of("{\"a\":" + tensor("F32", "[2]", "[4,12]") + "}", 12), "a gap"},
      // 2^62 elements of 4 bytes wrap to 0 bytes in 64 bits.
      {file_of("{\"a\":" + tensor("F32", "[4611686018427387904,4]", "[0,0]") + "}", 0),
       "do not give its 0 bytes"},
      // Empty, but an intermediate product overflows.
      {file_of("{\"a\":" + tensor("F32", "[4611686018427387904,4,0]", "[0,0]") + "}", 0),
       "do not give its 0 bytes"},
      {file_of("{\"a\":" + good + ",\"b\":" + tensor("F32", "[2]", "[4,12]") + "}", 12),
       "tensor b: it overlaps"},
  };
  for (const auto& [file, reason] : cases) {
    EXPECT_THAT(refusal(file),
                testing::AllOf(testing::StartsWith("a.safetensors: "), testing::HasSubstr(reason)));
  }
}

// Found by the fuzzer.
TEST(SafetensorsIndexTest, NameWithLineBreaksStaysOnOneLine) {
  EXPECT_EQ(refusal(file_of(R"({"a\n\u0000b":[1]})", 0)).find_first_of(std::string("\n\0", 2)),
            std::string::npos);
}

TEST(SafetensorsIndexTest, DeepNestingIsRejectedWithoutRecursion) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
  EXPECT_THAT(refusal(file_of(deep, 0)), testing::HasSubstr("an object where"));
}

TEST(SafetensorsIndexTest, MutatedFileIsValidOrRejected) {
  std::vector<TensorEntry> entries = {
      {"a", DataType::kF32, {2, 3}}, {"bc", DataType::kBF16, {4}}, {"d", DataType::kI64, {}}};
  const std::string good =
      make_safetensors_header(entries, {{"format", "pt"}}) + std::string(40, 'x');
  RandomStream random(1, {});
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string file = good;
    for (uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) {
      const size_t at = random.below(file.size());
      switch (random.below(3)) {
        case 0:
          file[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          file[at] = "0123456789{}[],:\""[random.below(17)];
          break;
        default:
          random.below(2) ? file.erase(at, 1 + random.below(4)) : file.insert(at, 1, '0');
      }
      if (file.empty()) break;
    }
    try {
      for (const TensorEntry& entry : parse(file).entries) {
        ASSERT_LE(entry.end, file.size());
        ASSERT_EQ(entry.end - entry.begin,
                  static_cast<uint64_t>(entry.elements() * data_type_bytes(entry.type)));
      }
      ++accepted;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 50);  // data bytes and names may change
}

}  // namespace
}  // namespace tlt::model
