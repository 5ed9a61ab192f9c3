// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace tlt {
namespace {

std::string some_bytes() {
  ByteWriter out;
  out.value(uint32_t{7});
  out.list(std::vector<float>{1, -2});
  out.list(std::vector<int32_t>{});
  out.list(std::string());
  out.list(std::string("text"));
  return out.take();
}

void read_all(ByteReader& in) {
  EXPECT_EQ(in.value<uint32_t>(), 7u);
  EXPECT_EQ(in.list<std::vector<float>>(), (std::vector<float>{1, -2}));
  EXPECT_TRUE(in.list<std::vector<int32_t>>().empty());
  EXPECT_EQ(in.list<std::string>(), "");
  EXPECT_EQ(in.list<std::string>(), "text");
}

TEST(BytesTest, ReadsWhatWasWritten) {
  const std::string bytes = some_bytes();
  ByteReader in(bytes);
  read_all(in);
  EXPECT_TRUE(in.at_end());
}

TEST(BytesTest, BytesThatEndTooEarlyAreAnError) {
  const std::string bytes = some_bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    ByteReader in(part);
    EXPECT_THROW(read_all(in), Error) << size;
  }
}

TEST(BytesTest, AnImpossibleCountAllocatesNothing) {
  ByteWriter out;
  out.value(uint64_t{1} << 63);
  const std::string bytes = out.take();
  EXPECT_THROW(ByteReader(bytes).list<std::vector<int64_t>>(), Error);
}

}  // namespace
}  // namespace tlt
