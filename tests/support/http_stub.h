// Servers of the tests on a free port of loopback: HttpStub answers requests by a function,
// RawServer does with a connection whatever a function does.
//
//   HttpStub stub([](const httplib::Request& request, httplib::Response& answer) { … });
//   stub.url("/get_reward")                       // http://127.0.0.1:40001/get_reward
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tlt::tests {

class HttpStub {
 public:
  using Handler = std::function<void(const httplib::Request&, httplib::Response&)>;

  explicit HttpStub(Handler handler, std::unique_ptr<httplib::Server> server = nullptr)
      : server_(server ? std::move(server) : std::make_unique<httplib::Server>()) {
    const auto counted = [this, handler = std::move(handler)](const httplib::Request& request,
                                                              httplib::Response& response) {
      ++requests_;
      handler(request, response);
    };
    server_->Get(".*", counted);
    server_->Post(".*", counted);
    port_ = server_->bind_to_any_port("127.0.0.1");
    TLT_CHECK(port_ > 0);
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }
  ~HttpStub() { stop(); }
  HttpStub(const HttpStub&) = delete;
  HttpStub& operator=(const HttpStub&) = delete;

  void stop() {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }
  int64_t requests() const { return requests_; }
  int port() const { return port_; }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

 private:
  const std::unique_ptr<httplib::Server> server_;
  std::atomic<int64_t> requests_ = 0;
  int port_ = 0;
  std::thread thread_;
};

class RawServer {
 public:
  // `serve` has the connected socket, which is closed afterwards.
  explicit RawServer(std::function<void(int fd)> serve) : serve_(std::move(serve)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* place = reinterpret_cast<sockaddr*>(&address);
    TLT_CHECK(bind(listener_, place, size) == 0 && listen(listener_, 16) == 0 &&
                  getsockname(listener_, place, &size) == 0,
              std::strerror(errno));
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~RawServer() {
    stops_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
    close(listener_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  bool stops() const { return stops_; }

 private:
  void accept_all() {
    while (!stops_) {
      pollfd item{};
      item.fd = listener_;
      item.events = POLLIN;
      if (poll(&item, 1, /*milliseconds=*/20) != 1) continue;
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      connections_.emplace_back([this, fd] {
        serve_(fd);
        close(fd);
      });
    }
  }

  const std::function<void(int fd)> serve_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stops_ = false;
  std::vector<std::thread> connections_;  // the accepting thread's
  std::thread thread_;
};

// A port of loopback at which nothing listens.
inline int closed_port() {
  HttpStub stub([](const httplib::Request&, httplib::Response&) {});
  return stub.port();
}

}  // namespace tlt::tests
