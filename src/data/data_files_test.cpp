// SPDX-License-Identifier: Apache-2.0
#include "data/data_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::data {
namespace {

using Names = std::vector<std::string>;

class DataFilesTest : public ::testing::Test {
 protected:
  DataFilesTest() {
    for (const char* name : {"b-10.jsonl", "b-2.jsonl", "B.jsonl", ".hidden.jsonl", "README.md"})
      write_file_atomic(folder_ / name, "{}\n");
    std::filesystem::create_directory(folder_ / "c.jsonl");
  }

  Names find(const std::string& name) const {
    Names names = find_data_files(folder_ / name, "data.train_files");
    for (std::string& one : names) one = one.substr(folder_.path().size() + 1);
    return names;
  }

  std::string complaint(const std::string& name) const {
    try {
      find(name);
      return "none";
    } catch (const InputError& error) {
      return error.what();
    }
  }

  const TestFolder folder_;
};

TEST_F(DataFilesTest, FolderIsItsDataFilesSortedByName) {
  EXPECT_EQ(find_data_files(folder_.path(), "x"),
            (Names{folder_ / "B.jsonl", folder_ / "b-10.jsonl", folder_ / "b-2.jsonl"}));
  EXPECT_EQ(find_data_files(folder_.path() + "/", "x").size(), 3U);
}

TEST_F(DataFilesTest, StepsAreInTheirOrder) {
  const TestFolder folder;
  for (const char* name : {"10.jsonl", "9.jsonl", "2.jsonl", "1.txt"})
    write_file_atomic(folder / name, "{}\n");
  EXPECT_EQ(find_step_files(folder.path()),
            (Names{folder / "2.jsonl", folder / "9.jsonl", folder / "10.jsonl"}));
  for (const std::string& none : {folder / "none", folder / "1.txt"})
    EXPECT_THROW(find_step_files(none), InputError);
}

TEST_F(DataFilesTest, PatternIsAsInTheShell) {
  EXPECT_EQ(find("b-*.jsonl"), (Names{"b-10.jsonl", "b-2.jsonl"}));
  EXPECT_EQ(find("b-?.jsonl"), Names{"b-2.jsonl"});
  EXPECT_EQ(find("[a-b]-*"), (Names{"b-10.jsonl", "b-2.jsonl"}));
  EXPECT_EQ(find("*.jsonl"), (Names{"B.jsonl", "b-10.jsonl", "b-2.jsonl"}));
}

TEST_F(DataFilesTest, OtherNamesAreUnchanged) {
  EXPECT_EQ(find("none.jsonl"), Names{"none.jsonl"});
  EXPECT_EQ(find_data_files("countdown:seed=1,size=3", "x"), Names{"countdown:seed=1,size=3"});
  write_file_atomic(folder_ / "[b]-*.jsonl", "{}\n");
  EXPECT_EQ(find("[b]-*.jsonl"), Names{"[b]-*.jsonl"});
}

TEST_F(DataFilesTest, NoFileFoundIsAnError) {
  EXPECT_EQ(complaint("x*.jsonl"), "data.train_files: no files match " + (folder_ / "x*.jsonl"));
  EXPECT_EQ(complaint("c*"), "data.train_files: no files match " + (folder_ / "c*"));
  EXPECT_EQ(complaint("c.jsonl"),
            "data.train_files: no .parquet, .jsonl or .json files in the folder " +
                (folder_ / "c.jsonl"));
  write_file_atomic(folder_ / "c.jsonl/a.json", "[]");
  write_file_atomic(folder_ / "c.jsonl/a.parquet", "");
  const std::string both = complaint("c.jsonl");
  EXPECT_NE(both.find("files; give a pattern, as " + (folder_ / "c.jsonl/*.json")), both.npos)
      << both;
}

TEST_F(DataFilesTest, OptionsHaveTheFilesAndTheirWeights) {
  DataOptions options;
  options.train_files = {folder_ / "b-*.jsonl", "countdown:seed=1,size=3", folder_.path()};
  options.train_weights = {0.5, 1, 2};
  options.val_files = {folder_ / "b-2.jsonl"};
  expand_data_files(options);
  EXPECT_EQ(options.train_files.size(), 6U);
  EXPECT_EQ(options.train_files[1], folder_ / "b-2.jsonl");
  EXPECT_EQ(options.train_weights, (std::vector<double>{0.5, 0.5, 1, 2, 2, 2}));
  EXPECT_EQ(options.val_files, Names{folder_ / "b-2.jsonl"});
  DataOptions again = options;
  expand_data_files(again);
  EXPECT_EQ(again.train_files, options.train_files);
  options.val_files = {folder_ / "v*"};
  EXPECT_THROW(expand_data_files(options), InputError);
}

}  // namespace
}  // namespace tlt::data
