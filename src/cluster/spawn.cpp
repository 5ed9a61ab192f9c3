// SPDX-License-Identifier: Apache-2.0
#include "cluster/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "cluster/address.h"
#include "cluster/job_secret.h"
#include "cluster/launch.h"

namespace tlt::cluster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLetFail = SIGUSR1;  // from rank 0 to the supervisor

struct Worker {
  int rank = 0;
  pid_t pid = -1;
  std::optional<int> status;  // of waitpid(), if it has ended
};

bool was_killed(int status) { return WIFSIGNALED(status); }
bool failed(int status) { return was_killed(status) || WEXITSTATUS(status) != 0; }
int exit_code(int status) {
  return was_killed(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
// True for the exit codes a shell gives to SIGHUP, SIGINT and SIGTERM.
bool was_interrupted(int status) {
  const int code = exit_code(status);
  return code == 128 + SIGHUP || code == 128 + SIGINT || code == 128 + SIGTERM;
}

// The strings as execve() takes them; made before the fork: the child must not allocate.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_of(const Launch& launch) {
  Environment environment = process_environment();
  for (const auto& [name, value] : launch_environment(launch)) environment[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  return entries;
}

// Blocks the signals that Supervisor handles during its lifetime.
class SignalMask {
 public:
  SignalMask() {
    sigemptyset(&handled_);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, kLetFail})
      sigaddset(&handled_, signal);
    TLT_CHECK(pthread_sigmask(SIG_BLOCK, &handled_, &before_) == 0);
  }
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;

  const sigset_t& before() const { return before_; }

  // Returns the next signal, or nullopt after 50 ms.
  std::optional<siginfo_t> wait() const {
    const timespec bound{.tv_sec = 0, .tv_nsec = 50'000'000};
    siginfo_t info{};
    if (sigtimedwait(&handled_, &info, &bound) < 0) return std::nullopt;
    return info;
  }

 private:
  sigset_t handled_;
  sigset_t before_;
};

class Supervisor {
 public:
  Supervisor(int count, std::vector<std::string> argv, const SpawnOptions& options)
      : options_(options) {
    const Environment environment = process_environment();
    secret_ = read_job_secret(environment);
    if (secret_.empty()) secret_ = random_hex();
    const Listener listener = listen_in("127.0.0.1", read_port_range(environment));
    try {
      for (int rank = 0; rank < count; ++rank) start(rank, count, argv, listener);
    } catch (...) {
      close(listener.fd);
      end_all();
      throw;
    }
    close(listener.fd);
  }

  SpawnResult run() {
    while (reap() > 0) {
      if (const std::optional<siginfo_t> signal = mask_.wait()) pass_on(*signal);
      if (repeated_ != 0) signal_all(repeated_);
      for (const auto& deadline : {deadline_, stuck_deadline_})
        if (deadline && Clock::now() > *deadline) signal_all(SIGKILL);
    }
    if (result_.message.empty() && !lost_.empty())
      result_.message = lost_ + "; the others continued";
    return result_;
  }

 private:
  void start(int rank, int count, std::vector<std::string>& argv, const Listener& listener) {
    Launch launch{.rank = rank, .world_size = count, .local_rank = rank, .local_world_size = count};
    launch.master_port = listener.port;
    launch.job_secret = secret_;
    launch.supervisor_pid = getpid();
    if (rank == 0)
      launch.listen_fd = listener.fd;  // already bound, so no other process can take the port
    std::vector<std::string> entries = environment_of(launch);
    const std::vector<char*> arguments = pointers(argv), environment = pointers(entries);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    TLT_CHECK(pid >= 0, "cannot start worker ", rank, ": ", std::strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // the parent died before prctl
      if (rank == 0) fcntl(listener.fd, F_SETFD, 0);
      pthread_sigmask(SIG_SETMASK, &mask_.before(), nullptr);
      execve(options_.program.c_str(), arguments.data(), environment.data());
      _exit(127);
    }
    workers_.push_back({.rank = rank, .pid = pid, .status = {}});
  }

  // Collects the workers that have ended; returns the number of running ones.
  int reap() {
    int running = 0;
    const Worker* culprit = nullptr;
    for (Worker& worker : workers_) {
      if (worker.status) continue;
      int status = 0;
      if (waitpid(worker.pid, &status, WNOHANG) != worker.pid) {
        ++running;
        continue;
      }
      worker.status = status;
      if (is_tolerated(worker)) {
        lost_ += (lost_.empty() ? "" : ", ") + describe(worker);
        continue;
      }
      if (worker.rank == 0 && lets_fail_) stuck_deadline_ = end_of_grace();
      // If several ended, a killed one is the cause; the others failed because it was gone.
      if (failed(status) &&
          (culprit == nullptr || (was_killed(status) && !was_killed(*culprit->status))))
        culprit = &worker;
    }
    if (culprit != nullptr && !deadline_) blame(*culprit, running);
    return running;
  }

  // A worker that caught a signal of its own has saved with the others, and they are ending, too.
  bool was_stopped(int status) const {
    return (stop_requested_ || !was_killed(status)) && was_interrupted(status);
  }

  bool is_tolerated(const Worker& worker) const {
    return lets_fail_ && worker.rank != 0 && failed(*worker.status) && !was_stopped(*worker.status);
  }

  std::string describe(const Worker& worker) const {
    const int status = *worker.status;
    return "worker " + std::to_string(worker.rank) + " of " + std::to_string(workers_.size()) +
           " (process " + std::to_string(worker.pid) + ")" +
           (was_killed(status) ? " was killed by signal " + std::to_string(WTERMSIG(status)) +
                                     " (" + strsignal(WTERMSIG(status)) + ")"
                               : " ended with exit code " + std::to_string(WEXITSTATUS(status)));
  }

  void blame(const Worker& worker, int running) {
    const int status = *worker.status;
    result_.exit_code = exit_code(status);
    if (was_stopped(status)) {
      result_.message = "stopped by a signal";
      // A worker that catches the signal is saving, and so are the others: a second signal would
      // end them at once. A killed one was still starting, and the others would wait for it
      // forever.
      if (was_killed(status)) end_by(WTERMSIG(status));
      return;
    }
    result_.message = describe(worker);
    if (running > 0) result_.message += "; the other workers were stopped";
    set_deadline();
    signal_all(SIGTERM);
  }

  // Repeats the signal: a process may receive two signals in close succession as one.
  void end_by(int signal) {
    repeated_ = signal;
    set_deadline();
  }

  void set_deadline() { deadline_ = end_of_grace(); }

  Clock::time_point end_of_grace() const {
    return Clock::now() + to_duration(options_.grace_seconds);
  }

  void pass_on(const siginfo_t& signal) {
    if (signal.si_signo == SIGCHLD) return;
    if (signal.si_signo == kLetFail) {
      lets_fail_ |= signal.si_pid == workers_.front().pid;
      return;
    }
    stop_requested_ = true;
    const bool from_terminal = signal.si_code > 0;  // it has sent the signal to the process group
    if (!from_terminal) signal_all(signal.si_signo);
  }

  void signal_all(int signal) {
    for (const Worker& worker : workers_)
      if (!worker.status) kill(worker.pid, signal);
  }

  void end_all() {
    signal_all(SIGKILL);
    for (const Worker& worker : workers_)
      if (!worker.status) waitpid(worker.pid, nullptr, 0);
  }

  const SpawnOptions options_;
  const SignalMask mask_;
  std::string secret_;  // of the job; constant after construction
  std::vector<Worker> workers_;
  SpawnResult result_;
  bool stop_requested_ = false;
  bool lets_fail_ = false;  // let_workers_fail() was called
  int repeated_ = 0;        // a signal that running workers get until they end; 0: none
  std::string lost_;        // workers that have failed since
  std::optional<Clock::time_point> deadline_;        // set when a worker has failed
  std::optional<Clock::time_point> stuck_deadline_;  // the others', once rank 0 has ended
};

}  // namespace

SpawnResult spawn_workers(int count, const std::vector<std::string>& argv,
                          const SpawnOptions& options) {
  TLT_CHECK_INPUT(count >= 1 && count <= 1024, "--workers ", count,
                  " is not from 1 to 1024; give the number of processes to start here");
  TLT_CHECK(!argv.empty());
  return Supervisor(count, argv, options).run();
}

void let_workers_fail(const Launch& launch) {
  if (launch.supervisor_pid > 0 && getppid() == launch.supervisor_pid)
    kill(launch.supervisor_pid, kLetFail);
}

}  // namespace tlt::cluster
