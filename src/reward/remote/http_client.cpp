// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/http_client.h"

#include <httplib.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/start_thread.h"

namespace tlt::reward {

namespace {

constexpr auto kStopAgain = std::chrono::milliseconds(20);
constexpr auto kLookAgain = std::chrono::milliseconds(50);  // whether the request is to stop
// The library's limits, which look like a closed connection, come after the timer's.
constexpr auto kAfterTimer = std::chrono::seconds(1);

bool stops(const HttpRequest& request) { return request.should_stop && request.should_stop(); }

// Writing to a socket that the server has closed must not end the process.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

// Shuts the client's connection down at the deadline, or when the request is to stop: the library
// limits each read and write, not their sum.
class Timer {
 public:
  Timer(httplib::Client& client, const HttpRequest& request, HttpClock::time_point deadline)
      : thread_(start_thread([this, &client, &request, deadline] {
          std::unique_lock lock(mutex_);
          const auto is_done = [this] { return is_done_; };
          while (HttpClock::now() < deadline && !stops(request)) {
            const auto next = request.should_stop ? HttpClock::now() + kLookAgain : deadline;
            if (done_.wait_until(lock, std::min(next, deadline), is_done)) return;
          }
          has_fired_ = true;
          // More than once: the client may have been about to connect.
          do client.stop();
          while (!done_.wait_for(lock, kStopAgain, is_done));
        })) {}
  ~Timer() { stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Whether the deadline came before this call.
  bool stop() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_all();
    if (thread_.joinable()) thread_.join();
    return has_fired_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false, has_fired_ = false;  // guarded by mutex_
  std::thread thread_;
};

void limit_times(httplib::Client& client, HttpClock::duration left) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(left - seconds);
  client.set_connection_timeout(seconds.count(), rest.count());
  client.set_read_timeout(seconds.count(), rest.count());
  client.set_write_timeout(seconds.count(), rest.count());
}

httplib::Request request_for(const HttpUrl& url, const HttpRequest& request) {
  httplib::Request sent;
  sent.method = request.body.empty() ? "GET" : "POST";
  sent.path = url.path;
  sent.body = request.body;
  if (!request.body.empty()) sent.set_header("Content-Type", "application/json");
  if (!request.bearer_token.empty())
    sent.set_header("Authorization", "Bearer " + request.bearer_token);
  return sent;
}

// "a.example", "a.example:5000", "[::1]:5000".
bool has_valid_port(const std::string& host) {
  const size_t colon =
      host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0);
  if (host.starts_with('[') && host.find(']') == host.npos) return false;
  if (colon == host.npos) return true;
  int port = 0;
  const auto [end, error] =
      std::from_chars(host.data() + colon + 1, host.data() + host.size(), port);
  return error == std::errc() && end == host.data() + host.size() && port >= 1 && port <= 65'535;
}

bool is_transient(const HttpAnswer& answer) {
  const int status = answer.status;
  return !answer.is_too_long && (status == 0 || status == 408 || status == 429 || status >= 500);
}

std::string what_it_did(const HttpUrl& url, const HttpAnswer& answer) {
  if (answer.status == 0) return url.origin + url.path + " " + answer.fault;
  return check_internal::concat(url.origin, url.path, " answered status ", answer.status, ": ",
                                quoted_answer(answer.body));
}

std::string fault_of(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "refused the connection, or its name is unknown";
    case httplib::Error::ConnectionTimeout:
      return "did not accept the connection in time";
    case httplib::Error::SSLServerVerification:
    case httplib::Error::SSLLoadingCerts:
      return "has a certificate that the system's authorities do not confirm";
    case httplib::Error::SSLConnection:
      return "did not complete the TLS handshake";
    default:
      return "closed the connection without a complete answer";
  }
}

}  // namespace

std::string quoted_answer(const std::string& text) {
  constexpr size_t kLongest = 200;
  std::string quoted = "`" + text.substr(0, kLongest) + (text.size() > kLongest ? "…`" : "`");
  std::ranges::replace_if(
      quoted, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return quoted;
}

HttpUrl parse_http_url(const std::string& option, const std::string& url) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(option + " has `" + quoted_answer(url).substr(1) + why);
  };
  const size_t scheme = url.find("://");
  if (scheme == url.npos || (url.substr(0, scheme) != "http" && url.substr(0, scheme) != "https"))
    refuse(", which is no URL; write it as http://host:port/path");
  const size_t host = scheme + 3;
  const size_t end = std::min(url.find_first_of("/?#", host), url.size());
  const bool is_printable =
      std::ranges::all_of(url, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (end == host || !is_printable || url.find('#') != url.npos || url[end] == '?')
    refuse(", which is no URL; write it as http://host:port/path");
  if (url.substr(host, end - host).find('@') != url.npos)
    throw InputError(option + " has a URL with a user or password, which would be written to " +
                     "options.toml; leave out what is before the @");
  HttpUrl parsed{.origin = url.substr(0, end), .path = end < url.size() ? url.substr(end) : "/"};
  if (!has_valid_port(url.substr(host, end - host)) || !httplib::Client(parsed.origin).is_valid())
    refuse(", whose host or port is not valid; write it as http://host:port/path");
  return parsed;
}

HttpAnswer exchange(const HttpUrl& url, const HttpRequest& request,
                    HttpClock::time_point deadline) {
  const auto left = deadline - HttpClock::now();
  HttpAnswer answer;
  if (left <= HttpClock::duration::zero()) {
    answer.fault = "was not asked before the time for an answer was over";
    return answer;
  }
  const NoSigpipe no_sigpipe;
  httplib::Client client(url.origin);
  limit_times(client, left + kAfterTimer);
  httplib::Request sent = request_for(url, request);
  sent.content_receiver = [&](const char* bytes, size_t size, uint64_t, uint64_t) {
    answer.is_too_long = answer.body.size() + size > static_cast<size_t>(request.max_answer_bytes);
    if (!answer.is_too_long) answer.body.append(bytes, size);
    return !answer.is_too_long;
  };
  httplib::Response response;
  httplib::Error error = httplib::Error::Success;
  Timer timer(client, request, deadline);
  const bool is_answered = client.send(sent, response, error);
  // An answer without a length ends with the connection, also where the timer ends it.
  const bool is_late = timer.stop() || HttpClock::now() >= deadline;
  if (is_answered && !is_late) {
    answer.status = response.status;
  } else if (answer.is_too_long) {
    answer.fault =
        check_internal::concat("answered more than ", request.max_answer_bytes, " bytes");
  } else {
    answer.fault = is_late ? "gave no answer in time" : fault_of(error);
  }
  return answer;
}

std::string post_json(std::span<const HttpUrl> urls, const HttpRequest& request,
                      HttpClock::time_point deadline) {
  TLT_CHECK(!urls.empty());
  auto backoff = to_duration(kFirstBackoffSeconds);
  for (int tries = 1;; ++tries) {
    const HttpUrl& url = urls[static_cast<size_t>(tries - 1) % urls.size()];
    HttpAnswer answer = exchange(url, request, deadline);
    if (answer.status >= 200 && answer.status < 300) return std::move(answer.body);
    const HttpClock::time_point next = HttpClock::now() + backoff;
    if (!is_transient(answer) || tries == request.max_tries || next >= deadline || stops(request))
      throw Error(what_it_did(url, answer) +
                  (tries > 1 ? check_internal::concat(" (try ", tries, ")") : ""));
    while (HttpClock::now() < next && !stops(request))
      std::this_thread::sleep_until(
          request.should_stop ? std::min<HttpClock::time_point>(HttpClock::now() + kLookAgain, next)
                              : next);
    backoff = std::min(2 * backoff, to_duration(kLongestBackoffSeconds));
  }
}

std::string api_key(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::string key = value == nullptr ? "" : value;
  for (const char c : key)
    TLT_CHECK_INPUT(c > ' ' && c < 0x7f, "the environment variable ", variable,
                    " has a character that no key has; set it to the key alone");
  return key;
}

int check_reachable(const std::string& option, const HttpUrl& url, const HttpRequest& request,
                    HttpClock::time_point deadline) {
  const HttpAnswer answer = exchange(url, request, deadline);
  TLT_CHECK_INPUT(answer.status != 0, option, ": ", url.origin, " ", answer.fault,
                  "; start the server there, or correct the URL");
  return answer.status;
}

}  // namespace tlt::reward
