// SPDX-License-Identifier: Apache-2.0
#include "tinker/wire.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/mutator.h"

namespace tlt::tinker {
namespace {

TEST(WireTest, ReadsWhatIsWritten) {
  WireWriter inner, outer;
  inner.bytes(1, "name");
  outer.varint(1, 300);
  outer.number(2, -0.25);
  outer.message(16, inner);
  outer.bytes(4, std::string("\x05\xac\x02", 3));  // packed 5, 300
  // 300 as varint, the double, a message with field number 16, a packed list
  EXPECT_EQ(outer.text().substr(0, 3), "\x08\xac\x02");
  WireReader reader(outer.text());
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.varint(), 300u);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), -0.25);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 16);
  EXPECT_EQ(reader.bytes(), inner.text());
  EXPECT_THROW(reader.varint(), InputError);
  ASSERT_TRUE(reader.next());
  std::vector<int64_t> integers;
  reader.append_integers(integers);
  EXPECT_EQ(integers, (std::vector<int64_t>{5, 300}));
  EXPECT_FALSE(reader.next());
}

TEST(WireTest, DamagedBytesAreRefusedOrRead) {
  WireWriter message;
  for (int i = 1; i < 20; ++i) message.bytes(i, std::string(static_cast<size_t>(i), 'x'));
  tests::Mutator mutator(/*seed=*/1, {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"});
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string damaged = mutator.bytes(message.text(), message.text());
    try {
      for (WireReader reader(damaged); reader.next();) {
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace tlt::tinker
