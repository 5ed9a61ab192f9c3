// Checksums: CRC32C for records (TensorBoard's), SHA-256 for the files of a checkpoint.
//
//   Sha256 hash;
//   hash.update(bytes);
//   manifest["policy.safetensors"] = hash.hex();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

// CRC-32C (Castagnoli) of `bytes`; with the checksum of earlier bytes as `before`, of both
// together.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// SHA-256 (FIPS 180-4) of a stream of bytes.
class Sha256 {
 public:
  void update(std::string_view bytes);

  // The hash of all bytes so far, as 64 hex digits. More bytes may follow.
  std::string hex() const;

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};  // bytes that do not fill a block yet
  uint64_t total_bytes_ = 0;
};

std::string sha256(std::string_view bytes);

// SHA-256 of a file, read in pieces.
std::string sha256_of_file(const std::string& path);

// The functions that have a hardware and a software version: for tests and benchmarks.
namespace checksum_internal {

using Crc32cExtend = uint32_t (*)(uint32_t inverted, const uint8_t* bytes, size_t count);
using Sha256Blocks = void (*)(uint32_t* state, const uint8_t* bytes, size_t blocks);

uint32_t crc32c_plain(uint32_t inverted, const uint8_t* bytes, size_t count);
void sha256_plain(uint32_t* state, const uint8_t* bytes, size_t blocks);

// Null if this processor has no such instruction.
Crc32cExtend crc32c_hardware();
Sha256Blocks sha256_hardware();

}  // namespace checksum_internal
}  // namespace tlt
