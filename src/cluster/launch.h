// Launch: who this process is among the workers, as its launcher says.
//
// torchrun, mpirun (Open MPI, MPICH) and srun say it with variables, and so does spawn.h.
// This is the only file that reads environment variables. Nothing set: a solo run.
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

Environment process_environment();

struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the workers of this host
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";  // where rank 0 is
  int master_port = 0;                       // of the rendezvous

  int listen_fd = -1;  // rank 0: a socket that already listens on master_port; -1: make one
  bool launcher_serves_store = false;  // torchrun's agent is the server of the rendezvous
  std::string store_prefix = {};       // keeps a restarted attempt apart from the one before

  // All workers on this host: everything listens on loopback.
  bool one_host() const { return local_world_size == world_size; }
};

// Reads torchrun's variables (RANK, WORLD_SIZE, …) first, then those of mpirun, then srun's. Throws
// InputError for a value that is no number, that is missing or that contradicts another.
Launch read_launch(const Environment& environment);

// The variables with which a process started by us finds `launch` again.
Environment launch_environment(const Launch& launch);

// The place of a worker: workers with the same data_rank hold parts of one model, workers with the
// same tensor_rank hold the same part. Nobody else computes with ranks.
struct Axes {
  int data_rank = 0;
  int data_size = 1;
  int tensor_rank = 0;
  int tensor_size = 1;
};

// REQUIRES: tensor_size divides the number of workers.
Axes make_axes(const Launch& launch, int tensor_size = 1);

// The first host of Slurm's compressed list: "node[07-09,12],login" is node07.
std::string first_host(const std::string& node_list);

// How many tasks Slurm's list gives to a node: of "4(x2),1" node 0 and 1 have 4, node 2 has 1; -1
// when there is no such node.
int tasks_of_node(const std::string& tasks_per_node, int node);

}  // namespace tlt::cluster
