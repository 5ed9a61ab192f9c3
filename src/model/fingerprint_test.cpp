// SPDX-License-Identifier: Apache-2.0
#include "model/fingerprint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "model/safetensors.h"
#include "tests/support/test_folder.h"

namespace tlt::model {
namespace {

namespace fs = std::filesystem;

class FingerprintTest : public ::testing::Test {
 protected:
  FingerprintTest() {
    fs::copy(std::string(TLT_SOURCE_DIR) + "/tests/golden/models/llama_tied", folder(),
             fs::copy_options::recursive);
  }
  std::string folder() const { return parent_ / "model"; }
  void change(const std::string& file, size_t at) const {
    const std::string path = folder() + "/" + file;
    std::string bytes = read_file(path, int64_t{1} << 30);
    bytes[at % bytes.size()] = static_cast<char>(bytes[at % bytes.size()] ^ 1);
    write_file_atomic(path, bytes);
  }

  const TestFolder parent_;
};

TEST_F(FingerprintTest, IsTheSameOfACopyElsewhere) {
  const std::string copy = parent_ / "elsewhere/model2";
  make_folder(parent_ / "elsewhere");
  fs::copy(folder(), copy, fs::copy_options::recursive);
  EXPECT_EQ(fingerprint(copy), fingerprint(folder()));
}

TEST_F(FingerprintTest, IsAnotherWhereAFileIs) {
  const std::string whole = fingerprint(folder()), bare = fingerprint(folder(), false);
  EXPECT_NE(whole, bare);
  change("model.safetensors", 1 << 20);
  EXPECT_NE(fingerprint(folder()), whole);
  EXPECT_EQ(fingerprint(folder(), false), bare) << "the weights are not looked at";
  const std::string changed = fingerprint(folder());
  change("config.json", 1);
  EXPECT_NE(fingerprint(folder()), changed);
  EXPECT_NE(fingerprint(folder(), false), bare);
  const std::string before = fingerprint(folder());
  write_file_atomic(folder() + "/generation_config.json", "{\"eos_token_id\": 7}");
  EXPECT_NE(fingerprint(folder()), before) << "it names end-of-sequence tokens";
}

TEST_F(FingerprintTest, SamplesALargeFileFromItsFirstByteToItsLast) {
  const int64_t numbers = 4 << 20;
  write_safetensors(folder() + "/model.safetensors",
                    {TensorSource::of("weight", at::zeros({numbers}, at::kFloat))});
  const std::string whole = fingerprint(folder());
  const size_t bytes = fs::file_size(folder() + "/model.safetensors");
  for (const size_t at : {size_t{200}, bytes - 1}) {
    change("model.safetensors", at);
    EXPECT_NE(fingerprint(folder()), whole) << "byte " << at;
    change("model.safetensors", at);
    EXPECT_EQ(fingerprint(folder()), whole) << "byte " << at;
  }
}

TEST_F(FingerprintTest, WithoutConfigThereIsNone) {
  fs::remove(folder() + "/config.json");
  EXPECT_THROW(fingerprint(folder()), InputError);
}

}  // namespace
}  // namespace tlt::model
