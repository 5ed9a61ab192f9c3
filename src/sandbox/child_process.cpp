// SPDX-License-Identifier: Apache-2.0
#include "sandbox/child_process.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tlt::sandbox {

namespace {

constexpr std::chrono::milliseconds kGrace{500};  // time to exit after the end of its input
constexpr std::chrono::milliseconds kPause{5};

// A pipe or, for the program's input, a socket: unlike to a pipe, a write to a socket without a
// reader need not raise SIGPIPE. Other children do not inherit the ends.
struct Ends {
  explicit Ends(bool is_socket) {
    std::array<int, 2> ends = {};
    const int failed = is_socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())
                                 : pipe2(ends.data(), O_CLOEXEC);
    TLT_CHECK(failed == 0, "cannot create a pipe: ", std::strerror(errno));
    theirs = ends[is_socket ? 0 : 1];
    ours = ends[is_socket ? 1 : 0];
  }
  ~Ends() {
    if (theirs >= 0) close(theirs);
    if (ours >= 0) close(ours);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  int take_ours() {
    const int taken = std::exchange(ours, -1);
    fcntl(taken, F_SETFL, fcntl(taken, F_GETFL) | O_NONBLOCK);
    return taken;
  }

  int theirs = -1;
  int ours = -1;
};

// Waits for the end of its input, then kills its process group, itself included.
constexpr const char* kWatcher = "trap '' HUP INT QUIT TERM; read -r line; kill -KILL 0";

// Starts the program in a process group (0: a new one), with default signal handlers and none of
// this process's descriptors.
pid_t start(const std::string& command, pid_t group, int input, int output, int errors) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none), sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, group);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "sh", flag = "-c", text = command;
  char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  TLT_CHECK(failed == 0, "cannot start `", command, "`: ", std::strerror(failed));
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(const std::string& command, bool has_watcher) {
  Ends input(/*is_socket=*/true), output(/*is_socket=*/false), errors(/*is_socket=*/false);
  Ends lifeline(/*is_socket=*/true), nothing(/*is_socket=*/true);
  const pid_t watcher =
      has_watcher ? start(kWatcher, /*group=*/0, lifeline.theirs, nothing.theirs, nothing.theirs)
                  : 0;
  pid_ = start(command, watcher, input.theirs, output.theirs, errors.theirs);
  group_ = has_watcher ? watcher : pid_;
  if (has_watcher) lifeline_ = lifeline.take_ours();
  input_ = input.take_ours(), output_ = output.take_ours(), errors_ = errors.take_ours();
}

ChildProcess::~ChildProcess() {
  close_input();
  await_end();
  end();
  close(output_);
  close(errors_);
}

ChildProcess::Outcome ChildProcess::ask(const std::string& line, Clock::time_point deadline,
                                        std::string* answer, const Watch* watch) {
  const std::string request = line + '\n';
  size_t written = 0;
  auto next_look = watch != nullptr ? Clock::now() : Clock::time_point::max();
  while (true) {
    if (Clock::now() >= next_look) {
      if (!watch->may_continue(pid_)) return Outcome::kRefused;
      next_look = Clock::now() + watch->interval;
    }
    if (written < request.size()) {
      written += try_write(std::string_view(request).substr(written));
      if (has_lost_input_) written = request.size();  // it may have answered without reading
    }
    const bool is_open = read_some();
    read_stderr();
    const size_t end = answer_.find('\n');
    if (end != answer_.npos) {
      const bool is_one_line = end + 1 == answer_.size() && end <= kMaxLineBytes;
      *answer = answer_.substr(0, end);
      answer_.clear();
      return is_one_line ? Outcome::kAnswered : Outcome::kTooLong;
    }
    if (answer_.size() > kMaxLineBytes) return Outcome::kTooLong;
    has_output_ = is_open;
    if (!is_open) return Outcome::kEnded;
    if (Clock::now() >= deadline) return Outcome::kLate;
    wait_until(std::min(deadline, next_look), written < request.size());
  }
}

size_t ChildProcess::try_write(std::string_view text) {
  const ssize_t sent = send(input_, text.data(), text.size(), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) has_lost_input_ = true;
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

void ChildProcess::post(const std::string& line) {
  posted_ += line + '\n';
  write_posted();
}

void ChildProcess::write_posted() {
  if (!posted_.empty() && !has_lost_input_) posted_.erase(0, try_write(posted_));
  if (has_lost_input_) posted_.clear();  // or wait_for_any() would return at once, again and again
}

ChildProcess::Outcome ChildProcess::exchange(std::vector<std::string>* lines) {
  write_posted();
  has_output_ = read_some();
  read_stderr();
  size_t begin = 0;
  for (size_t end = 0; (end = answer_.find('\n', begin)) != answer_.npos; begin = end + 1)
    lines->push_back(answer_.substr(begin, end - begin));
  answer_.erase(0, begin);
  if (answer_.size() > kMaxLineBytes) return Outcome::kTooLong;
  return has_output_ ? Outcome::kAnswered : Outcome::kEnded;
}

bool ChildProcess::wait_for_any(std::span<ChildProcess* const> children, double seconds) {
  std::vector<pollfd> watched;
  for (const ChildProcess* child : children) {
    watched.push_back({child->output_, POLLIN, 0});
    if (!child->posted_.empty()) watched.push_back({child->input_, POLLOUT, 0});
  }
  return poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000)) > 0;
}

bool ChildProcess::is_ready() {
  const bool is_open = read_some();
  read_stderr();
  return is_open && answer_.empty() && !status(/*to_wait=*/false);
}

bool ChildProcess::left_input_unread() {
  int error = 0, bytes = 0;
  socklen_t size = sizeof error;
  getsockopt(input_, SOL_SOCKET, SO_ERROR, &error, &size);  // ECONNRESET: closed with unread bytes
  ioctl(input_, SIOCOUTQ, &bytes);
  has_lost_input_ = has_lost_input_ || error == ECONNRESET;
  return has_lost_input_ || bytes > 0;
}

std::string ChildProcess::last_words() {
  read_stderr();
  std::string words = stderr_tail_;
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.pop_back();
  std::ranges::replace(words, '\n', ' ');
  return words;
}

std::string ChildProcess::end() {
  if (!has_output_) await_end();  // a program that closes its output is about to exit
  const bool was_running = !status(/*to_wait=*/false);
  kill_group();
  const int ended = *status(/*to_wait=*/true);
  if (was_running) return "was stopped";
  return WIFSIGNALED(ended) ? check_internal::concat("was killed by signal ", WTERMSIG(ended))
                            : check_internal::concat("ended with status ", WEXITSTATUS(ended));
}

bool ChildProcess::read_some() {
  std::array<char, 1 << 16> buffer;
  while (answer_.size() <= kMaxLineBytes) {
    const ssize_t size = read(output_, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 && errno == EAGAIN;
    answer_.append(buffer.data(), static_cast<size_t>(size));
  }
  return true;
}

void ChildProcess::read_stderr() {
  std::array<char, 1 << 12> buffer;
  constexpr int kMostReads = 256;  // a program that writes endlessly is read again later
  for (int reads = 0; reads < kMostReads; ++reads) {
    const ssize_t size = read(errors_, buffer.data(), buffer.size());
    if (size <= 0) return;
    stderr_tail_.append(buffer.data(), static_cast<size_t>(size));
    if (stderr_tail_.size() > kStderrTailBytes) {
      stderr_tail_.erase(0, stderr_tail_.size() - kStderrTailBytes);
    }
  }
}

void ChildProcess::wait_until(Clock::time_point deadline, bool to_write) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd watched[] = {
      {output_, POLLIN, 0}, {errors_, POLLIN, 0}, {to_write ? input_ : -1, POLLOUT, 0}};
  constexpr int64_t kLongest = 1000;
  poll(watched, std::size(watched), static_cast<int>(std::clamp<int64_t>(left, 0, kLongest)));
  const bool errors_closed = (watched[1].revents & POLLHUP) && !(watched[1].revents & POLLIN);
  if (errors_closed) std::this_thread::sleep_for(kPause);  // else poll returns at once
}

void ChildProcess::await_end() {
  const auto deadline = input_end_.value_or(Clock::now()) + kGrace;
  while (!status(/*to_wait=*/false) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
  }
}

// Also the program's children, even if it has exited itself.
void ChildProcess::kill_group() {
  if (group_ < 0) return;
  kill(-group_, SIGKILL);
  if (lifeline_ >= 0) {
    close(std::exchange(lifeline_, -1));
    while (waitpid(group_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  group_ = -1;
}

void ChildProcess::close_input() {
  if (input_ < 0) return;
  close(std::exchange(input_, -1));
  input_end_ = Clock::now();
}

std::optional<int> ChildProcess::status(bool to_wait) {
  if (status_) return status_;
  int ended = 0;
  pid_t reaped = -1;
  do {
    reaped = waitpid(pid_, &ended, to_wait ? 0 : WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  // If other code has reaped it (SIGCHLD ignored), its status is unknown.
  if (reaped != 0) status_ = reaped == pid_ ? ended : 0;
  return status_;
}

}  // namespace tlt::sandbox
