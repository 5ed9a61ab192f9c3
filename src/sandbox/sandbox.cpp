// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/sentence.h"
#include "sandbox/code_driver.h"
#include "sandbox/process_tree.h"

namespace tlt::sandbox {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kStart{20};  // until a sandbox is ready, on a busy machine
constexpr std::chrono::milliseconds kCleanUp{500};
constexpr std::chrono::milliseconds kCheckInterval{
    10};  // a check takes about a fifth of a millisecond
constexpr const char* kFolder = "/tmp";

std::string command_of(const SandboxLimits& limits) {
  std::string command = "cd / && exec ";
  if (geteuid() == 0)
    command += "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs ";
  command +=
      "bwrap --unshare-user --unshare-all --disable-userns --die-with-parent --new-session "
      "--cap-drop ALL --clearenv --setenv PATH /usr/bin --setenv HOME /tmp --setenv LANG C.UTF-8 "
      "--setenv OPENBLAS_NUM_THREADS 1 --setenv OMP_NUM_THREADS 1 --setenv PYTHONHASHSEED 0 "
      "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 "
      "/lib64 "
      "--ro-bind-try /etc/ld.so.cache /etc/ld.so.cache "
      "--dev-bind /dev/null /dev/null --dev-bind /dev/urandom /dev/urandom ";
  command += "--size " + std::to_string(4 * limits.file_bytes) + " --tmpfs " + kFolder +
             " --chdir " + kFolder + " ";
  return command + "--remount-ro / /usr/bin/python3 -I -B -c " + shell_word(kCodeDriver);
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
    : limits_(limits), child_(command_of(limits)) {
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
  seconds = std::min(seconds, left);
  if (seconds <= 0) return {Status::kLate, ""};
  request["seconds"] = seconds;
  request["limit"] = output_bytes;
  const auto answered_by =
      Clock::now() + kCleanUp +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::string line;
  const std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  const ChildProcess::Watch watch = {kCheckInterval,
                                     [this](pid_t child) { return is_within_limits(child); }};
  const auto outcome = child_.ask(text, answered_by, &line, &watch);
  if (outcome == ChildProcess::Outcome::kRefused) {
    child_.end();
    return {Status::kGreedy, ""};
  }
  if (outcome != ChildProcess::Outcome::kAnswered) return {Status::kBroken, ""};
  const Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool is_read = answer.is_object() && answer.contains("status") && answer.contains("out") &&
                       answer["status"].is_string() && answer["out"].is_string();
  if (!is_read) return {Status::kBroken, ""};
  return {status_of(answer["status"].get<std::string>()), answer["out"].get<std::string>()};
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
