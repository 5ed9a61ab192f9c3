// Log: messages to the user, on stderr and, after open_log_file(), in the run folder's log.txt. A
// message is one line, whatever strings from a file it quotes: one_sentence(), kMaxLogLineBytes.
//
// Not here   metrics of a run (metrics.h); output for scripts, which goes to stdout in apps/.
// Threading  every function may be called from any thread; lines are never interleaved.
//
//   log_info("step {}: {:.1f} tokens/s", step, rate);
//   warn_once("no_tensorboard", "no TensorBoard events: {}", reason);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace tlt {

enum class LogLevel { kInfo, kWarning, kError };

namespace log_internal {

void write(LogLevel level, std::string_view text);
bool is_first(std::string_view key);

}  // namespace log_internal

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

// Logs a warning only once per key and process.
template <class... Args>
void warn_once(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (log_internal::is_first(key)) log_warning(format, std::forward<Args>(args)...);
}

// Also appends every line to this file, beginning with the latest 64 before this call: a run
// creates its folder only after it has loaded its inputs. Workers of one run may share the file.
// Throws InputError when it cannot be opened.
void open_log_file(const std::string& path);
void close_log_file();

// Adds the rank to every line when there is more than one worker.
void set_log_rank(int rank, int world);

// A line that stays at the bottom of the terminal while others are logged above it; an empty one
// removes it. No effect if stderr is not a terminal. One at a time: only progress.h uses it.
void show_status(std::string_view line);

// Whether stderr is a terminal; a test may override it.
bool log_is_terminal();
void set_log_is_terminal(bool is_terminal);

}  // namespace tlt
