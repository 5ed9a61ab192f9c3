// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "serve/api_error.h"
#include "serve/connection.h"

namespace tlt::serve {
namespace {

constexpr auto kStopInterval = std::chrono::milliseconds(50);
constexpr int kListenTries = 200;
constexpr int kBacklog = 511;  // the library's 5 make a burst of connections wait for seconds

// "localhost:8000" is localhost, "[::1]:8000" ::1.
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

// Whether the type of the body is this one, with or without a charset.
bool is_type(const std::string& type, const std::string& wanted) {
  std::string name = type.substr(0, type.find(';'));
  name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name == wanted;
}

}  // namespace

void HttpOptions::check() const {
  TLT_CHECK_INPUT(port >= 0 && port <= 65535, "--port is ", port,
                  "; give a number from 1 to 65535, or 0 for a free one");
  TLT_CHECK_INPUT(max_connections >= 1 && max_connections <= 900, "--max-connections is ",
                  max_connections, "; give a number from 1 to 900");
  TLT_CHECK_INPUT(max_body_bytes >= 1 && max_body_bytes <= int64_t{1} << 30, "--max-body is ",
                  max_body_bytes, "; give a size up to 1GB");
  TLT_CHECK_INPUT(!api_key.empty() || is_loopback(host), "--host ", host,
                  " can be reached from other machines; give a key with --api-key-file, or leave "
                  "--host out");
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  return host == "localhost" || host == "::1" ||
         (::inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

// The library's server, with connections of our own.
class HttpServer::Listener final : public httplib::Server {
 public:
  Listener(const HttpOptions& options, std::vector<Route> routes, ServerMetrics& metrics)
      : options_(options), routes_(std::move(routes)), metrics_(metrics) {
    options_.check();
    // The library's default would let a second server listen on the same port.
    set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    new_task_queue = [this] {
      return new httplib::ThreadPool(static_cast<size_t>(options_.max_connections));
    };
    set_keep_alive_timeout(static_cast<time_t>(options_.limits.idle_seconds));
    set_keep_alive_max_count(kRequestsPerConnection);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return admit(request, response);
    });
    set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      finish_error(request, response);
    });
    // Before the answer is written, so that who has it finds it counted.
    set_post_routing_handler(
        [this](const httplib::Request& request, const httplib::Response& response) {
          const Route* route = find_route(request.method, request.path);
          metrics_.count_request(route != nullptr ? route->path : "other", response.status);
        });
    add_routes();
  }

  // Returns the port.
  int bind() {
    const int port = static_cast<int>(options_.port);
    const int bound = port == 0 ? bind_to_any_port(options_.host)
                                : (bind_to_port(options_.host, port) ? port : -1);
    TLT_CHECK_INPUT(bound > 0, "cannot listen on port ", port, " of ", options_.host,
                    ": another program has it, or the address is not of this machine; give "
                    "another --port or --host");
    ::listen(svr_sock_, kBacklog);
    return bound;
  }

  // Accepts connections until drain(). The library stops at an error of accept() such as too little
  // memory; then this listens on the port again. Returns false if that is not possible.
  bool try_accept_all(int port) {
    for (bool is_first = true;; is_first = false) {
      listen_after_bind();
      if (is_draining_) return true;
      if (is_first)
        log_warning("accepting connections on port {} has failed; listening again", port);
      if (!try_listen_again(port)) return is_draining_;
    }
  }

  // Waits for the answers in progress. try_accept_all() ends.
  void drain(const std::atomic<bool>& has_ended) {
    is_draining_ = true;
    while (active_ > 0) std::this_thread::sleep_for(kStopInterval);
    // The library's stop() does nothing before it listens; it would then listen for ever.
    while (!has_ended) {
      if (is_listening()) stop();
      std::this_thread::sleep_for(kStopInterval);
    }
  }

 private:
  static constexpr size_t kRequestsPerConnection = 10'000;

  // For a while: what accept() lacked a new socket lacks, too. False also if drain() begins.
  bool try_listen_again(int port) {
    for (int tries = 0; tries < kListenTries && !is_draining_; ++tries) {
      std::this_thread::sleep_for(kStopInterval);
      if (!bind_to_port(options_.host, port)) continue;
      ::listen(svr_sock_, kBacklog);
      return true;
    }
    return false;
  }

  // After an error of accept() the library has closed the socket and keeps its number, which may be
  // that of another file then: stop() would close that.
  bool is_listening() const {
    int listens = 0;
    socklen_t size = sizeof(listens);
    return ::getsockopt(svr_sock_, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
  }

  const Route* find_route(const std::string& method, const std::string& path) const {
    const auto found = std::ranges::find_if(routes_, [&](const Route& route) {
      return route.matches(path) &&
             (method == route.method || (method == "HEAD" && route.method == "GET"));
    });
    return found == routes_.end() ? nullptr : &*found;
  }

  // admit() has refused what has no route.
  void add_routes() {
    Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, "");
    });
    Post(".*", [this](const httplib::Request& request, httplib::Response& response,
                      const httplib::ContentReader& reader) {
      std::string body;
      if (try_read(reader, body)) {
        answer(request, response, body);
      } else {
        refuse(response, error_of_status(std::ssize(body) > options_.max_body_bytes ? 413 : 400,
                                         request.path));
      }
    });
  }

  // False: the body is too large, incomplete or too slow. The bytes of a chunked body count too.
  bool try_read(const httplib::ContentReader& reader, std::string& body) const {
    return reader([&](const char* bytes, size_t size) {
      body.append(bytes, size);
      return std::ssize(body) <= options_.max_body_bytes;
    });
  }

  // What can be refused before the body is read.
  HandlerResponse admit(const httplib::Request& request, httplib::Response& response) {
    ++active_;  // until the answer is written: process_and_close_socket()
    Connection::current().set_active();
    try {
      check(request);
      return HandlerResponse::Unhandled;
    } catch (const ApiError& error) {
      refuse(response, error);
      return HandlerResponse::Handled;
    }
  }

  void check(const httplib::Request& request) const {
    if (is_draining_) throw unavailable("the server is stopping; send the request to another one");
    const Route* route = find_route(request.method, request.path);
    if (route == nullptr) throw error_of_status(404, request.path);
    check_caller(request);
    if (route->method != "POST") {
      if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding"))
        throw error_of_status(400, request.path);
      return;
    }
    if (!is_type(request.get_header_value("Content-Type"), route->content_type) ||
        request.has_header("Content-Encoding"))
      throw wrong_content_type(route->content_type);
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
      throw bad_request("the request has no body; give one of type " + route->content_type);
    const auto length = request.get_header_value<uint64_t>("Content-Length");
    if (length > static_cast<uint64_t>(options_.max_body_bytes))
      throw error_of_status(413, request.path);
  }

  void check_caller(const httplib::Request& request) const {
    if (options_.api_key.empty()) {
      const std::string host = host_name(request.get_header_value("Host"));
      if (!is_loopback(host) && host != options_.host)
        throw ApiError(403, "invalid_request_error",
                       "the Host header names another machine than this server's; without a key it "
                       "answers to localhost only");
      return;
    }
    if (request.path == "/health") return;
    const std::string other = request.get_header_value("X-API-Key");
    const std::string given =
        other.empty() ? request.get_header_value("Authorization") : "Bearer " + other;
    if (!equal_in_constant_time(sha256(given), sha256("Bearer " + options_.api_key)))
      throw unauthorized(
          given.empty()
              ? "this server needs its API key; send it as Authorization: Bearer KEY"
              : "this is not the API key of this server; give that of its --api-key-file");
  }

  void answer(const httplib::Request& request, httplib::Response& response,
              const std::string& body) {
    try {
      const Route* route = find_route(request.method, request.path);
      if (route == nullptr) throw error_of_status(404, request.path);
      Connection& connection = Connection::current();
      const Client client{.is_connected = [&] { return connection.is_alive(); }, .write = {}};
      Reply reply = route->answer({.path = request.path, .body = body}, client);
      if (!reply.stream) return response.set_content(reply.body, reply.content_type);
      response.set_header("Cache-Control", "no-cache");
      response.set_chunked_content_provider(
          reply.content_type,
          [stream = std::move(reply.stream)](size_t /*offset*/, httplib::DataSink& sink) {
            write_stream(stream, sink);
            return true;
          });
    } catch (const ApiError& error) {
      refuse(response, error);
    } catch (const InputError& error) {
      refuse(response, bad_request(error.what()));
    } catch (const std::exception& error) {
      log_warning("{} {}: {}", request.method, request.path, error.what());
      refuse(response, server_error("the server has failed; its log says why"));
    }
  }

  static void write_stream(const std::function<void(const Client&)>& stream,
                           httplib::DataSink& sink) {
    stream({.is_connected = [] { return Connection::current().is_alive(); },
            .write =
                [&](std::string_view text) {
                  return text.empty() || sink.write(text.data(), text.size());
                }});
    sink.done();
  }

  static void refuse(httplib::Response& response, const ApiError& error) {
    response.status = error.status;
    // The library does not compress a type with a charset: a client that decompresses drops
    // Content-Length, and Tinker's takes a 400 without it for the error of a proxy.
    response.set_content(error.body(), "application/json; charset=utf-8");
    if (error.status == 429) response.set_header("Retry-After", "1");
  }

  // The body of the request may be unread: nothing that follows it can be understood.
  static void finish_error(const httplib::Request& request, httplib::Response& response) {
    if (response.body.empty()) refuse(response, error_of_status(response.status, request.path));
    response.set_header("Connection", "close");
    Connection::current().close_after_answer();
  }

  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options_.limits);
    const auto stops = [this] { return !is_listening(); };
    for (size_t left = kRequestsPerConnection;
         left > 0 && !connection.closes() && connection.wait_for_request(stops); --left) {
      bool is_closed = false;
      const bool is_answered =
          process_request(connection, /*close_connection=*/left == 1, is_closed, nullptr);
      if (connection.take_active()) --active_;
      if (!is_answered || is_closed) break;
    }
    return true;
  }

  const HttpOptions options_;
  const std::vector<Route> routes_;
  ServerMetrics& metrics_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int64_t> active_ = 0;  // requests whose headers were read and that are not answered
};

HttpServer::HttpServer(const HttpOptions& options, std::vector<Route> routes,
                       ServerMetrics& metrics)
    : listener_(std::make_unique<Listener>(options, std::move(routes), metrics)),
      port_(listener_->bind()) {}

HttpServer::~HttpServer() = default;

void HttpServer::run(const std::function<bool()>& wants_stop) {
  std::atomic<bool> has_ended = false;
  bool is_accepting = true;
  std::thread listening = start_thread([&] {
    is_accepting = listener_->try_accept_all(port_);
    has_ended = true;
  });
  while (!wants_stop() && !has_ended) std::this_thread::sleep_for(kStopInterval);
  listener_->drain(has_ended);
  listening.join();
  if (!is_accepting)
    throw Error(check_internal::concat("cannot listen on port ", port_,
                                       " any more: another program has it, or memory or file "
                                       "descriptors are lacking; start again"));
}

}  // namespace tlt::serve
