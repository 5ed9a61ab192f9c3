// SPDX-License-Identifier: Apache-2.0
#include "sandbox/process_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

namespace tlt::sandbox {
namespace {

constexpr size_t kMostProcesses = 4096;  // of a tree that grows faster than it is read

// A short file of /proc; empty if it does not exist any more or is not readable.
std::string read_proc(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = read(file, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(size));
  close(file);
  return text;
}

// The value of a line like "VmRSS:         5678 kB"; 0: none.
int64_t kilobytes(std::string_view text, std::string_view name) {
  size_t at = 0;
  while (!text.substr(at).starts_with(name)) {
    const size_t line_end = text.find('\n', at);
    if (line_end == text.npos) return 0;
    at = line_end + 1;
  }
  const size_t digits = text.find_first_of("0123456789", at + name.size());
  int64_t value = 0;
  if (digits != text.npos) std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return value;
}

std::string proc(pid_t process, const char* file) {
  return "/proc/" + std::to_string(process) + "/" + file;
}

// In memory or swapped out; 0: it has exited.
int64_t bytes_of(pid_t process) {
  const std::string status = read_proc(proc(process, "status"));
  return (kilobytes(status, "VmRSS:") + kilobytes(status, "VmSwap:")) << 10;
}

// Any thread of a process may have started a child.
void add_children(pid_t process, std::vector<pid_t>& processes) {
  std::error_code error;
  std::filesystem::directory_iterator thread(proc(process, "task"), error);
  for (; !error && thread != end(thread); thread.increment(error)) {
    const std::string text = read_proc(thread->path().string() + "/children");
    std::istringstream children(text);
    for (pid_t child = 0; children >> child;) processes.push_back(child);
  }
}

}  // namespace

ProcessTree::ProcessTree(pid_t root) : processes_{root} {
  for (size_t i = 0; i < processes_.size() && i < kMostProcesses; ++i)
    add_children(processes_[i], processes_);
}

int64_t ProcessTree::memory_bytes(int64_t enough) const {
  int64_t most = 0;
  for (const pid_t process : processes_) most += bytes_of(process);
  if (most <= enough) return most;
  int64_t total = 0;
  for (const pid_t process : processes_) {
    const std::string shares = read_proc(proc(process, "smaps_rollup"));
    const int64_t own = (kilobytes(shares, "Pss:") + kilobytes(shares, "SwapPss:")) << 10;
    total += shares.empty() ? bytes_of(process) : own;  // not readable; or it has just exited
  }
  return total;
}

std::optional<int64_t> ProcessTree::files_on(const std::string& folder) const {
  struct stat ours = {}, theirs = {};
  stat(folder.c_str(), &ours);
  std::optional<int64_t> most;
  for (const pid_t process : processes_) {
    const std::string path = proc(process, "root") + folder;
    if (stat(path.c_str(), &theirs) != 0 || theirs.st_dev == ours.st_dev) continue;
    struct statvfs system = {};
    if (statvfs(path.c_str(), &system) != 0) continue;
    most = std::max(most.value_or(0), static_cast<int64_t>(system.f_files - system.f_ffree));
  }
  return most;
}

bool ProcessTree::kernel_lists_children() {
  const std::string self = std::to_string(getpid());
  return access(("/proc/self/task/" + self + "/children").c_str(), R_OK) == 0;
}

}  // namespace tlt::sandbox
