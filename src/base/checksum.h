// Checksums: CRC32C for TensorBoard's records, SHA-256 for the files of a checkpoint, HMAC-SHA256
// for what workers of a job say to each other.
//
//   Sha256 hash;
//   hash.update(bytes);
//   manifest["policy.safetensors"] = hash.hex();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace tlt {

// CRC-32C (Castagnoli) of `bytes`: for short records, a byte at a time.
uint32_t crc32c(std::string_view bytes);

// SHA-256 (FIPS 180-4) of a stream of bytes, by libcrypto.
class Sha256 {
 public:
  Sha256();

  void update(std::string_view bytes);

  // The hash of all bytes so far, as 64 hex digits. More bytes may follow.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;
  static Context make_context();

  Context context_;
};

std::string sha256(std::string_view bytes);

// HMAC-SHA256 (RFC 2104) of `message`: 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

// a == b, in a time that does not depend on where they differ: for an HMAC.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// SHA-256 of a file, read in pieces.
std::string sha256_of_file(const std::string& path);

// SHA-256 of 64 blocks of 64 KiB, spread evenly from the first byte to the last: of every byte of a
// file up to 4 MiB, and of 4 MiB of a larger one.
std::string sha256_of_blocks(const std::string& path);

}  // namespace tlt
