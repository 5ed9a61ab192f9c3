// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <vector>

#include "base/check.h"
#include "base/files.h"

namespace tlt {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

void Sha256::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

Sha256::Context Sha256::make_context() {
  Context context(EVP_MD_CTX_new());
  TLT_CHECK(context);
  return context;
}

Sha256::Sha256() : context_(make_context()) {
  TLT_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::string_view bytes) {
  TLT_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex() const {
  const Context ended = make_context();
  std::array<unsigned char, 32> hash;
  TLT_CHECK(EVP_MD_CTX_copy_ex(ended.get(), context_.get()) &&
            EVP_DigestFinal_ex(ended.get(), hash.data(), nullptr));
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  const std::string key_bytes(key);  // never a null pointer
  std::array<unsigned char, 32> mac{};
  TLT_CHECK(HMAC(EVP_sha256(), key_bytes.data(), static_cast<int>(key_bytes.size()),
                 reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(),
                 nullptr) != nullptr);
  return {mac.begin(), mac.end()};
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string sha256_of_file(const std::string& path) {
  FileHandle file = open_file(path);
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  while (const size_t count = file.read(buffer.data(), buffer.size()))
    hash.update({buffer.data(), count});
  return hash.hex();
}

std::string sha256_of_blocks(const std::string& path) {
  constexpr int64_t kBlocks = 64, kBlockBytes = 64 << 10;
  FileHandle file = open_file(path);
  const int64_t last = std::max<int64_t>(0, file.size_bytes() - kBlockBytes);
  std::string block(kBlockBytes, '\0');
  Sha256 hash;
  for (int64_t i = 0; i < kBlocks; ++i)
    hash.update({block.data(), file.read_at(last * i / (kBlocks - 1), block.data(), block.size())});
  return hash.hex();
}

}  // namespace tlt
