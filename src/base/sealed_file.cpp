// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_file.h"

#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"

namespace tlt {
namespace {

constexpr size_t kHexDigits = 64;  // of a SHA-256

std::string checksum_of(std::string_view context, std::string_view bytes) {
  Sha256 hash;
  hash.update(context);
  hash.update(bytes);
  return hash.hex();
}

}  // namespace

void write_sealed_file(const std::string& path, std::string_view first_line, std::string_view bytes,
                       std::string_view context) {
  AtomicFile file(path);
  file.append(first_line);
  file.append(checksum_of(context, bytes) + "\n");
  file.append(bytes);
  file.commit();
}

std::string read_sealed_file(const std::string& path, const SealedFormat& format,
                             std::string_view context) {
  std::string text = read_file(path, format.max_bytes);
  const size_t head = format.first_line.size() + kHexDigits + 1;
  TLT_CHECK_INPUT(text.size() >= head && text.starts_with(format.first_line),
                  "it is cut off, or of another version of tlt");
  const std::string checksum = text.substr(format.first_line.size(), kHexDigits);
  text.erase(0, head);
  TLT_CHECK_INPUT(checksum_of(context, text) == checksum, "it has another checksum");
  return text;
}

}  // namespace tlt
