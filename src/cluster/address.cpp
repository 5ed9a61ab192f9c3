// SPDX-License-Identifier: Apache-2.0
#include "cluster/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "cluster/launch.h"

namespace tlt::cluster {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, int port, int kind, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) problem = gai_strerror(error);
  return AddressList(found, &freeaddrinfo);
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host,
                                sizeof(host), nullptr, 0, NI_NUMERICHOST);
  TLT_CHECK(error == 0, "getnameinfo: ", gai_strerror(error));
  return host;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  TLT_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0,
            std::strerror(errno));
  char port[NI_MAXSERV];
  const int error = getnameinfo(reinterpret_cast<sockaddr*>(&address), length, nullptr, 0, port,
                                sizeof(port), NI_NUMERICSERV);
  TLT_CHECK(error == 0, "getnameinfo: ", gai_strerror(error));
  return std::stoi(port);
}

// The source address of the route to `to`; no packet is sent. Empty: no route.
std::string source_address(const addrinfo& to) {
  const int fd = socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const bool found = connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(fd);
  return found ? numeric(address, length) : "";
}

// Returns a file descriptor, or -1 with errno.
int try_listen(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes,
             sizeof(yes));  // the port of a run that just ended
  if (bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

bool names_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Listener listen_on(const std::string& address, int port) {
  std::string problem;
  const AddressList at = resolve(address, port, SOCK_STREAM, problem);
  TLT_CHECK(at != nullptr, "cannot listen on ", address, ": ", problem);
  const int fd = try_listen(*at);
  TLT_CHECK_INPUT(fd >= 0, "cannot listen on ", address, " port ", port, ": ", std::strerror(errno),
                  "; set MASTER_PORT to a free port");
  return {.fd = fd, .port = port_of(fd)};
}

int first_free_port(const PortRange& ports, const std::function<bool(int port)>& try_port) {
  for (int port = ports.begin; port <= ports.end; ++port)
    if (try_port(port)) return port;
  throw InputError(check_internal::concat("every port of TLT_PORT_RANGE=", ports.begin, "-",
                                          ports.end, " is in use; give a larger range"));
}

Listener listen_in(const std::string& address, const PortRange& ports) {
  if (ports.begin == 0) return listen_on(address, 0);
  Listener listener;
  listener.port = first_free_port(ports, [&](int port) {
    std::string problem;
    const AddressList at = resolve(address, port, SOCK_STREAM, problem);
    TLT_CHECK(at != nullptr, "cannot listen on ", address, ": ", problem);
    listener.fd = try_listen(*at);
    TLT_CHECK_INPUT(listener.fd >= 0 || errno == EADDRINUSE, "cannot listen on ", address, " port ",
                    port, ": ", std::strerror(errno), "; set TLT_PORT_RANGE to other ports");
    return listener.fd >= 0;
  });
  return listener;
}

std::string own_address(const Launch& launch) {
  if (launch.one_host()) return "127.0.0.1";
  std::string problem;
  const AddressList master =
      resolve(launch.master_address, launch.master_port, SOCK_DGRAM, problem);
  TLT_CHECK_INPUT(master != nullptr, "MASTER_ADDR=", launch.master_address,
                  " cannot be found from rank ", launch.rank, ": ", problem,
                  "; set it to the host name of rank 0");
  const std::string own = source_address(*master);
  TLT_CHECK_INPUT(!own.empty(), "MASTER_ADDR=", launch.master_address,
                  " cannot be reached from rank ", launch.rank, ": ", std::strerror(errno),
                  "; set it to an address of rank 0 on a network that all hosts share");
  TLT_CHECK_INPUT(
      !names_loopback(own), "MASTER_ADDR=", launch.master_address, " means ", own, " on rank ",
      launch.rank,
      ", which no other host can reach; set it to the address of rank 0 on the network");
  return own;
}

Listener listen_at_master(const Launch& launch) {
  if (launch.listen_fd >= 0) return {.fd = launch.listen_fd, .port = launch.master_port};
  const std::string own = own_address(launch);
  if (launch.one_host()) return listen_on(own, launch.master_port);
  std::string problem;
  const AddressList master =
      resolve(launch.master_address, launch.master_port, SOCK_STREAM, problem);
  const int fd = master ? try_listen(*master) : -1;
  if (fd >= 0) return {.fd = fd, .port = launch.master_port};
  TLT_CHECK_INPUT(errno == EADDRNOTAVAIL, "cannot listen on ", launch.master_address, " port ",
                  launch.master_port, ": ", std::strerror(errno),
                  "; set MASTER_PORT to a free port");
  return listen_on(own.find(':') == std::string::npos ? "0.0.0.0" : "::", launch.master_port);
}

}  // namespace tlt::cluster
