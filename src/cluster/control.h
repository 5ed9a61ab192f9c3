// Control: assigns the groups of an RL step to workers, over ZeroMQ.
//
// Rank 0 has a ControlServer: a thread with a ROUTER socket around the Coordinator. Every rank,
// rank 0 too, has a ControlClient: a GroupSource with a thread and a DEALER socket around a
// WorkerProtocol. The caller's thread only takes a lock for microseconds; it never waits for a
// message.
//
// Every connection is encrypted and authenticated (ZeroMQ CURVE): messages from a process without
// the keys are dropped, and so are messages that no worker writes. The keys are derived from the
// job secret; a run without one sends them through Comm, in clear. Sockets listen at own_address():
// loopback on one host.
//
//   const std::unique_ptr<GroupSource> source = make_group_source(*comm, launch, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/options.h"
#include "cluster/coordinator.h"
#include "cluster/group_source.h"
#include "cluster/launch.h"

namespace tlt::cluster {

class Comm;

struct ControlOptions {
  double heartbeat_seconds = 1;
  double lost_after_seconds = 60;
  int64_t min_workers_for_training = 0;  // 0: no worker trains

  void visit(auto& v) {
    v(heartbeat_seconds, "heartbeat_seconds", Affects::kPlace,
      "Seconds between two heartbeats of a worker.");
    v(lost_after_seconds, "lost_after_seconds", Affects::kPlace,
      "Seconds without a message in the rollouts after which a worker is lost.");
  }
  void check() const;
};

// What a client needs to connect. Rank 0 distributes the endpoint, and the keys if they are not
// derived from a job secret.
struct ControlKeys {
  std::string endpoint;  // tcp://address:port
  std::string server_public;
  std::string client_public, client_secret;  // all workers share them
};

class ControlServer {
 public:
  // Listens on a free port of the numeric `address`. Its keys are random without a job secret.
  ControlServer(const std::string& address, int workers, const ControlOptions& options,
                const std::string& job_secret = {}, const PortRange& ports = {});
  ~ControlServer();

  const ControlKeys& keys() const;

  // Callable from any thread. Rethrows the exception that ended the server's thread.
  WorkerState state(int worker) const;
  bool is_silent(int worker) const;
  // Marks the worker as lost, soon.
  void lose(int worker);
  // Received so far.
  int64_t messages() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class ControlClient final : public GroupSource {
 public:
  ControlClient(const ControlKeys& keys, int worker, const ControlOptions& options);
  ~ControlClient() override;

  void begin_step(int64_t step, int64_t groups) override;
  [[nodiscard]] std::optional<int64_t> try_take() override;
  void done(int64_t group) override;
  [[nodiscard]] bool has_migration() override;
  [[nodiscard]] std::string take_migration() override;
  void report(const WorkerLoad& load) override;
  void offer(int64_t groups) override;
  [[nodiscard]] bool should_hand_over() override;
  void hand_over(std::string rollouts) override;
  [[nodiscard]] std::string take_finished() override;
  [[nodiscard]] bool should_migrate() override;
  void move(std::string migration) override;
  void stop() override;
  [[nodiscard]] bool is_interrupted() override;
  [[nodiscard]] bool was_stopped() override;
  [[nodiscard]] bool step_done() override;
  void wait_for_news(double seconds) override;
  [[nodiscard]] bool may_train() override;
  double training_ended_at() override;
  [[nodiscard]] std::vector<int> lost_workers() override;
  [[nodiscard]] bool is_silent(int worker) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// LocalGroups for one worker; otherwise rank 0 starts the server and every rank gets a client.
// Collective: every rank must call it.
std::unique_ptr<GroupSource> make_group_source(Comm& comm, const Launch& launch,
                                               const ControlOptions& options);

}  // namespace tlt::cluster
