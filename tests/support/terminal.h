// Terminal: runs a program in a pseudo-terminal and records its output as it appears.
//
//   Terminal terminal({"chat", "--model", folder});
//   terminal.type("hello\n");
//   EXPECT_TRUE(terminal.shows("> ")) << terminal.text();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace tlt::tests {

class Terminal {
 public:
  explicit Terminal(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TLT_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = forkpty(&master_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      execv(TLT_PROGRAM, argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), wait();
    close(master_);
  }

  void type(const std::string& keys) const {
    if (::write(master_, keys.data(), keys.size()) < 0) _exit(127);
  }

  void send(int signal) const { kill(pid_, signal); }

  // Reads until `what` has appeared after the output of the last call; false: it did not, or the
  // program has ended.
  bool shows(const std::string& what, double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (text_.find(what, seen_) == std::string::npos)
      if (std::chrono::steady_clock::now() > end || !read_more()) return false;
    seen_ = text_.find(what, seen_) + what.size();
    return true;
  }

  // The output so far, and the pieces in which it arrived.
  const std::string& text() const { return text_; }
  const std::vector<std::string>& pieces() const { return pieces_; }

  // Exit code; 128 + n when signal n ended it.
  int wait() {
    while (read_more()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_more() {
    pollfd one{.fd = master_, .events = POLLIN, .revents = 0};
    if (poll(&one, 1, /*milliseconds=*/60'000) <= 0) return false;
    std::string piece(1 << 16, '\0');
    const ssize_t bytes = ::read(master_, piece.data(), piece.size());
    if (bytes <= 0) return false;  // EIO: the program has ended
    piece.resize(static_cast<size_t>(bytes));
    text_ += piece;
    pieces_.push_back(std::move(piece));
    return true;
  }

  int master_ = -1;
  pid_t pid_ = -1;
  std::string text_;
  size_t seen_ = 0;
  std::vector<std::string> pieces_;
};

}  // namespace tlt::tests
