// Connection: the socket of a client, as the HTTP library reads and writes it, with a time limit
// for each request: a client that sends its request byte by byte does not keep a thread.
//
// Owns       the socket, closed at the end.
// Not here   the protocol (cpp-httplib), what is answered (http_server.h).
// Threading  one thread, that of the connection; current() is its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <httplib.h>

#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "serve/connection_limits.h"

namespace tlt::serve {

class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionLimits& limits);
  // Sends what was written, reads what the client still sends for a moment (else it may lose the
  // answer), and closes.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The connection that this thread serves. REQUIRES: it serves one.
  static Connection& current();

  // Waits for the first byte of a request, whose time begins then. False: there is none within
  // idle_seconds, or stops() is true.
  bool wait_for_request(const std::function<bool()>& stops);
  // Whether the client has neither closed nor lost the connection.
  bool is_alive() const;

  // After the present answer no request is read from this connection.
  void close_after_answer() { closes_ = true; }
  bool closes() const { return closes_; }
  // Marks the present request as one that the end of the server waits for; take_active() says once
  // whether it was.
  void set_active() { is_active_ = true; }
  bool take_active() { return std::exchange(is_active_, false); }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* bytes, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool fill(double seconds);

  const int socket_;
  const ConnectionLimits limits_;
  std::string buffer_;  // bytes read but not used yet begin at used_
  size_t used_ = 0;
  Stopwatch request_watch_;
  bool closes_ = false, is_active_ = false;
};

}  // namespace tlt::serve
