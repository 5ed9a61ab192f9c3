// ServerMetrics: what /metrics shows, in the text format of Prometheus.
//
// Owns       counters of requests and histograms of times; the engine's counters are passed in.
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "serve/engine_loop.h"

namespace tlt::serve {

class ServerMetrics {
 public:
  // `path` must be one of a few: each has its own series.
  void count_request(const std::string& path, int status);
  void add_prompt_tokens(int64_t tokens);
  // Seconds from the arrival of a streamed request to its first token, and of any to its end.
  void add_first_token(double seconds);
  void add_finished(double seconds);

  std::string text(const LoopStats& stats) const;

 private:
  static constexpr std::array<double, 12> kBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,    2.5,   5,    10,  30,   120};
  struct Histogram {
    std::array<int64_t, kBounds.size() + 1> counts = {};
    double sum = 0;
    void add(double seconds);
    void write(std::string& out, const char* name, const char* help) const;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  int64_t prompt_tokens_ = 0;
  Histogram first_token_, finished_;
};

}  // namespace tlt::serve
