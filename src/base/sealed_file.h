// Sealed files: what a program keeps for its next start, with a first line that names the format,
// and a checksum.
//
//   write_sealed_file(path, "tlt example 1\n", bytes);
//   const std::string bytes = read_sealed_file(path, {"tlt example 1\n", /*max_bytes=*/1 << 20});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

// Writes `first_line`, which ends with a line break, the SHA-256 of `context` and the bytes in hex,
// and the bytes; atomically. `context` is what the bytes belong to, and is not written.
void write_sealed_file(const std::string& path, std::string_view first_line, std::string_view bytes,
                       std::string_view context = {});

struct SealedFormat {
  std::string_view first_line;
  int64_t max_bytes = 0;  // of the file
};

// The bytes of such a file. InputError: it is damaged, of another format, or of another context.
std::string read_sealed_file(const std::string& path, const SealedFormat& format,
                             std::string_view context = {});

}  // namespace tlt
