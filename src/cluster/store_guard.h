// StoreGuard: bounds what processes that are not of the job can make rank 0 keep, whose process
// serves the rendezvous (c10d's TCPStore, which itself has no bound but 8 MiB for a message).
//
// While the workers meet, whoever reaches the port can write values and request answers that it does
// not read. Rank 0 only waits meanwhile, so what its memory grows by is the store's: above
// kMostBytes all connections to the store are closed, and the workers' waits fail. When the workers
// have their connections, close_other_connections() closes all those that no worker has, and a
// listening socket takes no further ones (listeners.h).
//
// Owns       a thread, which looks every few milliseconds.
// Threading  any thread.
//
//   StoreGuard guard(port);
//   … the workers meet …
//   if (!guard.fault().empty()) throw InputError(guard.fault());
//   close_other_connections(port, addresses_of_all_workers);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tlt::cluster {

class StoreGuard {
 public:
  // Of the values of a thousand workers less than a tenth.
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  // `port`: where this process serves the store, or is about to.
  explicit StoreGuard(int port, int64_t most_bytes = kMostBytes);
  ~StoreGuard();
  StoreGuard(const StoreGuard&) = delete;
  StoreGuard& operator=(const StoreGuard&) = delete;

  // Why the connections were closed; empty: they were not.
  std::string fault() const;

 private:
  void watch();

  const int port_;
  const int64_t most_bytes_, first_bytes_;
  std::atomic<bool> is_over_ = false, has_closed_ = false;
  std::thread thread_;
};

// The addresses, as "10.0.0.1:4711", of this process's ends of connections to a port elsewhere or of
// its own.
std::vector<std::string> connections_to(int port);

// Closes the connections that this process has accepted on `port` but for those whose other end is
// `known`. Returns how many; -1: none was closed, since fewer than `wanted` known ones are there, as
// where a gateway translates addresses.
int close_other_connections(int port, const std::set<std::string>& known, int wanted);

}  // namespace tlt::cluster
