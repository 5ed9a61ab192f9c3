// spawn_workers: `tlt … --workers N` on one machine, without a launcher.
//
// Starts N processes of this program, one a rank, and only looks after them: this process has no
// rank, so it outlives any of them and can say which one failed.
//
// Not here   what a worker does; printing the result and ending with its exit code (apps/).
// Invariant  no process of ours is left when spawn_workers returns, and none outlives this process.
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

struct SpawnOptions {
  // After a worker failed: how long the others have to end by themselves. Longer than they wait for
  // its word (ControlOptions::lost_after_seconds): they can say what they missed.
  double grace_seconds = 15;
  std::string program = "/proc/self/exe";  // tests start something else
};

struct SpawnResult {
  int exit_code = 0;    // of the worker that failed first; 128 + n: it was killed by signal n
  std::string message;  // names that worker; empty when all ended well
};

// Runs `count` workers with the arguments `argv` (argv[0] included) and waits for all of them. When
// one fails, the others get SIGTERM, and SIGKILL after grace_seconds. SIGTERM, SIGINT and SIGHUP to
// this process are passed on; then a worker that ends as asked does not hurry the others, but one
// that was killed by it, before it could catch it, ends them too.
// REQUIRES: called by the main thread before any other thread was started.
SpawnResult spawn_workers(int count, const std::vector<std::string>& argv,
                          const SpawnOptions& options = {});

}  // namespace tlt::cluster
