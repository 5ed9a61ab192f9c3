// SPDX-License-Identifier: Apache-2.0
#include "cluster/listeners.h"

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tlt::cluster {
namespace {

// An option of a socket; -1 for a descriptor that is no socket.
int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool listens_on_tcp(int fd) {
  const int domain = socket_option(fd, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && socket_option(fd, SO_ACCEPTCONN) == 1;
}

}  // namespace

std::map<std::string, int> listening_sockets() {
  std::map<std::string, int> sockets;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (listens_on_tcp(fd))
      sockets[std::filesystem::read_symlink(entry.path(), ignored).string()] = fd;
  }
  return sockets;
}

NewListeners::NewListeners(int inherited) {
  for (const auto& [name, fd] : listening_sockets())
    if (fd != inherited) before_.insert(name);
}

int NewListeners::refuse_connections() const {
  sock_filter no_bytes = {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program = {.len = 1, .filter = &no_bytes};
  int refusing = 0;
  for (const auto& [name, fd] : listening_sockets())
    if (!before_.contains(name) &&
        setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0)
      ++refusing;
  return refusing;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace tlt::cluster
