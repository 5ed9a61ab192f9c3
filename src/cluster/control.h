// Control: the conversation about who rolls out what, over ZeroMQ.
//
// Rank 0 has a ControlServer: a thread with a ROUTER socket around the Coordinator. Every rank,
// rank 0 too, has a ControlClient: a GroupSource with a thread and a DEALER socket around a
// WorkerProtocol. The caller's thread only takes a lock for microseconds; it never waits for a
// message.
//
// Every connection is encrypted and authenticated (ZeroMQ CURVE): who does not have the keys that
// rank 0 hands out through Comm is not heard. Sockets listen where own_address() says: loopback on
// one host.
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

namespace tlt::cluster {

class Comm;
struct Launch;

struct ControlOptions {
  double heartbeat_seconds = 1;
  double lost_after_seconds = 10;
  int64_t min_workers_for_training = 0;  // 0: nobody trains

  void visit(auto& v) {
    v(heartbeat_seconds, "heartbeat_seconds", Affects::kPlace,
      "How often a worker says that it is alive.");
    v(lost_after_seconds, "lost_after_seconds", Affects::kPlace,
      "Seconds without a word after which a worker's groups are given to others.");
  }
  void check() const;
};

// What rank 0 hands out.
struct ControlKeys {
  std::string endpoint;  // tcp://address:port
  std::string server_public;
  std::string client_public, client_secret;  // all workers share them
};

class ControlServer {
 public:
  // Listens on a free port of the numeric `address`.
  ControlServer(const std::string& address, int workers, const ControlOptions& options);
  ~ControlServer();

  const ControlKeys& keys() const;

  // From any thread. Throws what ended the server's thread.
  WorkerState state(int worker) const;

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
  [[nodiscard]] bool has_parcel() override;
  [[nodiscard]] std::string take_parcel() override;
  void report(const Load& load) override;
  [[nodiscard]] bool is_asked_to_move() override;
  void move(std::string parcel) override;
  [[nodiscard]] bool step_done() override;
  void wait_for_news(double seconds) override;
  [[nodiscard]] bool may_train() override;
  double training_ended_at() override;
  [[nodiscard]] std::vector<int> lost_workers() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// LocalGroups for one worker; else rank 0 starts the server and every rank gets a client. A
// collective: every rank calls it.
std::unique_ptr<GroupSource> make_group_source(Comm& comm, const Launch& launch,
                                               const ControlOptions& options);

}  // namespace tlt::cluster
