// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

std::string random_bytes(uint32_t seed, size_t count) {
  RandomStream random(seed, {});
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

// RFC 3720, B.4.
TEST(Crc32cTest, MatchesPublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising(32, '\0');
  for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  std::reverse(rising.begin(), rising.end());
  EXPECT_EQ(crc32c(rising), 0x113FDB5Cu);
}

TEST(Crc32cTest, MatchesTheDefinitionForEveryLength) {
  const std::string bytes = random_bytes(2, 200);
  uint32_t bit_by_bit = 0xffffffff;
  for (size_t count = 0; count <= bytes.size(); ++count) {
    ASSERT_EQ(crc32c(bytes.substr(0, count)), ~bit_by_bit) << count;
    if (count == bytes.size()) break;
    bit_by_bit ^= static_cast<uint8_t>(bytes[count]);
    for (int bit = 0; bit < 8; ++bit)
      bit_by_bit = bit_by_bit >> 1 ^ (bit_by_bit & 1 ? 0x82F63B78u : 0u);
  }
}

// NIST, examples of FIPS 180-4 and SHA256ShortMsg / SHA256LongMsg.
TEST(Sha256Test, MatchesPublishedValues) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnop"
                   "qklmnopqrlmnopqrsm"
                   "nopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256("\xd3"), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
}

TEST(Sha256Test, PiecesGiveTheHashOfTheWhole) {
  const std::string bytes = random_bytes(3, 700);
  RandomStream random(4, {});
  for (int round = 0; round < 200; ++round) {
    Sha256 hash;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min<size_t>(bytes.size() - at, random.below(150));
      hash.update(bytes.substr(at, count));
      at += count;
    }
    ASSERT_EQ(hash.hex(), sha256(bytes));
  }
}

TEST(Sha256Test, HashMayBeReadAndMoreMayFollow) {
  Sha256 hash;
  hash.update("ab");
  hash.hex();
  hash.update("c");
  EXPECT_EQ(hash.hex(), sha256("abc"));
}

TEST(Sha256Test, HashOfAFileIsTheHashOfItsBytes) {
  const TestFolder folder;
  const std::string bytes = random_bytes(5, (1 << 20) + 13);
  write_file_atomic(folder / "file", bytes);
  EXPECT_EQ(sha256_of_file(folder / "file"), sha256(bytes));
  EXPECT_THROW(sha256_of_file(folder / "none"), InputError);
}

// RFC 4231, test cases 1, 2 and 6.
TEST(HmacTest, MatchesPublishedValues) {
  const auto hex = [](std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) {
      text += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
      text += "0123456789abcdef"[static_cast<uint8_t>(byte) & 15];
    }
    return text;
  };
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, EqualMeansSameBytes) {
  EXPECT_EQ(hmac_sha256({}, {}), hmac_sha256("", ""));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

// Reported, not asserted: a shared machine may be slow.
TEST(ChecksumTest, SpeedIsReported) {
  const std::string bytes(4 << 20, 'x');
  const auto megabytes_per_second = [&](const auto& call) {
    const Stopwatch stopwatch;
    call();
    return static_cast<int>(static_cast<double>(bytes.size()) / 1e6 / stopwatch.seconds());
  };
  RecordProperty("crc32c_mb_per_s", megabytes_per_second([&] { crc32c(bytes); }));
  RecordProperty("sha256_mb_per_s", megabytes_per_second([&] { sha256(bytes); }));
}

}  // namespace
}  // namespace tlt
