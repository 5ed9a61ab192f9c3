// Files: reading and writing with errors that say what to do, and with atomic replacement: a crash
// leaves either the old file or the new one.
//
// Not here   rows of JSON (json_lines.h); writing in the background (background_writer.h).
// Threading  functions: any thread. AtomicFile and FolderLock: one thread at a time.
//
//   const std::string text = read_file("config.json", /*max_bytes=*/1 << 20);
//   AtomicFile file(folder + "/state.bin");
//   file.append(bytes);
//   file.commit();                     // without it the file never appears
//   AtomicFile("-").append(line);      // standard output
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tlt {

// Throws InputError for errors that a user can correct (no such file, no permission, disk full …)
// and Error for the others: "runs/a/log.txt: cannot open: No such file or directory".
// `error_number` is an errno.
[[noreturn]] void throw_file_error(const std::string& path, std::string_view action,
                                   int error_number);

// Reads a whole regular file (open_file()). InputError when it has more than max_bytes.
std::string read_file(const std::string& path, int64_t max_bytes);

// InputError if `head`, the beginning of the file `path`, is a Git LFS pointer: the few lines that
// represent a large file in a clone until `git lfs pull`.
void check_no_lfs_pointer(std::string_view head, const std::string& path);

// Creates the folder and its parents; an existing one is fine.
void make_folder(const std::string& path);

// Free bytes for this user on the disk of an existing file or folder.
int64_t free_bytes(const std::string& path);

// Makes changes of names in a folder (renames, new files) survive a power failure.
void sync_folder(const std::string& path);

// An open file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  // Opens as open(2) does with `flags`; the file is closed on exec. Error messages call it `name`.
  FileHandle(const std::string& path, int flags, std::string name);
  FileHandle(const std::string& path, int flags) : FileHandle(path, flags, path) {}
  // A second descriptor of an open file, with the same file offset.
  static FileHandle duplicate_of(int descriptor, std::string name);
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  bool is_open() const { return descriptor_ >= 0; }
  int64_t size_bytes() const;

  void write(std::string_view bytes);                     // at the file offset
  void write_at(int64_t offset, std::string_view bytes);  // keeps the file offset
  size_t read(char* buffer, size_t bytes);  // what is available, at most `bytes`; 0 at the end
  size_t read_at(int64_t offset, char* buffer, size_t bytes);  // fewer only at the end of the file
  void truncate(int64_t bytes);
  // Locks the file against other processes until it is closed; false if another process holds it.
  [[nodiscard]] bool try_lock();
  void sync();   // waits until the bytes are on the disk
  void close();  // throws an error that the disk reports late; the destructor ignores it

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Opens a regular file, or a link to one, for reading. InputError for anything else: opening a FIFO
// would wait for a program that writes to it, and a device may have no end.
FileHandle open_file(const std::string& path);

// Opens the input of a command for sequential reading: "-" is standard input, /dev/fd/9 an open
// descriptor, and any other name that of a regular file.
FileHandle open_input(const std::string& path);

// Whether output to this name reaches a reader or a device immediately: "-" (standard output),
// /dev/stdout and the like, a FIFO, a device. Any other name is a file's, existing or not.
bool is_stream(const std::string& path);

// Ending of the name of a file or folder that is not committed yet (AtomicFile, AtomicFolder). A
// process that is killed leaves it: remove_unfinished().
inline constexpr const char* kUnfinished = ".writing";

// A file that appears under its name as a whole, in commit(), or not at all. With a symbolic link,
// the link's target is replaced. A stream (is_stream()) is never replaced: every append() writes to
// it.
class AtomicFile {
 public:
  // Opening a FIFO waits until a program opens it for reading. InputError: the path is a folder.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view bytes);

  // Syncs to the disk, then replaces the old file.
  void commit();

 private:
  std::string path_;       // as given
  std::string target_;     // the file that is replaced: path_, or the target of its links
  std::string temporary_;  // empty: written to directly
  FileHandle file_;
};

void write_file_atomic(const std::string& path, std::string_view bytes);

// Holds <folder>/.lock during its lifetime, so that no second run writes into the folder. The lock
// ends with the process, however that ends.
class FolderLock {
 public:
  // Throws InputError with the id of the process that holds the lock. REQUIRES: the folder exists.
  // The lock is that of the folder which has this name when the constructor returns, even if
  // another process renames the folder at the same time; the holder of the lock may rename it.
  explicit FolderLock(const std::string& folder);

 private:
  FileHandle file_;
};

}  // namespace tlt
