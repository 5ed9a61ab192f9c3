// Files: reading and writing so that an error says what to do and a crash leaves either the old
// file or the new one.
//
// Not here   rows of JSON (json_lines.h); writing beside the work (background_writer.h).
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

// Throws InputError for what a user can mend (no such file, no right, disk full …) and Error for
// the rest: "runs/a/log.txt: cannot open: No such file or directory". `error_number` is an errno.
[[noreturn]] void throw_file_error(const std::string& path, std::string_view action,
                                   int error_number);

// The whole file. Throws InputError when it has more than max_bytes.
std::string read_file(const std::string& path, int64_t max_bytes);

// InputError where `head`, the begin of the file `path`, is that of a Git LFS pointer: the few
// lines that stand in a clone for a large file until `git lfs pull`.
void check_no_lfs_pointer(std::string_view head, const std::string& path);

// Makes the folder and those above it; one that is there already is fine.
void make_folder(const std::string& path);

// Free bytes on the disk of an existing file or folder, for this user.
int64_t free_bytes(const std::string& path);

// Makes what happened to the names in a folder (renames, new files) survive a power cut.
void sync_folder(const std::string& path);

// An open file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  // Opens as open(2) does with `flags`; the file is closed on exec. Messages call it `name`.
  FileHandle(const std::string& path, int flags, std::string name);
  FileHandle(const std::string& path, int flags) : FileHandle(path, flags, path) {}
  // A second descriptor of an open file, with the same place in it.
  static FileHandle duplicate_of(int descriptor, std::string name);
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  bool is_open() const { return descriptor_ >= 0; }
  int64_t size_bytes() const;

  void write(std::string_view bytes);                    // at the place of the file
  void write_at(int64_t place, std::string_view bytes);  // anywhere; the place of the file stays
  size_t read(char* buffer, size_t bytes);  // what there is, at most `bytes`; 0 at the end
  size_t read_at(int64_t place, char* buffer, size_t bytes);  // fewer only at the end of the file
  void truncate(int64_t bytes);
  // Locks the file against other processes until it is closed; false: another one has it.
  [[nodiscard]] bool try_lock();
  void sync();   // waits until the bytes are on the disk
  void close();  // an error that the disk reports late is thrown here; the destructor drops it

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Opens a file to be read from its begin to its end; "-" is standard input.
FileHandle open_input(const std::string& path);

// Whether output of this name goes to a reader or a device as it is written: "-" (standard output),
// /dev/stdout and the like, a FIFO, a device. Every other name is a file's, or will be.
bool is_stream(const std::string& path);

// A file that appears under its name as a whole, in commit(), or not at all. Through a symbolic
// link it is the link's target that is replaced. What is_stream() is never replaced, but written to
// by every append().
class AtomicFile {
 public:
  // A FIFO is waited for until a program opens it to read. InputError: the path is a folder.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::string_view bytes);

  // Waits for the disk, then puts the file in the place of the old one.
  void commit();

 private:
  std::string path_;       // as given
  std::string target_;     // what is replaced: path_, or what its links lead to
  std::string temporary_;  // empty: written to directly
  FileHandle file_;
};

void write_file_atomic(const std::string& path, std::string_view bytes);

// Holds <folder>/.lock as long as it lives, so that no second run writes into the folder. The lock
// ends with the process, however it ends.
class FolderLock {
 public:
  // Throws InputError with the id of the process that holds it. REQUIRES: the folder exists. The
  // lock is that of the folder which has this name when the constructor returns, also where another
  // process renames the folder at the same time; who holds the lock may rename it.
  explicit FolderLock(const std::string& folder);

 private:
  FileHandle file_;
};

}  // namespace tlt
