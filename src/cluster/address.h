// Addresses: where a worker listens, and at which address the others reach it. Loopback, unless the
// workers run on several hosts.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt::cluster {

struct Launch;

// "localhost", "127.0.0.1", "::1": this host by any name that means it everywhere.
bool names_loopback(const std::string& host);

// A TCP socket that listens on `port` (0: a free one) of the numeric `address`. The caller owns
// `fd`. It goes to no child process of its own accord (close on exec).
struct Listener {
  int fd = -1;
  int port = 0;
};
Listener listen_on(const std::string& address, int port);

// The numeric address at which the other workers reach this one: loopback on one host, else the one
// from which the way to the master address leads. Throws InputError where the master address cannot
// be found or means each host itself.
std::string own_address(const Launch& launch);

// Rank 0's listener of the rendezvous: the launcher's socket if it gave one, else a new one at
// own_address(), or on every interface where the launcher names an address that this host does not
// have (a NAT, a service name).
Listener listen_at_master(const Launch& launch);

}  // namespace tlt::cluster
