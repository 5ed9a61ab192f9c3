// SPDX-License-Identifier: Apache-2.0
#include "serve/connection.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace tlt::serve {
namespace {

constexpr size_t kReadBytes = 1 << 14;
constexpr double kStopSeconds = 0.1;  // between two looks at stops()
constexpr double kLingerSeconds = 1;  // for what a client still sends
constexpr size_t kLingerBytes = 1 << 22;

thread_local Connection* served = nullptr;

// Whether the socket is ready within this time.
bool waits_for(int socket, short events, double seconds) {
  const Stopwatch watch;
  while (true) {
    const double left = std::max(seconds - watch.seconds(), 0.0);
    pollfd item{.fd = socket, .events = events, .revents = 0};
    const int count = ::poll(&item, 1, static_cast<int>(left * 1000) + 1);
    if (count > 0) return true;
    if (count == 0 ? watch.seconds() >= seconds : errno != EINTR) return false;
  }
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

void set_address(int socket, NameOf name_of, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "0";
  auto* place = reinterpret_cast<sockaddr*>(&address);
  if (name_of(socket, place, &size) != 0) return;
  if (::getnameinfo(place, size, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host;
  port = std::atoi(service);
}

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits) {
  const int yes = 1;  // the events of a stream are small, and none should wait for the next
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  served = this;
}

Connection::~Connection() {
  served = nullptr;
  ::shutdown(socket_, SHUT_WR);
  const Stopwatch watch;
  for (size_t bytes = 0; bytes < kLingerBytes && watch.seconds() < kLingerSeconds;) {
    char ignored[1 << 12];
    if (!waits_for(socket_, POLLIN, kLingerSeconds - watch.seconds())) break;
    const ssize_t count = ::recv(socket_, ignored, sizeof(ignored), MSG_DONTWAIT);
    if (count <= 0) break;
    bytes += static_cast<size_t>(count);
  }
  ::close(socket_);
}

Connection& Connection::current() {
  TLT_CHECK(served != nullptr);
  return *served;
}

bool Connection::wait_for_request(const std::function<bool()>& stops) {
  const Stopwatch watch;
  while (used_ == buffer_.size()) {
    if (stops() || watch.seconds() > limits_.idle_seconds) return false;
    if (waits_for(socket_, POLLIN, kStopSeconds) && !fill(/*seconds=*/0)) return false;
  }
  request_watch_.restart();
  return true;
}

// Not by reading: bytes of the next request may have arrived before the end.
bool Connection::is_alive() const {
  pollfd item{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return ::poll(&item, 1, /*timeout=*/0) <= 0;  // POLLHUP and POLLERR are always reported
}

// Reads more bytes. False: none within this time, or the client has closed.
bool Connection::fill(double seconds) {
  if (!waits_for(socket_, POLLIN, seconds)) return false;
  buffer_.resize(kReadBytes);
  used_ = 0;
  const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
  buffer_.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return count > 0;
}

bool Connection::is_readable() const {
  return used_ < buffer_.size() || waits_for(socket_, POLLIN, /*seconds=*/0);
}

bool Connection::is_writable() const {
  return waits_for(socket_, POLLOUT, limits_.write_seconds) && is_alive();
}

ssize_t Connection::read(char* bytes, size_t size) {
  const double left = limits_.request_seconds - request_watch_.seconds();
  if (used_ == buffer_.size() && (left <= 0 || !fill(left))) return -1;
  const size_t count = std::min(size, buffer_.size() - used_);
  std::copy_n(buffer_.data() + used_, count, bytes);
  used_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* bytes, size_t size) {
  if (!waits_for(socket_, POLLOUT, limits_.write_seconds)) return -1;
  return ::send(socket_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  set_address(socket_, ::getpeername, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  set_address(socket_, ::getsockname, ip, port);
}

}  // namespace tlt::serve
