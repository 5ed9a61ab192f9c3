// tlt bench control: the coordinator with the connections of many workers.
//
// The workers decode nothing: each takes groups and finishes them after a random time. They are in
// processes of their own, so the processor time of this one is that of the coordinator: its
// decisions, messages, encryption.
//
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/scenarios.h"
#include "cluster/control.h"
#include "cluster/listeners.h"

namespace tlt::bench {
namespace {

constexpr int64_t kMostGroups = (int64_t{1} << 24) - 1;  // of a step: Coordinator::round_robin()

struct ControlFlags {
  int64_t workers = 200, processes = 4, steps = 3, groups = 4;
  double seconds = 2;

  void add_to(CLI::App& app) {
    app.add_option("--workers", workers, "Connections to the coordinator.");
    app.add_option("--processes", processes, "Processes that the workers are in.");
    app.add_option("--steps", steps, "RL steps.");
    app.add_option("--groups", groups, "Groups of a step for each worker.");
    app.add_option("--seconds", seconds, "Mean time of a group.");
  }
  void check() const {
    TLT_CHECK_INPUT(workers >= 2 && workers <= 100'000, "--workers is ", workers,
                    "; give a number from 2 to 100000");
    TLT_CHECK_INPUT(processes >= 1 && processes <= workers, "--processes is ", processes,
                    "; give a number from 1 to that of the workers");
    TLT_CHECK_INPUT(steps >= 1 && groups >= 1 && seconds > 0,
                    "--steps, --groups and --seconds must be above 0");
    TLT_CHECK_INPUT(groups <= kMostGroups / workers, "--groups is ", groups, "; give at most ",
                    kMostGroups / workers, " for ", workers, " workers");
  }
  cluster::ControlOptions options() const { return {.min_workers_for_training = 1}; }
  int64_t groups_of_step() const { return groups * workers; }
};

// What the workers of a process report.
struct WorkersReport {
  int64_t done = 0;           // groups
  std::vector<double> takes;  // seconds from a request to its group
};

// One worker without an engine. poll() does what is due and returns false after the last step.
class FakeWorker {
 public:
  FakeWorker(const cluster::ControlKeys& keys, int worker, const ControlFlags& flags)
      : flags_(flags),
        client_(keys, worker, flags.options()),
        random_(static_cast<uint64_t>(worker)) {}

  bool poll(double now, WorkersReport& report) {
    if (client_.step_done()) {
      if (step_ + 1 == flags_.steps) return false;
      client_.begin_step(++step_, flags_.groups_of_step());
      requested_at_.reset();  // the end of a step has no groups
    }
    if (group_ && now >= ends_at_) {
      client_.done(*group_);
      ++report.done;
      group_.reset();
    }
    if (group_) return true;
    if (!requested_at_) requested_at_ = now;
    group_ = client_.try_take();
    if (!group_) return true;
    report.takes.push_back(steady_clock().seconds() - *requested_at_);
    requested_at_.reset();
    ends_at_ = now + std::exponential_distribution<>(1 / flags_.seconds)(random_);
    return true;
  }

 private:
  const ControlFlags& flags_;
  cluster::ControlClient client_;
  std::mt19937_64 random_;
  int64_t step_ = -1;
  std::optional<int64_t> group_;
  std::optional<double> requested_at_;
  double ends_at_ = 0;
};

// In a process of its own: `count` workers from `first` on, in turns.
WorkersReport run_workers(const cluster::ControlKeys& keys, int64_t first, int64_t count,
                          const ControlFlags& flags) {
  constexpr std::chrono::milliseconds kTurn(1);
  std::deque<FakeWorker> workers;
  for (int64_t i = 0; i < count; ++i)
    workers.emplace_back(keys, static_cast<int>(first + i), flags);
  WorkersReport report;
  for (bool is_over = false; !is_over;) {
    is_over = true;
    for (FakeWorker& worker : workers)
      if (worker.poll(steady_clock().seconds(), report)) is_over = false;
    std::this_thread::sleep_for(kTurn);
  }
  return report;
}

// A forked process, and a pipe in each direction.
class WorkersProcess {
 public:
  // REQUIRES: this process has no other threads yet.
  WorkersProcess(int64_t first, int64_t count, const ControlFlags& flags) {
    std::array<int, 2> down{}, up{};
    TLT_CHECK(pipe(down.data()) == 0 && pipe(up.data()) == 0, "cannot create a pipe");
    pid_ = fork();
    TLT_CHECK(pid_ >= 0, "cannot start a process");
    const bool is_child = pid_ == 0;
    if (is_child) prctl(PR_SET_PDEATHSIG, SIGKILL);
    input_ = is_child ? down[0] : up[0];
    output_ = is_child ? up[1] : down[1];
    close(is_child ? down[1] : down[0]);
    close(is_child ? up[0] : up[1]);
    if (is_child) serve(first, count, flags);
  }
  // Ends the process if it still runs: after an error no end of its pipe would, because processes
  // that were forked later have the other ends open too.
  ~WorkersProcess() {
    kill(pid_, SIGKILL);
    close(output_);
    close(input_);
    waitpid(pid_, nullptr, 0);
  }
  WorkersProcess(const WorkersProcess&) = delete;
  WorkersProcess& operator=(const WorkersProcess&) = delete;

  void begin(const cluster::ControlKeys& keys) const {
    write_line({keys.endpoint, keys.server_public, keys.client_public, keys.client_secret});
  }

  WorkersReport await_report() const {
    const auto report = nlohmann::json::parse(read_line());
    TLT_CHECK(!report.contains("error"), report.value("error", ""));
    return {.done = report.at("done").get<int64_t>(),
            .takes = report.at("takes").get<std::vector<double>>()};
  }

 private:
  [[noreturn]] void serve(int64_t first, int64_t count, const ControlFlags& flags) {
    nlohmann::json line;
    try {
      const auto keys = nlohmann::json::parse(read_line());
      const WorkersReport report = run_workers({.endpoint = keys.at(0),
                                                .server_public = keys.at(1),
                                                .client_public = keys.at(2),
                                                .client_secret = keys.at(3)},
                                               first, count, flags);
      line = {{"done", report.done}, {"takes", report.takes}};
    } catch (const std::exception& error) {
      line = {{"error", error.what()}};
    }
    write_line(line);
    _exit(0);
  }

  // A line each way: a process that was forked later has the other ends open too.
  std::string read_line() const {
    std::string text;
    std::array<char, 1 << 16> buffer;
    while (!text.ends_with('\n')) {
      const ssize_t size = read(input_, buffer.data(), buffer.size());
      TLT_CHECK(size > 0, "a process of workers has ended without a report");
      text.append(buffer.data(), static_cast<size_t>(size));
    }
    return text;
  }
  void write_line(const nlohmann::json& line) const {
    const std::string text = line.dump() + "\n";
    for (size_t done = 0; done < text.size();) {
      const ssize_t size = write(output_, text.data() + done, text.size() - done);
      TLT_CHECK(size > 0, "cannot write to a pipe");
      done += static_cast<size_t>(size);
    }
  }

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
};

}  // namespace

int run_control(const cli::Arguments& arguments) {
  ControlFlags flags;
  CLI::App app("The coordinator of an RL run with many workers, which decode nothing.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  cluster::raise_descriptor_limit();
  std::deque<WorkersProcess> processes;
  for (int64_t i = 0; i < flags.processes; ++i) {
    const int64_t first = i * flags.workers / flags.processes;
    const int64_t end = (i + 1) * flags.workers / flags.processes;
    processes.emplace_back(first, end - first, flags);
  }
  const cluster::ControlServer server("127.0.0.1", static_cast<int>(flags.workers),
                                      flags.options());
  const Stopwatch watch;
  const double cpu_before = processor_clock().seconds();
  for (WorkersProcess& process : processes) process.begin(server.keys());
  WorkersReport all;
  for (WorkersProcess& process : processes) {
    const WorkersReport report = process.await_report();
    all.done += report.done;
    all.takes.insert(all.takes.end(), report.takes.begin(), report.takes.end());
  }
  const double seconds = watch.seconds(), cpu = processor_clock().seconds() - cpu_before;
  const auto messages = static_cast<double>(server.messages());
  const int64_t lost = flags.steps * flags.groups_of_step() - all.done;
  print_report({{"bench", "control"},
                {"workers", flags.workers},
                {"processes", flags.processes},
                {"steps", flags.steps},
                {"groups_done", all.done},
                {"groups_lost", lost},
                {"seconds", seconds},
                {"messages_per_second", messages / seconds},
                {"cpu_share", cpu / seconds},
                {"cpu_seconds_per_message", cpu / messages},
                {"take_seconds_p50", median(all.takes)},
                {"take_seconds_p99", percentile(all.takes, 0.99)},
                {"take_seconds_max", std::ranges::max(all.takes)}});
  return lost == 0 ? 0 : 1;
}

}  // namespace tlt::bench
