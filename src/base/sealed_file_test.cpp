// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_file.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

class SealedFileTest : public ::testing::Test {
 protected:
  std::string complaint(std::string_view context = {}) const {
    return thrown_message<InputError>([&] { (void)read_sealed_file(path_, kFormat, context); });
  }

  static constexpr SealedFormat kFormat = {.first_line = "tlt example 1\n", .max_bytes = 1 << 20};
  const TestFolder folder_;
  const std::string path_ = folder_ / "file";
};

TEST_F(SealedFileTest, BytesAreReadAsWritten) {
  const std::string bytes("a\n\0b", 4);
  write_sealed_file(path_, kFormat.first_line, bytes, "weights");
  EXPECT_EQ(read_sealed_file(path_, kFormat, "weights"), bytes);
}

// The reasons are parts of sentences to the user.
TEST_F(SealedFileTest, DamagedAndOtherFilesAreRefused) {
  write_sealed_file(path_, kFormat.first_line, "bytes", "weights");
  EXPECT_EQ(complaint("other weights"), "it has another checksum");
  const std::string whole = read_file(path_, 1 << 20);
  write_file_atomic(path_, whole + "x");
  EXPECT_EQ(complaint("weights"), "it has another checksum");
  for (const std::string& text : {std::string(), whole.substr(0, 40), "x" + whole}) {
    write_file_atomic(path_, text);
    EXPECT_EQ(complaint("weights"), "it is cut off, or of another version of tlt") << text;
  }
}

}  // namespace
}  // namespace tlt
