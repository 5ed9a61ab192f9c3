// SPDX-License-Identifier: Apache-2.0
#include "cluster/job_secret.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"

namespace tlt::cluster {

std::string random_hex() {
  std::array<unsigned char, 32> bytes{};
  TLT_CHECK(getentropy(bytes.data(), bytes.size()) == 0, std::strerror(errno));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string derive_key(const std::string& secret, const std::string& purpose) {
  return hmac_sha256(secret, purpose);
}

}  // namespace tlt::cluster
