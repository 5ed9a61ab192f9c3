// Join: a further worker joins a run of `tlt train` that is under way.
//
//   build/tlt train RECIPE.toml --workers 2    # in one shell
//   build/tlt train RECIPE.toml --join         # later, in another one
//
// They find each other in the run folder, which all workers share. The new worker writes a request
// and keeps it locked while it waits. Rank 0 looks for requests after each step, refuses those of
// workers that could not work with the others, and lets the rest join: the run saves a checkpoint,
// and all workers, old and new, connect as at the start of a run and resume from it (rl_loop.h).
//
//   join/ID.request   {"terms": {"version", "options", "inputs"}, "host", "proof"}
//   join/ID.answer    {"meeting": {…}, "rank": n, "secret"} or {"refused": "why"}
//
// Secret     The answer to a worker on the host of rank 0 has the job secret, in a file that only
//            this user can read. For another host it is not written: the new worker proves that it
//            has it.
// Threading  engine thread only.
// Errors     a request that cannot be used is refused or removed, and never ends the run.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/address.h"
#include "run/run_context.h"
#include "run/run_options.h"

namespace tlt::run {

// How a worker of the run connects again.
struct NextLaunch {
  cluster::Launch with_new;     // with the workers that join
  cluster::Launch without_new;  // if one of them does not come
};

struct JoinMeeting;  // all workers, old and new, and where they connect

// The side of the run. All workers call the same functions in the same order.
class JoinRequests {
 public:
  // Borrows both. `folder`: of the run.
  JoinRequests(const RunOptions& options, const RunContext& context, const std::string& folder);
  // Refuses the requests that are left, if the run ends.
  ~JoinRequests();
  JoinRequests(const JoinRequests&) = delete;
  JoinRequests& operator=(const JoinRequests&) = delete;

  // Lets the workers join that wait to; nullopt: there is none.
  std::optional<NextLaunch> accept();

 private:
  struct Request {
    std::string id, host;
  };

  std::vector<Request> read_requests() const;
  void refuse(const std::string& id, const std::string& why) const;
  void reply(const std::string& id, const std::string& text) const;
  JoinMeeting agree(const std::vector<Request>& requests, size_t joining);
  JoinMeeting plan(std::vector<std::string> hosts, const std::vector<Request>& requests) const;
  void listen(JoinMeeting& meeting, size_t joining);
  void close_sockets();
  void answer(const JoinMeeting& meeting, const std::vector<Request>& requests) const;

  const RunOptions& options_;
  const RunContext& context_;
  const std::string folder_;                  // that of the requests
  std::string secret_;                        // of the job
  cluster::Listener with_new_, without_new_;  // rank 0, while workers join
  bool continues_ = false;                    // accept() has let workers join
};

// The side of the new worker: asks to join the run of `options` and waits until it may. Waits as
// long as the run is under way; for a run to begin at most trainer.timeout_seconds. nullopt: this
// process was interrupted. InputError: the run refuses the worker, or there is no run.
std::optional<cluster::Launch> join_run(const RunOptions& options, const cluster::Launch& launch);

// The options of a run that resumes in its folder within the same process.
RunOptions resumed_options(const RunOptions& options);

}  // namespace tlt::run
