// Listeners: ends the accepting of connections on sockets that belong to a library, and gives this
// process the descriptors it may have.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

namespace tlt::cluster {

// The TCP sockets on which this process listens: by the kernel's name, "socket:[4711]", the
// descriptor.
std::map<std::string, int> listening_sockets();

// The sockets on which this process begins to listen during the lifetime of the object.
//
//   const NewListeners listeners;
//   … libraries listen, the other workers connect …
//   listeners.refuse_connections();
class NewListeners {
 public:
  // The descriptor `inherited` counts as new, although it listens already; -1: none.
  explicit NewListeners(int inherited = -1);

  // From now on the kernel drops every packet to them, so no process can connect. Connections that
  // were accepted stay. A library that waits for a connection is not woken. Returns how many there
  // are; 0 also if they cannot be found or the kernel has no socket filters.
  int refuse_connections() const;

 private:
  std::set<std::string> before_;
};

// Raises the limit of open files to what the administrator allows: each connection takes one.
void raise_descriptor_limit();

}  // namespace tlt::cluster
