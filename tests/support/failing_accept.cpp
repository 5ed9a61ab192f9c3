// A library for LD_PRELOAD: accept() finds no free descriptor, except for connections to the
// rendezvous. Gloo accepts those of the other workers in a thread of its own, which then throws.
//
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <dlfcn.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

namespace {

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

extern "C" int accept(int socket, sockaddr* address, socklen_t* size) {
  static const auto real = reinterpret_cast<decltype(&accept)>(dlsym(RTLD_NEXT, "accept"));
  const char* rendezvous = std::getenv("MASTER_PORT");
  if (rendezvous == nullptr || port_of(socket) == std::atoi(rendezvous))
    return real(socket, address, size);
  errno = EMFILE;
  return -1;
}
