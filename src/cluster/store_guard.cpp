// SPDX-License-Identifier: Apache-2.0
#include "cluster/store_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/start_thread.h"

namespace tlt::cluster {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(10);

// Of this process, without the libraries and other files that it has mapped.
int64_t own_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0, shared = 0;
  file >> all >> resident >> shared;
  return (resident - shared) * ::sysconf(_SC_PAGESIZE);
}

struct Address {
  std::string text;  // "10.0.0.1:4711"
  int port = 0;
};

using NameOf = int (*)(int, sockaddr*, socklen_t*);

// nullopt: not an end of a TCP connection.
std::optional<Address> address_of(int fd, NameOf name_of) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  char host[INET6_ADDRSTRLEN] = "";
  int port = 0;
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
    port = ntohs(address.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof(host));
    port = ntohs(address.sin6_port);
  } else {
    return std::nullopt;
  }
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address in an IPv6 socket
  std::string name = host;
  if (name.starts_with(kMapped)) name.erase(0, kMapped.size());
  return Address{name + ":" + std::to_string(port), port};
}

// A descriptor of its own: that of another thread may be closed, and its number used again, at any
// time.
class Copy {
 public:
  explicit Copy(int fd) : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 0)) {}
  ~Copy() {
    if (fd_ >= 0) ::close(fd_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// Calls visit(fd, own address, other address) for each TCP connection of this process.
template <class Visit>
void for_each_connection(const Visit& visit) {
  std::error_code ignored;
  std::vector<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    descriptors.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int descriptor : descriptors) {
    const Copy copy(descriptor);
    const auto own = address_of(copy.fd(), ::getsockname);
    const auto other = own ? address_of(copy.fd(), ::getpeername) : std::nullopt;
    if (other) visit(copy.fd(), *own, *other);
  }
}

}  // namespace

StoreGuard::StoreGuard(int port, int64_t most_bytes)
    : port_(port), most_bytes_(most_bytes), first_bytes_(own_bytes()) {
  thread_ = start_thread([this] { watch(); });
}

StoreGuard::~StoreGuard() {
  is_over_ = true;
  thread_.join();
}

void StoreGuard::watch() {
  for (; !is_over_; std::this_thread::sleep_for(kInterval)) {
    if (!has_closed_ && own_bytes() - first_bytes_ <= most_bytes_) continue;
    has_closed_ = true;
    close_other_connections(port_, /*known=*/{}, /*wanted=*/0);  // and those that come after
  }
}

std::string StoreGuard::fault() const {
  if (!has_closed_) return "";
  return check_internal::concat(
      "the rendezvous at port ", port_, " was filled with more than ", most_bytes_ >> 20,
      " MiB while the workers met: a program that is no worker writes to it; start again with "
      "another MASTER_PORT, on a network that only the workers reach");
}

std::vector<std::string> connections_to(int port) {
  std::vector<std::string> addresses;
  for_each_connection([&](int, const Address& own, const Address& other) {
    if (other.port == port) addresses.push_back(own.text);
  });
  return addresses;
}

int close_other_connections(int port, const std::set<std::string>& known, int wanted) {
  int closed = 0;
  std::set<std::string> found;
  for_each_connection([&](int, const Address& own, const Address& other) {
    if (own.port == port && known.contains(other.text)) found.insert(other.text);
  });
  if (std::ssize(found) < wanted) return -1;
  for_each_connection([&](int fd, const Address& own, const Address& other) {
    if (own.port != port || known.contains(other.text)) return;
    ::shutdown(fd, SHUT_RDWR);
    ++closed;
  });
  return closed;
}

}  // namespace tlt::cluster
