// spawn_workers: runs `tlt … --workers N` on one machine, without a launcher.
//
// Starts N processes of this program, one per rank, and supervises them. This process has no rank,
// so it outlives all of them and can report which one failed. The workers get a job secret
// (job_secret.h) through their environment: TLT_JOB_SECRET, or a new one.
//
// Not here   what a worker does; printing the result, exiting with its code (apps/).
// Invariant  no worker is left when spawn_workers returns, and none outlives this process.
//
//   const SpawnResult result = spawn_workers(workers, {argv, argv + argc});
//   if (result.exit_code != 0) log(result.message);
//   return result.exit_code;
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt::cluster {

struct Launch;

struct SpawnOptions {
  // How long the other workers have to end by themselves after one failed. One that waits for it in
  // a collective ends at once; one that decodes would notice the loss later and is stopped.
  double grace_seconds = 15;
  std::string program = "/proc/self/exe";  // tests set another program
};

struct SpawnResult {
  int exit_code = 0;    // of the worker that failed first; 128 + n: it was killed by signal n
  std::string message;  // names that worker, or with exit code 0 those that the others continued
                        // without; empty if all succeeded
};

// Runs `count` workers with the arguments `argv` (argv[0] included) and waits for all of them. When
// one fails, the others get SIGTERM, and SIGKILL after grace_seconds. SIGTERM, SIGINT and SIGHUP to
// this process are forwarded. A worker that then ends by itself does not affect the others; if the
// signal killed a worker before it could catch it, the others are ended too. After
// let_workers_fail() a worker that fails does not affect the others, unless it is rank 0, which
// decides on the exit code.
// REQUIRES: called by the main thread before any other thread was started.
SpawnResult spawn_workers(int count, const std::vector<std::string>& argv,
                          const SpawnOptions& options = {});

// Called by the worker of rank 0: from now on the others continue without one that is lost. No
// effect if spawn_workers() has not started it.
void let_workers_fail(const Launch& launch);

}  // namespace tlt::cluster
