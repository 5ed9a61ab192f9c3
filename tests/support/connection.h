// Connection: a TCP connection to a listening socket of this process, as a stranger makes it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace tlt::tests {

class Connection {
 public:
  // Connects to where `listener` listens, within 300 ms.
  explicit Connection(int listener) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    auto* place = reinterpret_cast<sockaddr*>(&address);
    TLT_CHECK(getsockname(listener, place, &size) == 0, std::strerror(errno));
    fd_ = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    TLT_CHECK(fd_ >= 0, std::strerror(errno));
    if (connect(fd_, place, size) != 0 && errno != EINPROGRESS) return;
    pollfd item{};
    item.fd = fd_;
    item.events = POLLOUT;
    int error = -1;
    socklen_t error_size = sizeof(error);
    is_open_ = poll(&item, 1, /*milliseconds=*/300) == 1 &&
               getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 && error == 0;
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_open() const { return is_open_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool is_open_ = false;
};

}  // namespace tlt::tests
