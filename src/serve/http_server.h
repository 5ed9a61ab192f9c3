// HttpServer: the HTTP side of `tlt serve`: addresses, the API key, limits, errors, and the end.
//
// Requests are answered by a fixed number of threads, one per connection. A request without the
// key, to an unknown address, too large or of another type is refused before its body is read. On a
// loopback address without a key, requests that a web page in a browser could send are refused:
// they have another Host or are not application/json.
//
// Owns       the listening socket, the connections and their threads.
// Borrows    the metrics.
// Not here   what the answers are (route.h, api.h).
// Threading  run(): one thread; routes are called from the connections' threads.
//
//   HttpServer server({.port = 8000}, api.routes(), metrics);
//   server.run([] { return interrupted(); });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/connection_limits.h"
#include "serve/route.h"
#include "serve/server_metrics.h"

namespace tlt::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: a free one
  std::string api_key;  // empty: none is needed, on a loopback address only
  int64_t max_connections = 256;
  int64_t max_body_bytes = int64_t{4} << 20;
  ConnectionLimits limits;

  // InputError names the flag and what is accepted.
  void check() const;
};

// "localhost", or an address in digits that only this machine reaches.
bool is_loopback(const std::string& host);

class HttpServer {
 public:
  // Listens. InputError: the address or port cannot be used.
  HttpServer(const HttpOptions& options, std::vector<Route> routes, ServerMetrics& metrics);
  ~HttpServer();

  int port() const { return port_; }

  // Answers requests until wants_stop() is true, and then the present ones; meanwhile further ones
  // get 503. wants_stop() is called several times per second. Error: accepting connections has
  // failed, and so has listening on the port again.
  void run(const std::function<bool()>& wants_stop);

 private:
  class Listener;
  const std::unique_ptr<Listener> listener_;
  const int port_;
};

}  // namespace tlt::serve
