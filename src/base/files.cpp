// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/watchdog.h"

namespace tlt {
namespace {

bool can_be_mended(int error_number) {
  switch (error_number) {
    case ENOENT:
    case EEXIST:  // a folder where a link points to nothing
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENOTDIR:
    case EROFS:
    case ENAMETOOLONG:
    case EFBIG:  // ulimit -f, or a file system with a smaller limit
    case ELOOP:
    case EBADF:  // /dev/fd/9 without a descriptor 9
    case ENXIO:  // a socket
      return true;
    default:
      return false;
  }
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Whether `path` still names this open file.
bool has_name(const FileHandle& file, const std::string& path) {
  struct stat opened, named;
  return ::fstat(file.descriptor(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// The descriptor that a name like /dev/stdout or /dev/fd/63 refers to; nullopt for other names.
// Such a file is not opened by name: that would start at its first byte, and needs permissions that
// the process may have lost.
std::optional<int> named_descriptor(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view number = path.substr(folder.size());
    int descriptor = -1;
    const auto end = std::from_chars(number.data(), number.data() + number.size(), descriptor).ptr;
    if (end == number.data() + number.size() && descriptor >= 0) return descriptor;
  }
  return std::nullopt;
}

// The target of a chain of symbolic links, whether it exists or not.
std::string follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  std::filesystem::path target = path;
  std::error_code none;
  for (int links = 0; std::filesystem::is_symlink(target, none); ++links) {
    if (links == kMostLinks) throw_file_error(path, "open", ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(target, none);
    if (none) throw_file_error(path, "open", none.value());
    target = target.parent_path() / next;  // `next` only, if it is absolute
  }
  return target.string();
}

std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO (named pipe)";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

// Unique among the threads and processes that write here, so that two writers of one file never
// share a temporary file.
std::string temporary_name(const std::string& path) {
  static std::atomic<int> count = 0;
  return check_internal::concat(path, ".", ::getpid(), "-", count.fetch_add(1), kUnfinished);
}

// A process that only looks whether the file is locked holds it for a moment.
bool locks_soon(FileHandle& file) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (file.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace

void throw_file_error(const std::string& path, std::string_view action, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    throw InputError(path +
                     ": the disk is full; free some space or choose a folder on another disk");
  }
  if (error_number == EPIPE) throw Error(path + ": the program that reads it has ended");
  const std::string message =
      check_internal::concat(path, ": cannot ", action, ": ", std::strerror(error_number));
  if (can_be_mended(error_number)) throw InputError(message);
  throw Error(message);
}

FileHandle::FileHandle(const std::string& path, int flags, std::string name)
    : path_(std::move(name)) {
  do {
    descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw_file_error(path_, "open", errno);
}

FileHandle FileHandle::duplicate_of(int descriptor, std::string name) {
  FileHandle copy;
  copy.path_ = std::move(name);
  copy.descriptor_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (!copy.is_open()) throw_file_error(copy.path_, "open", errno);
  return copy;
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileHandle::~FileHandle() {
  if (is_open()) ::close(descriptor_);
}

int64_t FileHandle::size_bytes() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) throw_file_error(path_, "get the size", errno);
  return status.st_size;
}

void FileHandle::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(path_, "write", errno);
    report_progress();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void FileHandle::write_at(int64_t place, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), place);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(path_, "write", errno);
    report_progress();
    bytes.remove_prefix(static_cast<size_t>(written));
    place += written;
  }
}

size_t FileHandle::read(char* buffer, size_t bytes) {
  while (true) {
    const ssize_t count = ::read(descriptor_, buffer, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error(path_, "read", errno);
    report_progress();
    return static_cast<size_t>(count);
  }
}

size_t FileHandle::read_at(int64_t place, char* buffer, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        ::pread(descriptor_, buffer + done, bytes - done, place + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error(path_, "read", errno);
    report_progress();
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void FileHandle::truncate(int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) != 0) throw_file_error(path_, "truncate", errno);
}

bool FileHandle::try_lock() {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) throw_file_error(path_, "lock", errno);
  return false;
}

void FileHandle::sync() {
  if (::fsync(descriptor_) != 0) throw_file_error(path_, "sync", errno);
}

void FileHandle::close() {
  if (!is_open()) return;
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_file_error(path_, "close", errno);
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  FileHandle file = open_file(path);
  std::string text;
  std::array<char, 1 << 16> buffer;
  // Does not use the file's size: files of /proc have none.
  while (const size_t count = file.read(buffer.data(), buffer.size())) {
    text.append(buffer.data(), count);
    TLT_CHECK_INPUT(static_cast<int64_t>(text.size()) <= max_bytes, path, ": larger than ",
                    max_bytes, " bytes, the maximum for this file; is it the right file?");
  }
  return text;
}

void check_no_lfs_pointer(std::string_view head, const std::string& path) {
  TLT_CHECK_INPUT(!head.starts_with("version https://git-lfs."), path,
                  ": a Git LFS pointer, not the file itself; type: git lfs pull in its repository");
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_file_error(path, "create the folder", error.value());
  TLT_CHECK_INPUT(std::filesystem::is_directory(path), path,
                  ": a file with this name exists; give another folder");
}

int64_t free_bytes(const std::string& path) {
  struct statvfs status;
  if (::statvfs(path.c_str(), &status) != 0) throw_file_error(path, "get the free space", errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void sync_folder(const std::string& path) { FileHandle(path, O_RDONLY | O_DIRECTORY).sync(); }

FileHandle open_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO does not wait. It has no effect on a regular file.
  FileHandle file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat status;
  if (::fstat(file.descriptor(), &status) != 0) throw_file_error(path, "get the type", errno);
  TLT_CHECK_INPUT(S_ISREG(status.st_mode), path, " is ", kind_of_file(status.st_mode),
                  ", not a file; give the name of a file");
  return file;
}

FileHandle open_input(const std::string& path) {
  if (path == "-") return FileHandle::duplicate_of(STDIN_FILENO, "standard input");
  if (const auto descriptor = named_descriptor(path))
    return FileHandle::duplicate_of(*descriptor, path);
  return open_file(path);
}

bool is_stream(const std::string& path) {
  if (path == "-" || named_descriptor(path)) return true;
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (path == "-") {
    file_ = FileHandle::duplicate_of(STDOUT_FILENO, "standard output");
  } else if (const auto descriptor = named_descriptor(path)) {
    file_ = FileHandle::duplicate_of(*descriptor, path);
  } else if (is_stream(path)) {
    file_ = FileHandle(path, O_WRONLY);
  } else {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) throw_file_error(path, "write", EISDIR);
    target_ = follow_links(path);
    const std::string temporary = temporary_name(target_);
    file_ = FileHandle(temporary, O_WRONLY | O_CREAT | O_TRUNC, path);
    temporary_ = temporary;
  }
}

AtomicFile::~AtomicFile() {
  if (file_.is_open() && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::string_view bytes) { file_.write(bytes); }

void AtomicFile::commit() {
  TLT_CHECK(file_.is_open(), path_, " was committed before");
  if (temporary_.empty()) return file_.close();
  file_.sync();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_file_error(path_, "replace", errno);
  file_.close();
  sync_folder(folder_of(target_));
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.commit();
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  do {
    file_ = FileHandle(path, O_RDWR | O_CREAT);
    if (locks_soon(file_)) continue;
    std::array<char, 32> holder{};
    const size_t count = file_.read(holder.data(), holder.size());
    throw InputError(check_internal::concat(
        folder, ": another run (process ", std::string_view(holder.data(), count),
        ") writes into this folder; stop it or give another trainer.default_local_dir"));
  } while (!has_name(file_, path));  // renamed with its folder before it was locked
  file_.truncate(0);
  file_.write(std::to_string(::getpid()));
}

}  // namespace tlt
