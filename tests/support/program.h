// Runs the program as a user would, in a separate folder.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/test_device_name.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A TestFolder whose files are paths.
class Scratch : public TestFolder {
 public:
  std::filesystem::path operator/(const std::string& name) const {
    return std::filesystem::path(path()) / name;
  }
};

// The value of trainer.device (test_device_name.h); empty: the CPU.
inline std::string device_of_runs() { return tests_the_cpu() ? "" : test_device_name(); }

// The program under test: with the device "far", it is one that has it.
inline const char* program_file() {
  return device_of_runs() == "far" ? TLT_FAR_PROGRAM : TLT_PROGRAM;
}

// Files of a program's standard streams.
struct Streams {
  std::string out, err;  // may be the same
  std::string in = {};   // empty: that of the test
};

// A running `tlt …`; its output goes to `log`. `prepare` is called in the new process before exec:
// for limits and variables.
class Program {
 public:
  Program(const std::vector<std::string>& arguments, const std::filesystem::path& log,
          const std::function<void()>& prepare = {})
      : Program(arguments, Streams{.out = log, .err = log}, prepare) {}
  Program(std::vector<std::string> arguments, const Streams& streams,
          const std::function<void()>& prepare = {})
      : log_(streams.out) {
    arguments.insert(arguments.begin(), program_file());
    std::fflush(stdout);  // else both would write the buffer's content
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);  // so that kill_all() reaches its workers
      constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
      if (!streams.in.empty()) redirect(streams.in, O_RDONLY, STDIN_FILENO);
      redirect(streams.out, kNew, STDOUT_FILENO);
      if (streams.err != streams.out) redirect(streams.err, kNew, STDERR_FILENO);
      if (streams.err == streams.out && dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(127);
      if (chdir(TLT_SOURCE_DIR) != 0) _exit(127);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      if (prepare) prepare();
      execv(program_file(), argv.data());
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
  static void redirect(const std::string& path, int flags, int descriptor) {
    if (dup2(open(path.c_str(), flags, 0600), descriptor) < 0) _exit(127);
  }

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

// The same once it is started.
inline pid_t wait_for_worker(pid_t parent, int rank) {
  pid_t worker = -1;
  for (int i = 0; i < 6000 && (worker = worker_of(parent, rank)) < 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return worker;
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
