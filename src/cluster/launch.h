// Launch: rank, world size and master address of this process, from its launcher's variables.
//
// Supports torchrun, mpirun (Open MPI, MPICH), srun, and the workers of spawn.h. No other file
// reads environment variables. No variable set: a solo run. Also read here: the job's secret
// (TLT_JOB_SECRET) and the ports it may listen on (TLT_PORT_RANGE).
//
//   const Launch launch = read_launch(process_environment());
//   if (launch.world_size == 1 && workers > 1) return spawn_workers(workers, argv);
//   const std::unique_ptr<Comm> comm = make_comm(launch, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace tlt::cluster {

using Environment = std::map<std::string, std::string>;

// The environment of this process. The first call, which main() makes, removes TLT_JOB_SECRET from
// what child processes inherit and from what /proc/PID/environ shows; every call returns it.
Environment process_environment();

// Ports to listen on, both ends included. 0: any free port.
struct PortRange {
  int begin = 0;
  int end = 0;
};

struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the workers of this host
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";  // the host of rank 0
  int master_port = 0;                       // of the rendezvous

  int listen_fd = -1;                  // rank 0: a socket that listens on master_port; -1: none yet
  bool launcher_serves_store = false;  // torchrun's agent serves the rendezvous
  int supervisor_pid = 0;              // of spawn_workers(); 0: another launcher
  std::string store_prefix = {};       // separates a restarted attempt from the previous one
  bool meets_again = false;            // a run that is under way, which another worker joins

  std::string job_secret = {};  // the same on every worker; empty: none (job_secret.h)
  PortRange ports = {};         // for the sockets that we bind ourselves, except master_port

  // All workers run on this host: everything listens on loopback.
  bool one_host() const { return local_world_size == world_size; }
};

// Reads torchrun's variables (RANK, WORLD_SIZE, …) first, then those of mpirun, then srun's. Throws
// InputError for a value that is not a number, is missing or contradicts another.
Launch read_launch(const Environment& environment);

// TLT_JOB_SECRET; empty: not set. Throws InputError if it is too short to be one.
std::string read_job_secret(const Environment& environment);

// TLT_PORT_RANGE=BEGIN-END.
PortRange read_port_range(const Environment& environment);

// The variables from which read_launch() of a process that we start restores `launch`.
Environment launch_environment(const Launch& launch);

// The first host of Slurm's compressed node list: "node[07-09,12],login" gives node07.
std::string first_host(const std::string& node_list);

// The number of tasks on a node in Slurm's list: in "4(x2),1" nodes 0 and 1 have 4, node 2 has 1.
// -1: no such node.
int tasks_of_node(const std::string& tasks_per_node, int node);

}  // namespace tlt::cluster
