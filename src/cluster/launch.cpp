// SPDX-License-Identifier: Apache-2.0
#include "cluster/launch.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "cluster/address.h"

namespace tlt::cluster {
namespace {

constexpr int kDefaultPort = 29500;  // torchrun's

constexpr const char* kSecretName = "TLT_JOB_SECRET";
constexpr const char* kPortsName = "TLT_PORT_RANGE";
constexpr size_t kMinSecretLetters = 16;

std::optional<int> to_int(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The environment variables of one launcher.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  bool has(const std::string& name) const { return environment_.contains(name); }

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? otherwise : found->second;
  }

  int number(const std::string& name) const {
    const auto found = environment_.find(name);
    TLT_CHECK_INPUT(found != environment_.end(), name, " is not set but other variables of ",
                    launcher_, " are; set ", name, " or unset the others");
    const std::optional<int> value = to_int(found->second);
    TLT_CHECK_INPUT(value && *value >= 0, name, "='", found->second, "' (", launcher_,
                    ") is not an integer from 0 up");
    return *value;
  }

  int number(const std::string& name, int otherwise) const {
    return has(name) ? number(name) : otherwise;
  }

  // MASTER_PORT, else a port that every worker derives from the same `job`.
  int port(const std::string& job) const {
    if (has("MASTER_PORT") || job.empty()) return number("MASTER_PORT", kDefaultPort);
    uint32_t hash = 2166136261u;  // FNV-1a
    for (const unsigned char letter : job) hash = (hash ^ letter) * 16777619u;
    PortRange ports = read_port_range(environment_);
    if (ports.begin == 0) ports = {.begin = 20000, .end = 29999};
    const auto count = static_cast<uint32_t>(ports.end - ports.begin + 1);
    return ports.begin + static_cast<int>(hash % count);
  }

  const std::string& launcher() const { return launcher_; }

 private:
  const Environment& environment_;
  std::string launcher_;
};

void check_launch(const Launch& launch, const std::string& launcher) {
  const auto says = [&](const std::string& what) { return what + " (" + launcher + ")"; };
  TLT_CHECK_INPUT(launch.world_size >= 1, says("the number of workers is 0"), "; give at least 1");
  TLT_CHECK_INPUT(launch.rank < launch.world_size, says("rank " + std::to_string(launch.rank)),
                  " is not below the number of workers ", launch.world_size,
                  "; ranks count from 0");
  TLT_CHECK_INPUT(
      launch.local_world_size >= 1 && launch.local_world_size <= launch.world_size,
      says("the number of workers on this host is " + std::to_string(launch.local_world_size)),
      " but there are ", launch.world_size, " in all; give at most that many");
  TLT_CHECK_INPUT(launch.local_rank < launch.local_world_size,
                  says("local rank " + std::to_string(launch.local_rank)),
                  " is not below the number of workers on this host ", launch.local_world_size,
                  "; local ranks count from 0");
  TLT_CHECK_INPUT(launch.local_rank <= launch.rank,
                  says("local rank " + std::to_string(launch.local_rank)), " is above the rank ",
                  launch.rank, "; ranks count over all hosts");
  if (launch.world_size == 1) return;
  TLT_CHECK_INPUT(launch.master_port >= 1 && launch.master_port <= 65535,
                  says("MASTER_PORT=" + std::to_string(launch.master_port)),
                  " is not a port; give a number from 1 to 65535");
  TLT_CHECK_INPUT(!launch.master_address.empty(), says("MASTER_ADDR is empty"),
                  "; set it to the host name of rank 0");
  TLT_CHECK_INPUT(
      launch.one_host() || !names_loopback(launch.master_address),
      says("MASTER_ADDR=" + launch.master_address), " is this host, but only ",
      launch.local_world_size, " of ", launch.world_size,
      " workers run here; set it to the host name of rank 0 as the other hosts know it");
}

// On one host rank 0 is here; across hosts only the launcher knows the address.
std::string master_address(const Variables& variables, const Launch& launch) {
  TLT_CHECK_INPUT(launch.local_world_size >= launch.world_size || variables.has("MASTER_ADDR"),
                  "MASTER_ADDR is not set (", variables.launcher(),
                  "), and the workers run on several hosts; set it to the host name of rank 0");
  return variables.text("MASTER_ADDR", "127.0.0.1");
}

Launch read_torchrun(const Variables& variables) {
  Launch launch;
  launch.rank = variables.number("RANK");
  launch.world_size = variables.number("WORLD_SIZE");
  // Without the local pair: all workers are here if rank 0 is, else there is one worker per host.
  const bool here =
      !variables.has("MASTER_ADDR") || names_loopback(variables.text("MASTER_ADDR", ""));
  launch.local_world_size = variables.number("LOCAL_WORLD_SIZE", here ? launch.world_size : 1);
  launch.local_rank = variables.number("LOCAL_RANK", here ? launch.rank : 0);
  launch.master_address = master_address(variables, launch);
  launch.master_port = variables.port("");
  launch.listen_fd = variables.has("TLT_LISTEN_FD") ? variables.number("TLT_LISTEN_FD") : -1;
  launch.supervisor_pid = variables.number("TLT_SUPERVISOR_PID", 0);
  launch.launcher_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  if (variables.has("TORCHELASTIC_RESTART_COUNT"))
    launch.store_prefix = "attempt_" + variables.text("TORCHELASTIC_RESTART_COUNT", "");
  return launch;
}

Launch read_open_mpi(const Variables& variables) {
  Launch launch;
  launch.rank = variables.number("OMPI_COMM_WORLD_RANK");
  launch.world_size = variables.number("OMPI_COMM_WORLD_SIZE");
  launch.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK");
  launch.local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE");
  launch.master_address = master_address(variables, launch);
  launch.master_port = variables.port(
      variables.text("PMIX_NAMESPACE", variables.text("OMPI_MCA_ess_base_jobid", "")));
  return launch;
}

Launch read_mpich(const Variables& variables) {
  Launch launch;
  launch.rank = variables.number("PMI_RANK");
  launch.world_size = variables.number("PMI_SIZE");
  const bool here =
      !variables.has("MASTER_ADDR") || names_loopback(variables.text("MASTER_ADDR", ""));
  launch.local_rank = variables.number("MPI_LOCALRANKID", here ? launch.rank : 0);
  launch.local_world_size = variables.number("MPI_LOCALNRANKS", here ? launch.world_size : 1);
  launch.master_address = master_address(variables, launch);
  launch.master_port = variables.port("");
  return launch;
}

Launch read_srun(const Variables& variables) {
  Launch launch;
  launch.rank = variables.number("SLURM_PROCID");
  launch.world_size = variables.has("SLURM_STEP_NUM_TASKS")
                          ? variables.number("SLURM_STEP_NUM_TASKS")
                          : variables.number("SLURM_NTASKS");
  launch.local_rank = variables.number("SLURM_LOCALID");
  const std::string nodes = variables.text("SLURM_STEP_NODELIST", "");
  const int node_count = variables.number("SLURM_STEP_NUM_NODES",
                                          nodes.find_first_of("[,") == std::string::npos ? 1 : 2);
  if (variables.has("SLURM_STEP_TASKS_PER_NODE")) {
    const std::string list = variables.text("SLURM_STEP_TASKS_PER_NODE", "");
    const int node = variables.number("SLURM_NODEID", 0);
    launch.local_world_size = tasks_of_node(list, node);
    TLT_CHECK_INPUT(launch.local_world_size >= 1, "SLURM_STEP_TASKS_PER_NODE='", list,
                    "' (srun) has no tasks for SLURM_NODEID ", node,
                    "; start the workers with srun -n");
  } else {
    const int otherwise = node_count == 1 ? launch.world_size : launch.local_rank + 1;
    launch.local_world_size = variables.number("SLURM_NTASKS_PER_NODE", otherwise);
  }
  if (variables.has("MASTER_ADDR") || nodes.empty())
    launch.master_address = master_address(variables, launch);
  else
    launch.master_address = launch.one_host() ? "127.0.0.1" : first_host(nodes);
  const std::string job = variables.text("SLURM_JOB_ID", "");
  launch.master_port =
      variables.port(job.empty() ? "" : job + "." + variables.text("SLURM_STEP_ID", "0"));
  return launch;
}

// A batch script has SLURM_PROCID=0 too, although it is not a task of srun.
bool is_srun_task(const Environment& environment) {
  const auto rank = environment.find("SLURM_PROCID");
  if (rank == environment.end()) return false;
  return rank->second != "0" || environment.contains("SLURM_STEP_NODELIST") ||
         environment.contains("SLURM_STEP_NUM_TASKS") || environment.contains("MASTER_ADDR");
}

// A wrapper around mpirun may set RANK from MPI's own variables; they must agree (RANK=0
// WORLD_SIZE=1 in a job script would start one solo run per task). torchrun under mpirun starts
// workers of its own.
void check_agrees_with_mpi(const Launch& launch, const Environment& environment,
                           const std::string& rank_name, const std::string& size_name) {
  if (!environment.contains(rank_name) || environment.contains("TORCHELASTIC_RUN_ID")) return;
  const Variables variables(environment, "mpirun");
  TLT_CHECK_INPUT(launch.rank == variables.number(rank_name) &&
                      launch.world_size == variables.number(size_name),
                  "RANK=", launch.rank, " WORLD_SIZE=", launch.world_size, " contradict ",
                  rank_name, "=", variables.number(rank_name), " ", size_name, "=",
                  variables.number(size_name), "; unset RANK and WORLD_SIZE");
}

// Takes the value of a variable out of the environment, and out of /proc/PID/environ.
std::optional<std::string> take_variable(const char* name) {
  char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string taken = value;
  explicit_bzero(value, taken.size());
  unsetenv(name);
  return taken;
}

Launch read_any(const Environment& environment, std::string& launcher) {
  const auto variables = [&](const char* name) { return Variables(environment, launcher = name); };
  if (environment.contains("RANK") || environment.contains("WORLD_SIZE"))
    return read_torchrun(variables("torchrun"));
  if (environment.contains("OMPI_COMM_WORLD_RANK") || environment.contains("OMPI_COMM_WORLD_SIZE"))
    return read_open_mpi(variables("mpirun"));
  if (environment.contains("PMI_RANK") && !is_srun_task(environment))
    return read_mpich(variables("mpirun"));
  if (is_srun_task(environment)) return read_srun(variables("srun"));
  launcher = "";
  return {};
}

}  // namespace

Environment process_environment() {
  static const std::optional<std::string> secret = take_variable(kSecretName);
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (secret) environment[kSecretName] = *secret;
  return environment;
}

std::string read_job_secret(const Environment& environment) {
  const auto found = environment.find(kSecretName);
  if (found == environment.end()) return "";
  TLT_CHECK_INPUT(found->second.size() >= kMinSecretLetters, kSecretName, " has ",
                  found->second.size(), " characters; give every worker the same ",
                  kMinSecretLetters, " or more random ones: export ", kSecretName,
                  "=$(openssl rand -hex 32)");
  return found->second;
}

PortRange read_port_range(const Environment& environment) {
  const auto found = environment.find(kPortsName);
  if (found == environment.end() || found->second.empty()) return {};
  const std::string& text = found->second;
  const size_t dash = std::min(text.find('-'), text.size());
  const std::optional<int> begin = to_int(text.substr(0, dash));
  const std::optional<int> end = to_int(text.substr(std::min(dash + 1, text.size())));
  TLT_CHECK_INPUT(begin && end && 1 <= *begin && *begin <= *end && *end <= 65535, kPortsName, "='",
                  text, "' is not BEGIN-END with ports from 1 to 65535; give for example ",
                  kPortsName, "=30000-30099");
  return {.begin = *begin, .end = *end};
}

Launch read_launch(const Environment& environment) {
  std::string launcher;
  Launch launch = read_any(environment, launcher);
  if (launcher.empty()) return launch;
  launch.job_secret = read_job_secret(environment);
  launch.ports = read_port_range(environment);
  check_launch(launch, launcher);
  if (launcher == "torchrun") {
    check_agrees_with_mpi(launch, environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (!is_srun_task(environment))
      check_agrees_with_mpi(launch, environment, "PMI_RANK", "PMI_SIZE");
  }
  return launch;
}

Environment launch_environment(const Launch& launch) {
  Environment environment = {{"RANK", std::to_string(launch.rank)},
                             {"WORLD_SIZE", std::to_string(launch.world_size)},
                             {"LOCAL_RANK", std::to_string(launch.local_rank)},
                             {"LOCAL_WORLD_SIZE", std::to_string(launch.local_world_size)},
                             {"MASTER_ADDR", launch.master_address},
                             {"MASTER_PORT", std::to_string(launch.master_port)}};
  if (launch.listen_fd >= 0) environment["TLT_LISTEN_FD"] = std::to_string(launch.listen_fd);
  if (launch.supervisor_pid > 0)
    environment["TLT_SUPERVISOR_PID"] = std::to_string(launch.supervisor_pid);
  if (!launch.job_secret.empty()) environment[kSecretName] = launch.job_secret;
  if (launch.ports.begin > 0)
    environment[kPortsName] =
        std::to_string(launch.ports.begin) + "-" + std::to_string(launch.ports.end);
  return environment;
}

std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t first_end = node_list.find_first_of("-,]", i + 1);
    const size_t close = node_list.find(']', i + 1);
    TLT_CHECK_INPUT(close != std::string::npos && first_end > i + 1, "SLURM_STEP_NODELIST='",
                    node_list, "' is not a node list; set MASTER_ADDR to the host name of rank 0");
    host += node_list.substr(i + 1, first_end - i - 1);
    i = close;
  }
  return host;
}

int tasks_of_node(const std::string& tasks_per_node, int node) {
  for (size_t begin = 0; begin < tasks_per_node.size();) {
    const size_t end = std::min(tasks_per_node.find(',', begin), tasks_per_node.size());
    const std::string entry = tasks_per_node.substr(begin, end - begin);
    const size_t times = entry.find("(x");
    const std::optional<int> tasks = to_int(entry.substr(0, times));
    std::optional<int> nodes = 1;
    if (times != std::string::npos)
      nodes = entry.back() == ')' ? to_int(entry.substr(times + 2, entry.size() - times - 3))
                                  : std::nullopt;
    if (!tasks || !nodes) return -1;
    if (node < *nodes) return *tasks;
    node -= *nodes;
    begin = end + 1;
  }
  return -1;
}

}  // namespace tlt::cluster
