// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt {
namespace {

using testing::HasSubstr;

constexpr int64_t kSmall = 1000;

TEST(FileErrorTest, SaysPathActionAndReason) {
  EXPECT_EQ(thrown_message<InputError>([] { throw_file_error("a/b", "open", ENOENT); }),
            "a/b: cannot open: No such file or directory");
  EXPECT_EQ(thrown_message([] { throw_file_error("a/b", "read", EIO); }),
            "a/b: cannot read: Input/output error");
}

TEST(FileErrorTest, DiskErrorIsNotAnInputError) {
  EXPECT_THROW(
      {
        try {
          throw_file_error("a", "read", EIO);
        } catch (const InputError&) {
          ADD_FAILURE() << "EIO was taken for a wrong input";
        }
      },
      Error);
}

TEST(FileErrorTest, FullDiskIsOneSentence) {
  // /dev/full answers every write with ENOSPC.
  FileHandle full("/dev/full", O_WRONLY);
  EXPECT_EQ(thrown_message<InputError>([&] { full.write("x"); }),
            "/dev/full: the disk is full; free some space or choose a folder on another disk");
}

TEST(ReadFileTest, ReadsAllBytesUpToTheLimit) {
  const TestFolder folder;
  const std::string bytes = std::string(100'000, 'x') + std::string("\0\n", 2);
  write_file_atomic(folder / "f", bytes);
  EXPECT_EQ(read_file(folder / "f", 100'002), bytes);
  EXPECT_THAT(thrown_message<InputError>([&] { read_file(folder / "f", 100'001); }),
              HasSubstr("larger than 100001 bytes"));
}

TEST(ReadFileTest, FileWithoutASizeIsReadToItsEnd) {
  EXPECT_FALSE(read_file("/proc/self/stat", kSmall).empty());
}

TEST(ReadFileTest, FolderOrMissingFileIsAnInputError) {
  const TestFolder folder;
  EXPECT_THAT(thrown_message<InputError>([&] { read_file(folder.path(), kSmall); }),
              HasSubstr(folder.path() + " is a folder, not a file; give the name of a file"));
  EXPECT_THAT(thrown_message<InputError>([&] { read_file(folder / "no", kSmall); }),
              HasSubstr("No such file"));
}

// A FIFO that no program writes to was opened for ever.
TEST(OpenFileTest, OnlyRegularFilesAreOpened) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  write_file_atomic(folder / "file", "text");
  std::filesystem::create_symlink("file", folder / "to_file");
  std::filesystem::create_symlink("fifo", folder / "to_fifo");
  EXPECT_EQ(read_file(folder / "to_file", kSmall), "text");
  EXPECT_EQ(open_input(folder / "file").size_bytes(), 4);
  for (const char* name : {"fifo", "to_fifo"}) {
    const std::string path = folder / name;
    const std::string complaint =
        path + " is a FIFO (named pipe), not a file; give the name of a file";
    EXPECT_EQ(thrown_message<InputError>([&] { open_file(path); }), complaint);
    EXPECT_EQ(thrown_message<InputError>([&] { open_input(path); }), complaint);
    EXPECT_EQ(thrown_message<InputError>([&] { read_file(path, kSmall); }), complaint);
  }
  EXPECT_THAT(thrown_message<InputError>([] { read_file("/dev/zero", kSmall); }),
              HasSubstr("/dev/zero is a device, not a file"));
}

TEST(OpenInputTest, DescriptorMayBeAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  FileHandle input = open_input("/dev/fd/" + std::to_string(ends[0]));
  std::string text(10, '\0');
  EXPECT_EQ(input.read(text.data(), text.size()), 4U);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(MakeFolderTest, CreatesParentsAndAcceptsExistingFolders) {
  const TestFolder folder;
  make_folder(folder / "a/b/c");
  make_folder(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
}

TEST(MakeFolderTest, ExistingFileIsAnInputError) {
  const TestFolder folder;
  write_file_atomic(folder / "a", "");
  EXPECT_THAT(thrown_message<InputError>([&] { make_folder(folder / "a"); }),
              HasSubstr(folder / "a"));
  EXPECT_THAT(thrown_message<InputError>([&] { make_folder(folder / "a/b"); }),
              HasSubstr("Not a directory"));
  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  EXPECT_THAT(thrown_message<InputError>([&] { make_folder(folder / "link/b"); }),
              HasSubstr("link/b: cannot create the folder: File exists"));
}

TEST(FreeBytesTest, FreeBytesArePositive) {
  EXPECT_GT(free_bytes("/tmp"), 0);
  EXPECT_THROW(free_bytes("/nowhere"), InputError);
}

TEST(FileHandleTest, WritesAndReadsAtAnyOffset) {
  const TestFolder folder;
  FileHandle file(folder / "f", O_RDWR | O_CREAT);
  file.write("hello world");
  file.write_at(6, "WORLD!");
  EXPECT_EQ(file.size_bytes(), 12);
  std::string text(20, '\0');
  text.resize(file.read_at(6, text.data(), text.size()));
  EXPECT_EQ(text, "WORLD!");
  file.truncate(5);
  EXPECT_EQ(read_file(folder / "f", kSmall), "hello");
}

TEST(FileHandleTest, MovedHandleClosesOnce) {
  const TestFolder folder;
  FileHandle a(folder / "f", O_RDWR | O_CREAT);
  FileHandle b = std::move(a);
  EXPECT_FALSE(a.is_open());
  EXPECT_TRUE(b.is_open());
  a = std::move(b);
  a.write("x");
  a.close();
  EXPECT_FALSE(a.is_open());
  EXPECT_EQ(read_file(folder / "f", kSmall), "x");
}

TEST(AtomicFileTest, AppearsAsAWholeOnCommit) {
  const TestFolder folder;
  write_file_atomic(folder / "f", "old");
  AtomicFile file(folder / "f");
  file.append("ne");
  file.append("w");
  EXPECT_EQ(read_file(folder / "f", kSmall), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "f", kSmall), "new");
  EXPECT_EQ(folder.entries(), 1) << "the temporary file is still there";
}

TEST(AtomicFileTest, WithoutCommitNothingIsLeft) {
  const TestFolder folder;
  { AtomicFile(folder / "f").append("half"); }
  EXPECT_EQ(folder.entries(), 0);
}

TEST(AtomicFileTest, SecondCommitIsABug) {
  const TestFolder folder;
  AtomicFile file(folder / "f");
  file.commit();
  EXPECT_THROW(file.commit(), Error);
}

TEST(AtomicFileTest, FailedCommitKeepsTheOldFileOnly) {
  const TestFolder folder;
  make_folder(folder / "f/inside");  // a file cannot replace a folder
  EXPECT_THAT(thrown_message<InputError>([&] { write_file_atomic(folder / "f", "new"); }),
              HasSubstr(folder / "f: cannot write: Is a directory"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "f/inside"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFileTest, FolderCreatedMeanwhileIsKept) {
  const TestFolder folder;
  AtomicFile file(folder / "f");
  make_folder(folder / "f/inside");
  EXPECT_THAT(thrown_message<InputError>([&] { file.commit(); }),
              HasSubstr(folder / "f: cannot replace: Is a directory"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "f/inside"));
}

TEST(AtomicFileTest, MessageHasTheNameAsTyped) {
  EXPECT_EQ(thrown_message<InputError>([] { AtomicFile("/nowhere/f"); }),
            "/nowhere/f: cannot open: No such file or directory");
}

TEST(AtomicFileTest, LinkStaysAndItsTargetIsReplaced) {
  const TestFolder folder;
  make_folder(folder / "data");
  write_file_atomic(folder / "data/real", "old");
  std::filesystem::create_symlink("data/real", folder / "near");
  std::filesystem::create_symlink(folder / "near", folder / "far");
  write_file_atomic(folder / "far", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "far"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "near"));
  EXPECT_EQ(read_file(folder / "data/real", kSmall), "new");
  EXPECT_EQ(folder.entries(), 3) << "the temporary file is still there";
}

TEST(AtomicFileTest, DanglingLinkCreatesItsTarget) {
  const TestFolder folder;
  std::filesystem::create_symlink("later", folder / "link");
  write_file_atomic(folder / "link", "text");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "later", kSmall), "text");
}

TEST(AtomicFileTest, LinkToItselfIsAnInputError) {
  const TestFolder folder;
  std::filesystem::create_symlink("link", folder / "link");
  EXPECT_THAT(thrown_message<InputError>([&] { AtomicFile(folder / "link"); }),
              HasSubstr("Too many levels of symbolic links"));
}

TEST(AtomicFileTest, FifoAndDeviceAreWrittenNotReplaced) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const FileHandle reader(folder / "fifo", O_RDONLY | O_NONBLOCK);
  AtomicFile file(folder / "fifo");
  file.append("text");
  std::string text(10, '\0');
  EXPECT_EQ(::read(reader.descriptor(), text.data(), text.size()), 4) << "before the commit";
  EXPECT_EQ(text.substr(0, 4), "text");
  file.commit();
  EXPECT_THROW(file.commit(), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "fifo"));
  EXPECT_TRUE(is_stream(folder / "fifo"));
  EXPECT_THROW(write_file_atomic("/dev/full", "text"), InputError);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFileTest, DescriptorContinuesAtItsOffset) {
  const TestFolder folder;
  FileHandle shared(folder / "f", O_RDWR | O_CREAT);
  shared.write("before ");
  const std::string name = "/dev/fd/" + std::to_string(shared.descriptor());
  EXPECT_TRUE(is_stream(name));
  write_file_atomic(name, "text");
  EXPECT_EQ(read_file(folder / "f", kSmall), "before text");
  EXPECT_THAT(thrown_message<InputError>([] { AtomicFile("/dev/fd/999"); }),
              HasSubstr("/dev/fd/999: cannot open"));
}

TEST(AtomicFileTest, ClosedReaderIsOneSentence) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::optional<FileHandle> reader(std::in_place, folder / "fifo", O_RDONLY | O_NONBLOCK);
  AtomicFile file(folder / "fifo");
  reader.reset();
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(thrown_message([&] { file.append("text"); }),
            folder / "fifo: the program that reads it has ended");
  ::signal(SIGPIPE, before);
}

TEST(AtomicFileTest, NameWithoutFolderIsInTheWorkingFolder) {
  const TestFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_atomic("f", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(folder / "f", kSmall), "x");
}

TEST(AtomicFileTest, ConcurrentWritersLeaveOneWholeFile) {
  const TestFolder folder;
  std::vector<std::thread> threads;
  for (const char letter : {'a', 'b', 'c'}) {
    threads.emplace_back([&, letter] {
      for (int i = 0; i < 5; ++i) write_file_atomic(folder / "f", std::string(10'000, letter));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_file(folder / "f", 10'000);
  EXPECT_EQ(text, std::string(10'000, text[0]));
}

TEST(FolderLockTest, SecondRunGetsTheHoldersProcessId) {
  const TestFolder folder;
  const FolderLock lock(folder.path());
  EXPECT_EQ(thrown_message<InputError>([&] { FolderLock second(folder.path()); }),
            folder.path() + ": another run (process " + std::to_string(::getpid()) +
                ") writes into this folder; stop it or give another trainer.default_local_dir");
}

TEST(FolderLockTest, FolderIsFreeAfterItsHolder) {
  const TestFolder folder;
  { const FolderLock lock(folder.path()); }
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

TEST(FolderLockTest, FolderIsFreeAfterItsHolderWasKilled) {
  const TestFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  ASSERT_GT(child, 0);  // kill(-1) would end every process of this user
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(thrown_message<InputError>([&] { FolderLock second(folder.path()); }),
              HasSubstr("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(FolderLock(folder.path()));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace tlt
