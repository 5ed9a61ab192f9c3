// HTTP requests with a deadline for the whole exchange, for rewards and logprobs that other
// programs compute.
//
// An exchange ends at its deadline whatever the server does: a timer shuts the connection down. An
// answer has at most HttpRequest::max_answer_bytes. Redirects are not followed. https verifies the
// server's certificate with the system's authorities.
//
// Threading  functions without state; any thread. An exchange has one more thread, joined before it
//            returns.
//
//   const HttpUrl url = parse_http_url("reward.http", "http://127.0.0.1:5000/get_reward");
//   const std::string answer = post_json({&url, 1}, {.body = "{}"}, deadline);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/clock.h"

namespace tlt::reward {

using HttpClock = std::chrono::steady_clock;

inline HttpClock::time_point http_deadline(double seconds) {
  return HttpClock::now() + to_duration(seconds);
}

inline constexpr int64_t kMaxHttpAnswerBytes = 4 << 20;
// Of one request: a server that is being restarted has up to 0.25 + 0.5 + 1 seconds.
inline constexpr int kMaxTries = 4;
inline constexpr double kFirstBackoffSeconds = 0.25, kLongestBackoffSeconds = 5;

struct HttpUrl {
  std::string origin;  // http://host:port
  std::string path;    // from the first slash on; "/" if there is none
};

// Throws InputError, naming the option, for anything but http(s)://host[:port][/path], and for a URL
// with a user or password, which would be in options.toml.
HttpUrl parse_http_url(const std::string& option, const std::string& url);

struct HttpRequest {
  std::string body = {};          // JSON; empty: GET
  std::string bearer_token = {};  // empty: none
  int64_t max_answer_bytes = kMaxHttpAnswerBytes;
  int max_tries = kMaxTries;               // of post_json()
  std::function<bool()> should_stop = {};  // true ends an exchange early; may be empty; any thread
};

struct HttpAnswer {
  int status = 0;  // 0: no answer, for the reason in fault
  std::string body = {};
  std::string fault = {};
  bool is_too_long = false;  // more than max_answer_bytes: another try would be the same
};

// One exchange. Does not throw for what the server does.
HttpAnswer exchange(const HttpUrl& url, const HttpRequest& request, HttpClock::time_point deadline);

// The body of a 2xx answer. No answer (except one that is too long), 408, 429 and 5xx are tried
// again, at most max_tries times in all, with back-off, at the next of `urls`. Throws Error with
// what the last server did.
std::string post_json(std::span<const HttpUrl> urls, const HttpRequest& request,
                      HttpClock::time_point deadline);

// Whether a server answers a GET at all: its status. Throws InputError, naming the option, if not.
int check_reachable(const std::string& option, const HttpUrl& url, const HttpRequest& request,
                    HttpClock::time_point deadline);

// The key of an API from the environment, which is in no option, file or message; "": not set.
// Throws InputError if the variable has a character that no key has.
std::string api_key(const char* variable);

// A text of the server within a message: without line ends and control characters, shortened.
std::string quoted_answer(const std::string& text);

}  // namespace tlt::reward
