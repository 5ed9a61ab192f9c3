// Route: an address of the server and the function that answers it. Extension: further addresses.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::serve {

// The client of a request. `write` sends a part of a stream.
struct Client {
  std::function<bool()> is_connected;
  std::function<bool(std::string_view)> write;  // false: the client is gone
};

struct Reply {
  std::string body;
  std::string content_type = "application/json";
  // When set, writes the body piece by piece, until it is complete or the client is gone.
  std::function<void(const Client&)> stream = {};
};

struct HttpRequest {
  const std::string& path;
  const std::string& body;  // empty: GET
};

struct Route {
  std::string method;  // GET or POST
  std::string path;    // with * at its end: all addresses that begin so
  // Errors are ApiError or InputError. Any thread.
  std::function<Reply(const HttpRequest&, const Client&)> answer;
  std::string content_type = "application/json";  // of a POST's body

  bool matches(std::string_view address) const {
    return path.ends_with('*')
               ? address.starts_with(std::string_view(path).substr(0, path.size() - 1))
               : address == path;
  }
};

// Addresses besides those of OpenAI's API. Threading: stop_waiting() and close(): one thread.
class Extension {
 public:
  virtual ~Extension() = default;
  // They take precedence over the server's own.
  virtual std::vector<Route> routes() = 0;
  // The server stops: answers that wait for something end soon. May be called several times.
  virtual void stop_waiting() = 0;
  // No further request comes; the engine loop still runs. Returns when no work of this is left.
  virtual void close() = 0;
};

}  // namespace tlt::serve
