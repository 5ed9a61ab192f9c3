// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/files.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TLT_X86 1
#endif

namespace tlt {
namespace {

// kCrcTables[k][b]: what byte b contributes when k more bytes follow it (slicing by 8, Kounavis and
// Berry 2005).
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0u);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

alignas(16) constexpr std::array<uint32_t, 64> kShaConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

const uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

#ifdef TLT_X86
[[gnu::target("sse4.2")]] uint32_t crc32c_sse42(uint32_t inverted, const uint8_t* bytes,
                                                size_t count) {
  uint64_t crc = inverted;
  for (; count >= 8; count -= 8, bytes += 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; count > 0; --count) crc = _mm_crc32_u8(static_cast<uint32_t>(crc), *bytes++);
  return static_cast<uint32_t>(crc);
}

// The instruction does two rounds on the state as (A B E F) and (C D G H), highest word first.
[[gnu::target("sha,sse4.1,ssse3")]] void sha256_sha_ni(uint32_t* state, const uint8_t* bytes,
                                                       size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks > 0; --blocks, bytes += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i words[4];  // the last 16 words of the message schedule, a ring
    for (int i = 0; i < 16; ++i) {
      __m128i& now = words[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), swap);
      } else {
        const __m128i last = words[(i + 3) % 4], before_last = words[(i + 2) % 4];
        now = _mm_sha256msg1_epu32(now, words[(i + 1) % 4]);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(now, _mm_alignr_epi8(last, before_last, 4)), last);
      }
      const __m128i* constants = reinterpret_cast<const __m128i*>(kShaConstants.data()) + i;
      const __m128i sum = _mm_add_epi32(now, _mm_load_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_ni() {
  unsigned a, b, c, d;
  if (!__builtin_cpu_supports("sse4.1")) return false;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  return b >> 29 & 1;
}
#endif

void sha256_blocks(uint32_t* state, const uint8_t* bytes, size_t blocks) {
  static const auto best = checksum_internal::sha256_hardware()
                               ? checksum_internal::sha256_hardware()
                               : &checksum_internal::sha256_plain;
  best(state, bytes, blocks);
}

}  // namespace

namespace checksum_internal {

uint32_t crc32c_plain(uint32_t inverted, const uint8_t* bytes, size_t count) {
  uint32_t crc = inverted;
  for (; count >= 8; count -= 8, bytes += 8) {
    crc ^= bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
           static_cast<uint32_t>(bytes[3]) << 24;
    crc = kCrcTables[7][crc & 0xff] ^ kCrcTables[6][crc >> 8 & 0xff] ^
          kCrcTables[5][crc >> 16 & 0xff] ^ kCrcTables[4][crc >> 24] ^ kCrcTables[3][bytes[4]] ^
          kCrcTables[2][bytes[5]] ^ kCrcTables[1][bytes[6]] ^ kCrcTables[0][bytes[7]];
  }
  for (; count > 0; --count) crc = crc >> 8 ^ kCrcTables[0][(crc ^ *bytes++) & 0xff];
  return crc;
}

void sha256_plain(uint32_t* state, const uint8_t* bytes, size_t blocks) {
  for (; blocks > 0; --blocks, bytes += 64) {
    std::array<uint32_t, 64> words;
    for (size_t i = 0; i < 16; ++i) words[i] = big_endian(bytes + 4 * i);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t w15 = words[i - 15], w2 = words[i - 2];
      words[i] = words[i - 16] + (std::rotr(w15, 7) ^ std::rotr(w15, 18) ^ w15 >> 3) +
                 words[i - 7] + (std::rotr(w2, 17) ^ std::rotr(w2, 19) ^ w2 >> 10);
    }
    std::array<uint32_t, 8> s;
    std::copy_n(state, 8, s.begin());
    for (size_t i = 0; i < 64; ++i) {
      const auto [a, b, c, d, e, f, g, h] = s;
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                          ((e & f) ^ (~e & g)) + kShaConstants[i] + words[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      s = {t1 + t2, a, b, c, d + t1, e, f, g};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
}

Crc32cExtend crc32c_hardware() {
#ifdef TLT_X86
  if (__builtin_cpu_supports("sse4.2")) return &crc32c_sse42;
#endif
  return nullptr;
}

Sha256Blocks sha256_hardware() {
#ifdef TLT_X86
  if (has_sha_ni()) return &sha256_sha_ni;
#endif
  return nullptr;
}

}  // namespace checksum_internal

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  static const auto best = checksum_internal::crc32c_hardware()
                               ? checksum_internal::crc32c_hardware()
                               : &checksum_internal::crc32c_plain;
  return ~best(~before, bytes_of(bytes), bytes.size());
}

void Sha256::update(std::string_view text) {
  const uint8_t* bytes = bytes_of(text);
  size_t count = text.size();
  const size_t held = total_bytes_ % 64;
  total_bytes_ += count;
  if (held > 0) {
    const size_t taken = std::min(count, 64 - held);
    std::copy_n(bytes, taken, block_.begin() + static_cast<ptrdiff_t>(held));
    bytes += taken;
    count -= taken;
    if (held + taken < 64) return;
    sha256_blocks(state_.data(), block_.data(), 1);
  }
  sha256_blocks(state_.data(), bytes, count / 64);
  std::copy_n(bytes + count / 64 * 64, count % 64, block_.begin());
}

std::string Sha256::hex() const {
  // Padding: a one bit, zeros up to the last 8 bytes of a block, the length in bits.
  Sha256 ended = *this;
  std::string padding(1 + (64 + 55 - total_bytes_ % 64) % 64, '\0');
  padding[0] = '\x80';
  for (int shift = 56; shift >= 0; shift -= 8)
    padding += static_cast<char>(total_bytes_ * 8 >> shift);
  ended.update(padding);
  std::string text;
  for (const uint32_t word : ended.state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of_file(const std::string& path) {
  FileHandle file(path, O_RDONLY);
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  while (const size_t count = file.read(buffer.data(), buffer.size()))
    hash.update({buffer.data(), count});
  return hash.hex();
}

}  // namespace tlt
