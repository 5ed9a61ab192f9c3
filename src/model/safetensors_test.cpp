// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::model {
namespace {

const std::string kTensorFolders = std::string(TLT_SOURCE_DIR) + "/tests/golden/models/";

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "safetensors_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "a.safetensors") const { return folder_ + "/" + name; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string folder_;
};

TEST_F(SafetensorsTest, EveryTypeRoundTripsBitForBit) {
  const at::Tensor base = at::arange(12).reshape({3, 4});
  std::vector<TensorSource> sources;
  std::map<std::string, at::Tensor> written;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                          at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const std::string name = c10::toString(type);
    written[name] = base.to(type);
    sources.push_back(TensorSource::of(name, written[name]));
  }
  written["scalar"] = at::scalar_tensor(3.5);
  written["empty"] = at::empty({0, 5});
  written["turned"] = base.to(at::kFloat).t();  // not contiguous
  for (const char* name : {"scalar", "empty", "turned"})
    sources.push_back(TensorSource::of(name, written[name]));
  write_safetensors(path(), sources);

  SafetensorsFile file(path());
  EXPECT_EQ(file.index().entries.size(), written.size());
  for (const auto& [name, tensor] : written) {
    EXPECT_TRUE(at::equal(file.read(name), tensor)) << name;
    EXPECT_EQ(file.index().find(name)->begin % c10::elementSize(tensor.scalar_type()), 0u) << name;
  }
  EXPECT_THROW(file.read("other"), InputError);
}

TEST_F(SafetensorsTest, UnalignedDataIsRead) {
  std::string bytes =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  bytes = std::string{static_cast<char>(bytes.size()), 0, 0, 0, 0, 0, 0, 0} + bytes + 'x';
  const float values[] = {1.5F, -2.25F};
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  write_file_atomic(path(), bytes);
  EXPECT_TRUE(at::equal(SafetensorsFile(path()).read("b"), at::tensor({1.5F, -2.25F})));
}

TEST_F(SafetensorsTest, TruncatedFileIsRejected) {
  write_safetensors(path(), {TensorSource::of("a", at::ones({64}))});
  for (size_t size = std::filesystem::file_size(path()); size-- > 0;) {
    std::filesystem::resize_file(path(), size);
    EXPECT_THROW(SafetensorsFile{path()}, InputError) << size;
  }
}

TEST_F(SafetensorsTest, UnsupportedTypeIsNamedWhenRead) {
  std::string bytes = R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})";
  write_file_atomic(
      path(), std::string{static_cast<char>(bytes.size()), 0, 0, 0, 0, 0, 0, 0} + bytes + 'x');
  SafetensorsFile file(path());
  try {
    file.read("a");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tensor a has type F8_E4M3"));
  }
}

TEST_F(SafetensorsTest, ShardedFolderReadsLikeOneFile) {
  SafetensorsFolder golden(kTensorFolders + "qwen3_sharded");
  EXPECT_EQ(golden.find("model.embed_tokens.weight")->shape, (std::vector<int64_t>{320, 48}));
  EXPECT_EQ(golden.find("lm_head.weight"), nullptr);

  std::vector<TensorSource> sources;
  for (const std::string& name : golden.names())
    sources.push_back(TensorSource::of(name, golden.read(name)));
  write_safetensors_folder(folder_, sources, 60'000);
  EXPECT_THAT(files(), testing::Contains("model-00001-of-00005.safetensors"));
  EXPECT_THAT(files(), testing::Not(testing::Contains("model.safetensors")));
  SafetensorsFolder sharded(folder_);
  EXPECT_EQ(sharded.names().size(), golden.names().size());
  for (const std::string& name : golden.names())
    EXPECT_TRUE(at::equal(sharded.read(name), golden.read(name))) << name;

  write_safetensors_folder(folder_, sources);
  EXPECT_EQ(files(), std::vector<std::string>{"model.safetensors"});
  EXPECT_TRUE(at::equal(SafetensorsFolder(folder_).read("model.norm.weight"),
                        golden.read("model.norm.weight")));
}

TEST_F(SafetensorsTest, ShardWithoutAnIndexedTensorIsRejected) {
  write_safetensors(path("x.safetensors"), {TensorSource::of("a", at::ones({2}))});
  write_safetensors(path("y.safetensors"), {TensorSource::of("a", at::ones({2}))});
  const auto refuses = [&](const nlohmann::json& weight_map) {
    write_file_atomic(path("model.safetensors.index.json"),
                      nlohmann::json{{"weight_map", weight_map}}.dump());
    EXPECT_THROW(SafetensorsFolder{folder_}, InputError) << weight_map;
  };
  refuses({{"a", "x.safetensors"}, {"b", "x.safetensors"}});
  refuses({{"a", "x.safetensors"}, {"c", "y.safetensors"}});
  refuses({{"a", "z.safetensors"}});
  refuses({{"a", "../x.safetensors"}});
  refuses({{"a", 3}});
  refuses("x");
}

// Writing such a value into the message overflowed the stack.
TEST_F(SafetensorsTest, DeeplyNestedIndexIsRejected) {
  const std::string value = std::string(200'000, '[') + std::string(200'000, ']');
  write_file_atomic(path("model.safetensors.index.json"), "{\"weight_map\":{\"a\":" + value + "}}");
  EXPECT_THAT(thrown_message<InputError>([&] { SafetensorsFolder{folder_}; }),
              testing::HasSubstr("nested more than 500 deep"));
}

// A FIFO that no program writes to was opened for ever.
TEST_F(SafetensorsTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(path("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(thrown_message<InputError>([&] { SafetensorsFolder{folder_}; }),
              testing::HasSubstr("is a FIFO (named pipe)"));
}

TEST_F(SafetensorsTest, FailedWriteKeepsTheOldFile) {
  write_safetensors(path(), {TensorSource::of("a", at::ones({2}))});
  TensorSource broken = TensorSource::of("a", at::zeros({2}));
  broken.values = []() -> at::Tensor { throw Error("planned"); };
  EXPECT_THROW(write_safetensors(path(), {broken}), Error);
  EXPECT_TRUE(at::equal(SafetensorsFile(path()).read("a"), at::ones({2})));
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace tlt::model
