// Addresses: where a worker listens, and at which address the others reach it. Loopback when all
// workers run on one host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace tlt::cluster {

struct Launch;
struct PortRange;

// True for a name of this host that means it on every host: "localhost", "127.0.0.1", "::1".
bool names_loopback(const std::string& host);

// A TCP socket that listens on `port` (0: a free one) of the numeric `address`. The caller owns
// `fd`. Child processes do not inherit it (close on exec).
struct Listener {
  int fd = -1;
  int port = 0;
};
Listener listen_on(const std::string& address, int port);

// The first port of the range for which try_port(port) is true; InputError: all are in use.
int first_free_port(const PortRange& ports, const std::function<bool(int port)>& try_port);

// Listens on the first free port of the range; on any one if there is no range.
Listener listen_in(const std::string& address, const PortRange& ports);

// The numeric address at which the other workers reach this one: loopback on one host, else the
// source address of the route to the master address. Throws InputError if the master address
// cannot be resolved or is a loopback address.
std::string own_address(const Launch& launch);

// Rank 0's listener of the rendezvous: the launcher's socket if it gave one, else a new one at
// own_address(), or on every interface if this host does not have the address that the launcher
// names (a NAT, a service name).
Listener listen_at_master(const Launch& launch);

}  // namespace tlt::cluster
