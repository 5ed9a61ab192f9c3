// SPDX-License-Identifier: Apache-2.0
#include "serve/server_metrics.h"

#include <fmt/core.h>

#include <algorithm>

namespace tlt::serve {
namespace {

void write_head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void write_value(std::string& out, const char* name, const char* type, const char* help,
                 int64_t value) {
  write_head(out, name, type, help);
  out += fmt::format("{} {}\n", name, value);
}

}  // namespace

void ServerMetrics::Histogram::add(double seconds) {
  const auto bound = std::ranges::lower_bound(kBounds, seconds);
  ++counts[static_cast<size_t>(bound - kBounds.begin())];
  sum += seconds;
}

void ServerMetrics::Histogram::write(std::string& out, const char* name, const char* help) const {
  write_head(out, name, "histogram", help);
  int64_t count = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    count += counts[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], count);
  }
  count += counts.back();
  out += fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, count, name,
                     sum, name, count);
}

void ServerMetrics::count_request(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
}

void ServerMetrics::add_prompt_tokens(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
}

void ServerMetrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServerMetrics::add_finished(double seconds) {
  const std::lock_guard lock(mutex_);
  finished_.add(seconds);
}

std::string ServerMetrics::text(const LoopStats& stats) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  write_head(out, "tlt_http_requests_total", "counter", "Answered requests.");
  for (const auto& [key, count] : requests_)
    out += fmt::format("tlt_http_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                       key.second, count);
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    write_value(out, name, "counter", help, value);
  };
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    write_value(out, name, "gauge", help, value);
  };
  counter("tlt_prompt_tokens_total", "Tokens of accepted prompts.", prompt_tokens_);
  counter("tlt_generation_tokens_total", "Tokens of responses.", stats.engine.tokens);
  counter("tlt_engine_steps_total", "Forward passes of the engine.", stats.engine.steps);
  counter("tlt_preemptions_total", "Sequences that gave their pages back and were recomputed.",
          stats.engine.preemptions);
  counter("tlt_prefix_cache_queries_total", "Tokens of prompts looked up in the prefix cache.",
          stats.engine.prefix_cache.queries);
  counter("tlt_prefix_cache_hits_total", "Tokens of prompts found in the prefix cache.",
          stats.engine.prefix_cache.hits);
  counter("tlt_spec_decode_num_drafts_total", "Verified draft trees.", stats.speculation.trees);
  counter("tlt_spec_decode_num_draft_tokens_total", "Verified draft tokens.",
          stats.speculation.drafted_tokens);
  counter("tlt_spec_decode_num_accepted_tokens_total", "Accepted draft tokens.",
          stats.speculation.accepted_tokens);
  gauge("tlt_responses_unfinished", "Responses submitted and not finished.", stats.unfinished);
  gauge("tlt_sequences_running", "Sequences in the engine's batch.", stats.engine.running);
  gauge("tlt_sequences_waiting", "Sequences in the engine that wait.", stats.engine.waiting);
  gauge("tlt_kv_pages", "Pages of the KV cache.", stats.engine.pages);
  gauge("tlt_kv_pages_held", "Pages of the KV cache in use.", stats.engine.held_pages);
  gauge("tlt_kv_pages_cached", "Free pages of the KV cache that the prefix cache still has.",
        stats.engine.cached_pages);
  gauge("tlt_weight_version", "Updates of the weights since the start.", stats.weight_version);
  first_token_.write(out, "tlt_time_to_first_token_seconds",
                     "From the arrival of a streamed request to its first token.");
  finished_.write(out, "tlt_request_seconds", "From the arrival of a request to its last token.");
  return out;
}

}  // namespace tlt::serve
