// TrackerPackage: a fake wandb, first on PYTHONPATH, that writes its calls to a file and can fail.
//
//   TrackerPackage package("wandb");
//   package.set_fault("raise in log of step 3");
//   … a run …
//   package.logged_steps();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "tests/support/environment.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {

// Faults: "<raise|exit|die|kill|hang> in <import|init|log of step N|finish>", "die after log",
// "chat": prints much all the time.
inline constexpr const char* kFakePackage = R"py(
import json, math, os, signal, sys, threading, time

folder = os.path.dirname(os.path.abspath(__file__))


def fault_in(place):
    with open(folder + "/fault") as file:
        what = file.read()
    if not what.endswith(" in " + place):
        return
    print("these are its last words", file=sys.stderr, flush=True)
    kind = what.split()[0]
    if kind == "raise":
        raise RuntimeError("no API key; this is its reason")
    if kind == "exit":
        sys.exit("it calls sys.exit")
    if kind == "die":
        os._exit(9)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        with open(folder + "/pid.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(folder + "/pid.new", folder + "/pid")
        while True:
            time.sleep(1000)


def write(call):
    with open(folder + "/calls", "a") as file:
        file.write(json.dumps(call) + "\n")


def has_fault(text):
    with open(folder + "/fault") as file:
        return file.read() == text


class Table:
    def __init__(self, columns, data):
        self.value = {"columns": columns, "data": data}


def plain(value):
    if isinstance(value, Table):
        return value.value
    return "nan" if isinstance(value, float) and math.isnan(value) else value


class Config:
    def update(self, config, allow_val_change):
        write({"config": config})


class Run:
    config = Config()

    def log(self, metrics, step, commit):
        fault_in("log of step %d" % step)
        write({"log": {"step": step, "metrics": {name: plain(value) for name, value in metrics.items()}}})
        if has_fault("die after log"):
            threading.Timer(0.2, os._exit, [9]).start()

    def finish(self, exit_code):
        fault_in("finish")
        write({"finish": exit_code})


def chat():
    while True:
        print("x" * 100000)
        print("y" * 100000, file=sys.stderr)


def init(project, name, id, resume):
    fault_in("init")
    write({"init": {"project": project, "name": name, "id": id}})
    assert resume == ("allow" if id else None)
    print("printed where the protocol's answers could be")
    assert sys.stdin.read() == ""
    if has_fault("chat"):
        threading.Thread(target=chat, daemon=True).start()
    run = Run()
    run.id, run.url = id or "id-1", "fake://%s/%s" % (project, name)
    return run


fault_in("import")
)py";

class TrackerPackage {
 public:
  explicit TrackerPackage(const std::string& name)
      : file_(folder() + "/" + name + ".py"), path_("PYTHONPATH", folder()) {
    write_file_atomic(file_, kFakePackage);
    set_fault("");
  }

  std::string folder() const { return folder_.path(); }
  void set_fault(const std::string& fault) { write_file_atomic(folder() + "/fault", fault); }
  // From then on there is no such package, whatever python3 has installed.
  void remove() {
    std::filesystem::remove(file_);
    const std::string bare = folder() + "/bare_python";
    write_file_atomic(bare, "#!/bin/sh\nexec python3 -S \"$@\"\n");
    std::filesystem::permissions(bare, std::filesystem::perms::owner_all);
    python_.emplace("TLT_PYTHON", bare);
  }
  void clear() { std::filesystem::remove(folder() + "/calls"); }

  std::vector<nlohmann::ordered_json> calls() const {
    std::vector<nlohmann::ordered_json> calls;
    const std::string path = folder() + "/calls";
    if (!std::filesystem::exists(path)) return calls;
    std::istringstream lines(read_file(path, 1 << 26));
    for (std::string line; std::getline(lines, line);)
      calls.push_back(nlohmann::ordered_json::parse(line));
    return calls;
  }
  // Arguments of the calls of this function.
  std::vector<nlohmann::ordered_json> calls_of(const std::string& name) const {
    std::vector<nlohmann::ordered_json> found;
    for (const nlohmann::ordered_json& call : calls())
      if (call.contains(name)) found.push_back(call[name]);
    return found;
  }
  std::vector<int> logged_steps() const {
    std::vector<int> steps;
    for (const nlohmann::ordered_json& call : calls_of("log")) steps.push_back(call["step"]);
    return steps;
  }

  // Whether the process has not ended; false for one that its parent has not waited for.
  static bool is_running(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    return !stat.empty() && stat.find(") Z ") == stat.npos;
  }
  // The process of a package that hangs.
  int wait_for_pid() const {
    const std::string path = folder() + "/pid";
    for (int i = 0; i < 60000 && !std::filesystem::exists(path); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::filesystem::exists(path) ? std::stoi(read_file(path, 100)) : -1;
  }

 private:
  TestFolder folder_;
  std::string file_;
  Variable path_;
  std::optional<Variable> python_;
};

}  // namespace tlt::tests
