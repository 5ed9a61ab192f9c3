// A library for LD_PRELOAD: a function finds no free descriptor. Without TLT_NO_DESCRIPTOR_FOR_ZEROMQ that is
// accept(), except for connections to the rendezvous: Gloo accepts those of the other workers in a
// thread of its own, which then throws. With it, it is ZeroMQ's epoll_create1(), which then aborts.
//
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

bool is_for_zeromq() { return std::getenv("TLT_NO_DESCRIPTOR_FOR_ZEROMQ") != nullptr; }

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
  if (is_for_zeromq() || rendezvous == nullptr || port_of(socket) == std::atoi(rendezvous))
    return real(socket, address, size);
  errno = EMFILE;
  return -1;
}

extern "C" int epoll_create1(int flags) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&epoll_create1)>(dlsym(RTLD_NEXT, "epoll_create1"));
  Dl_info caller{};
  dladdr(__builtin_return_address(0), &caller);
  const bool is_zeromq =
      caller.dli_fname != nullptr && std::strstr(caller.dli_fname, "libzmq") != nullptr;
  if (!is_for_zeromq() || !is_zeromq) return real(flags);
  errno = EMFILE;
  return -1;
}
