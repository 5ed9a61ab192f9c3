// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/sentence.h"
#include "sandbox/code_driver.h"
#include "sandbox/code_values.h"
#include "sandbox/process_tree.h"

namespace tlt::sandbox {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kStart{20};  // until a sandbox is ready, on a busy machine
// For the kernel to end a test's processes; no code can prolong it, only other programs' load.
constexpr std::chrono::seconds kCleanUp{20};
constexpr std::chrono::milliseconds kCheckInterval{
    10};  // a check takes about a fifth of a millisecond
constexpr const char* kFolder = "/tmp";

// What of /usr is the machine's own, if it exists: files that are not of the distribution.
std::string hidden_folders() {
  std::string options;
  for (const char* folder : {"/usr/local", "/usr/src"})
    if (std::filesystem::is_directory(folder))
      options += std::string("--tmpfs ") + folder + " --remount-ro " + folder + " ";
  return options;
}

std::string command_of() {
  std::string command = "cd / && exec ";
  if (geteuid() == 0)
    command += "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs ";
  command +=
      "bwrap --unshare-user --unshare-all --disable-userns --die-with-parent --new-session "
      "--hostname sandbox --cap-drop ALL --cap-add CAP_SYS_ADMIN --clearenv --setenv PATH /usr/bin "
      "--setenv HOME /tmp --setenv LANG C.UTF-8 "
      "--setenv OPENBLAS_NUM_THREADS 1 --setenv OMP_NUM_THREADS 1 --setenv PYTHONHASHSEED 0 "
      "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 "
      "/lib64 "
      "--ro-bind-try /etc/ld.so.cache /etc/ld.so.cache "
      "--dev-bind /dev/null /dev/null --dev-bind /dev/urandom /dev/urandom ";
  command += hidden_folders() + "--tmpfs " + kFolder + " --chdir " + kFolder + " ";
  return command + "--remount-ro / /usr/bin/python3 -I -B -c " + shell_word(kCodeDriver) + " " +
         shell_word(kCodeValues);
}

Sandbox::Status status_of(const std::string& name) {
  if (name == "ok") return Sandbox::Status::kOk;
  if (name == "failed") return Sandbox::Status::kFailed;
  if (name == "late") return Sandbox::Status::kLate;
  if (name == "flood") return Sandbox::Status::kFlooded;
  return Sandbox::Status::kBroken;
}

}  // namespace

Sandbox::Sandbox(const SandboxLimits& limits, Clock::time_point deadline)
    : limits_(limits), child_(command_of(), /*has_watcher=*/false) {
  if (!ProcessTree::kernel_lists_children())
    throw Error("the kernel does not list a process's children (CONFIG_PROC_CHILDREN)");
  const Json setup = {{"setup",
                       {{"memory", limits.memory_bytes},
                        {"file", limits.file_bytes},
                        {"processes", limits.processes}}}};
  std::string answer;
  if (child_.ask(setup.dump(), deadline, &answer) == ChildProcess::Outcome::kAnswered) return;
  const std::string how = child_.end(), words = child_.last_words();
  throw Error("the sandbox for code " + how + (words.empty() ? "" : ": " + words));
}

Sandbox::Outcome Sandbox::run(Json request, double seconds, int64_t output_bytes,
                              Clock::time_point deadline) {
  const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
  const double wall = std::min(kWallFactor * seconds, left);
  if (seconds <= 0 || wall <= 0) return {.status = Status::kLate};
  request["seconds"] = seconds;
  request["wall"] = wall;
  request["limit"] = output_bytes;
  const auto answered_by = Clock::now() + kCleanUp + to_duration(wall);
  std::string line;
  const std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  const ChildProcess::Watch watch = {kCheckInterval,
                                     [this](pid_t child) { return is_within_limits(child); }};
  const auto outcome = child_.ask(text, answered_by, &line, &watch);
  if (outcome == ChildProcess::Outcome::kRefused) {
    child_.end();
    return {.status = Status::kGreedy};
  }
  if (outcome != ChildProcess::Outcome::kAnswered) return {.status = Status::kBroken};
  const Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool is_read = answer.is_object() && answer.contains("status") && answer.contains("out") &&
                       answer["status"].is_string() && answer["out"].is_string() &&
                       answer.contains("cpu") && answer["cpu"].is_number();
  if (!is_read) return {.status = Status::kBroken};
  return {.status = status_of(answer["status"].get<std::string>()),
          .output = answer["out"].get<std::string>(),
          .cpu_seconds = answer["cpu"].get<double>()};
}

// Empty files take kernel memory too. When processes exit during a check, their shared pages are
// counted twice, so a second check decides.
bool Sandbox::is_within_limits(pid_t child) const {
  const int64_t most_bytes = limits_.memory_bytes + kOwnBytes;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const ProcessTree tree(child);
    if (tree.memory_bytes(most_bytes) <= most_bytes &&
        tree.files_on(kFolder).value_or(0) <= limits_.files)
      return true;
  }
  return false;
}

void Sandbox::check() {
  std::string what;
  try {
    const auto deadline = Clock::now() + kStart;
    Sandbox sandbox({}, deadline);
    const Outcome outcome =
        sandbox.run({{"code", "print('ready')"}, {"stdin", ""}}, 10, 100, deadline);
    if (outcome.status == Status::kOk && outcome.output == "ready\n") return;
    what = "a test program did not run in it";
  } catch (const Error& error) {
    what = error.what();
  }
  throw InputError(
      "the reward code runs responses in a sandbox only, and none is available on this "
      "machine (" +
      what +
      "); install bubblewrap and Debian's python3 and python3-seccomp, and allow user namespaces "
      "(sysctl "
      "kernel.unprivileged_userns_clone=1, in a container its seccomp profile)");
}

}  // namespace tlt::sandbox
