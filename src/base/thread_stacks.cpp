// SPDX-License-Identifier: Apache-2.0
#include "base/thread_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

namespace tlt {
namespace {

constexpr int kMostFrames = 64;
constexpr std::chrono::milliseconds kAnswerTime(100);  // of a thread
const int kSignal = SIGRTMAX - 1;

// What the handler writes. It answers only the thread that is asked: a late one is ignored.
std::array<void*, kMostFrames> frames;
std::atomic<int> asked_thread = 0;
std::atomic<int> frame_count = 0;  // 0: no answer yet

pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

extern "C" void write_own_stack(int) {
  const int error = errno;  // the interrupted code may read it
  if (asked_thread.load() == this_thread()) frame_count = ::backtrace(frames.data(), kMostFrames);
  errno = error;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

// The functions of the program itself, which are not in its dynamic symbol table.
class ProgramSymbols {
 public:
  ProgramSymbols() : bytes_(read_all("/proc/self/exe")) {
    const auto* head = at<Elf64_Ehdr>(0, 1);
    if (head == nullptr || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return;
    const auto* sections = at<Elf64_Shdr>(head->e_shoff, head->e_shnum);
    if (sections == nullptr) return;
    for (size_t i = 0; i < head->e_shnum; ++i)
      if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < head->e_shnum)
        read_symbols(sections[i], sections[sections[i].sh_link]);
  }

  // The function at this offset from the program's start; null: unknown.
  const char* find(uint64_t offset) const {
    for (const Elf64_Sym& symbol : symbols_)
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && offset >= symbol.st_value &&
          offset - symbol.st_value < symbol.st_size && symbol.st_name < names_.size())
        return names_.data() + symbol.st_name;
    return nullptr;
  }

 private:
  template <class T>
  const T* at(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  void read_symbols(const Elf64_Shdr& table, const Elf64_Shdr& names) {
    const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
    if (const auto* first = at<Elf64_Sym>(table.sh_offset, count))
      symbols_.assign(first, first + count);
    if (const auto* text = at<char>(names.sh_offset, names.sh_size)) names_ = {text, names.sh_size};
  }

  const std::string bytes_;
  std::vector<Elf64_Sym> symbols_;
  std::string_view names_;  // ends with a zero, as every string table
};

std::string describe(void* address, const ProgramSymbols& symbols) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("  {}", address);
  // A return address may be that of the next function: look one byte before it.
  const auto offset =
      reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(info.dli_fbase) - 1;
  const std::string file = std::filesystem::path(info.dli_fname).filename();
  const char* name = info.dli_sname ? info.dli_sname : symbols.find(offset);
  return name ? fmt::format("  {}  {}+{:#x}", demangled(name), file, offset)
              : fmt::format("  {}+{:#x}", file, offset);
}

// The letter of a thread's state: R, S, D (waits in the kernel), t (stopped by a debugger) …
char state_of(int thread) {
  const std::string status = read_all(fmt::format("/proc/self/task/{}/stat", thread));
  const size_t after_name = status.rfind(')');
  return after_name + 2 < status.size() ? status[after_name + 2] : '?';
}

std::string name_of(int thread) {
  std::string name = read_all(fmt::format("/proc/self/task/{}/comm", thread));
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

bool try_read_stack(int thread) {
  frame_count = 0;
  asked_thread = thread;
  if (::syscall(SYS_tgkill, ::getpid(), thread, kSignal) != 0) return false;
  const auto end = std::chrono::steady_clock::now() + kAnswerTime;
  while (frame_count.load() == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  asked_thread = 0;
  return frame_count.load() > 0;
}

void add_thread(int thread, const ProgramSymbols& symbols, std::vector<std::string>& lines) {
  const std::string title = fmt::format(
      "{} {} ({})", thread == ::getpid() ? "main thread" : "thread", thread, name_of(thread));
  const char state = state_of(thread);
  if (state == 't') {
    lines.push_back(title + " is stopped by a debugger (ptrace): its stack cannot be read");
  } else if (!try_read_stack(thread)) {
    lines.push_back(
        fmt::format("{} gives no stack: it blocks signals or waits in the kernel "
                    "(state {})",
                    title, state));
  } else {
    lines.push_back(title + ":");
    constexpr int kOwnFrames = 2;  // the handler and its return
    for (int i = kOwnFrames; i < frame_count.load(); ++i)
      lines.push_back(describe(frames[static_cast<size_t>(i)], symbols));
  }
}

}  // namespace

void prepare_thread_stacks() {
  std::array<void*, 1> ignored{};
  ::backtrace(ignored.data(), static_cast<int>(ignored.size()));
}

std::vector<std::string> thread_stacks() {
  struct sigaction action {};
  action.sa_handler = write_own_stack;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(kSignal, &action, nullptr);
  std::vector<int> threads;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", none))
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  std::ranges::sort(threads);  // the main thread has the smallest number, that of the process
  std::erase(threads, this_thread());
  const ProgramSymbols symbols;
  std::vector<std::string> lines;
  for (const int thread : threads) add_thread(thread, symbols, lines);
  return lines;
}

}  // namespace tlt
