// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

namespace fs = std::filesystem;

void write(const AtomicFolder& folder, const std::string& text) {
  write_file_atomic(folder.path() + "/file", text);
}

TEST(AtomicFolderTest, AppearsInCommitAndReplacesTheOldOne) {
  const TestFolder parent;
  const std::string path = parent / "result";
  for (const char* text : {"old", "new"}) {
    AtomicFolder folder(path);
    write(folder, text);
    EXPECT_EQ(fs::exists(path), text == std::string("new"));
    folder.commit();
    EXPECT_EQ(read_file(path + "/file", 100), text);
  }
  EXPECT_FALSE(fs::exists(path + ".writing"));
}

TEST(AtomicFolderTest, WithoutCommitTheOldOneStays) {
  const TestFolder parent;
  const std::string path = parent / "result";
  {
    AtomicFolder folder(path);
    write(folder, "old");
    folder.commit();
  }
  { write(AtomicFolder(path), "new"); }
  EXPECT_EQ(read_file(path + "/file", 100), "old");
  EXPECT_FALSE(fs::exists(path + ".writing"));
}

TEST(AtomicFolderTest, WhatACrashLeftIsNotInTheNextOne) {
  const TestFolder parent;
  const std::string path = parent / "result";
  make_folder(path + ".writing");
  write_file_atomic(path + ".writing/left", "");
  AtomicFolder folder(path);
  folder.commit();
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(AtomicFolderTest, WhatKilledProcessesLeftIsRemoved) {
  const TestFolder folder;
  remove_unfinished(folder / "none");
  write_file_atomic(folder / "file", "");
  // As a process that is killed before commit().
  const pid_t process = fork();
  if (process == 0) {
    const AtomicFile file(folder / "file");
    const AtomicFolder other(folder / "folder");
    write(other, "");
    _exit(0);
  }
  waitpid(process, nullptr, 0);
  EXPECT_EQ(folder.entries(), 3);
  remove_unfinished(folder.path());
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_TRUE(fs::exists(folder / "file"));
}

}  // namespace
}  // namespace tlt
