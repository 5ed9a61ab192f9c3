// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/sentence.h"

namespace tlt {
namespace {

// Writes to stderr and keeps the status line below what is written.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void show_status(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (!is_terminal_) return;
    const std::string shown = one_sentence(line);
    put(status_.empty() && line.empty() ? "" : kClear + fit(shown));
    status_ = shown;
  }

  bool is_terminal() const { return is_terminal_; }

  void set_is_terminal(bool is_terminal) {
    const std::lock_guard lock(mutex_);
    is_terminal_ = is_terminal;
    status_.clear();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    put(status_.empty() ? std::string(text) : kClear + std::string(text) + fit(status_));
  }

  void flush_() override {}

 private:
  static inline const std::string kClear = "\r\033[K";

  // Cuts the status to the terminal's width: a wrapped line could not be cleared.
  static std::string fit(std::string_view line) {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return std::string(line.substr(0, known ? size.ws_col - 1u : 79u));
  }

  // Writes the string in one call. An error on stderr cannot be reported.
  static void put(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

  std::atomic<bool> is_terminal_ = isatty(STDERR_FILENO) == 1;
  std::string status_;
};

constexpr size_t kEarlyLines = 64;

struct Log {
  std::shared_ptr<TerminalSink> terminal = std::make_shared<TerminalSink>();

  std::mutex mutex;  // protects what follows
  // Lines logged before a file was opened; null afterwards.
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> early =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kEarlyLines);
  std::shared_ptr<spdlog::sinks::basic_file_sink_mt> file;
  std::string rank_mark;
  std::set<std::string, std::less<>> warned_keys;
  std::shared_ptr<spdlog::logger> logger = make_logger();

  // Makes a new logger for every change: writers keep the old one until their line is written.
  std::shared_ptr<spdlog::logger> make_logger() const {
    auto made = std::make_shared<spdlog::logger>("tlt", terminal);
    if (early) made->sinks().push_back(early);
    if (file) made->sinks().push_back(file);
    made->set_pattern("%Y-%m-%d %H:%M:%S %L " + rank_mark + "%v");
    made->flush_on(spdlog::level::info);
    if (logger) made->set_level(logger->level());
    return made;
  }
};

// Never destroyed, so that a destructor at the end of the program can still log.
Log& the_log() {
  static Log* log = new Log;
  return *log;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::shared_ptr<spdlog::logger> current_logger() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return log.logger;
}

}  // namespace

namespace log_internal {

void write(LogLevel level, std::string_view text) {
  const std::string line = one_sentence(text, kMaxLogLineBytes);
  current_logger()->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

bool is_first(std::string_view key) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return log.warned_keys.emplace(key).second;
}

}  // namespace log_internal

void open_log_file(const std::string& path) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  try {
    log.file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  } catch (const spdlog::spdlog_ex& error) {
    throw InputError(path + ": cannot open the log file; give a folder that can be written (" +
                     error.what() + ")");
  }
  const auto early = std::exchange(log.early, nullptr);
  log.logger = log.make_logger();
  if (!early) return;
  for (const auto& line : early->last_raw()) log.file->log(line);
  log.file->flush();
}

void close_log_file() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.file = nullptr;
  log.logger = log.make_logger();
}

void set_log_rank(int rank, int world) {
  TLT_CHECK(rank >= 0 && rank < world, "rank ", rank, " of ", world);
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.rank_mark = world > 1 ? fmt::format("[{}/{}] ", rank, world) : "";
  log.logger = log.make_logger();
}

void show_status(std::string_view line) { the_log().terminal->show_status(line); }

bool log_is_terminal() { return the_log().terminal->is_terminal(); }

void set_log_is_terminal(bool is_terminal) { the_log().terminal->set_is_terminal(is_terminal); }

}  // namespace tlt
