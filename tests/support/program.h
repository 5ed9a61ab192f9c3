// Runs the program as a user would, in a separate folder.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tlt::tests {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder that is deleted after the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tlt_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// A running `tlt …`; its output goes to `log`. `prepare` is called in the new process before exec:
// for limits and variables.
class Program {
 public:
  Program(std::vector<std::string> arguments, const std::filesystem::path& log,
          const std::function<void()>& prepare = {})
      : log_(log) {
    arguments.insert(arguments.begin(), TLT_PROGRAM);
    std::fflush(stdout);  // else both would write the buffer's content
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);  // so that kill_all() reaches its workers
      if (!freopen(log.c_str(), "w", stdout) || dup2(1, 2) < 0 || chdir(TLT_SOURCE_DIR) != 0)
        _exit(127);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      if (prepare) prepare();
      execv(TLT_PROGRAM, argv.data());
      _exit(127);
    }
    setpgid(pid_, pid_);
  }
  ~Program() {
    if (pid_ > 0) kill_all();
  }

  // Exit code; 128 + n when signal n ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Its exit code if it ended within this time.
  bool wait_for(double seconds, int* code) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  void send(int signal) const { kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  // kill -9 for the program and all its workers.
  void kill_all() {
    kill(-pid_, SIGKILL);
    wait();
  }
  std::string output() const { return read_text(log_); }

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
};

inline int run_program(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                       const std::function<void()>& prepare = {}) {
  Program program(arguments, log, prepare);
  return program.wait();
}

// The worker process of a rank; -1: none.
inline pid_t worker_of(pid_t parent, int rank) {
  const std::string variable = std::string("\0RANK=", 6) + std::to_string(rank) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = read_text(entry.path() / "stat");
    const size_t after_name = status.rfind(')');  // "12 (tlt) S parent …"
    if (after_name == std::string::npos || std::atoi(status.c_str() + after_name + 4) != parent)
      continue;
    if (read_text(entry.path() / "environ").find(variable) != std::string::npos)
      return std::stoi(name);
  }
  return -1;
}

// Waits until the file exists; false: it does not after this time.
inline bool appears(const std::filesystem::path& file, double seconds = 60) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!std::filesystem::exists(file)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace tlt::tests
