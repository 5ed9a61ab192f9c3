// SPDX-License-Identifier: Apache-2.0
#include "tinker/future.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "serve/api_error.h"
#include "tinker/replies.h"
#include "tinker/wire.h"

namespace tlt::tinker {
namespace {

constexpr size_t kMaxFutures = 8192;
constexpr size_t kKeptAfterRetrieval = 256;
// Seconds between two looks whether to stop.
constexpr double kCollectSeconds = 0.1;

}  // namespace

SampleCollector::SampleCollector(std::shared_ptr<serve::ResponseChannel> channel, int64_t samples,
                                 std::vector<float> prompt_logprobs, int64_t top_k)
    : channel_(std::move(channel)),
      prompt_logprobs_(std::move(prompt_logprobs)),
      top_k_(top_k),
      samples_(static_cast<size_t>(samples)),
      unfinished_(samples) {}

std::optional<serve::Reply> SampleCollector::wait(double seconds) {
  if (!is_open_) {
    is_open_ = channel_->wait_open(seconds).has_value();
    if (!is_open_) return std::nullopt;
  }
  for (serve::TokenDelta& delta : channel_->wait(seconds)) {
    Sample& sample = samples_.at(static_cast<size_t>(delta.choice));
    sample.tokens.insert(sample.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    sample.logprobs.insert(sample.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    for (auto& top : delta.top_logprobs) sample.top.push_back(std::move(top));
    if (!delta.finish) continue;
    sample.finish = delta.finish;
    --unfinished_;
  }
  if (unfinished_ > 0) return std::nullopt;
  return reply();
}

serve::Reply SampleCollector::reply() const {
  WireWriter response;
  for (const Sample& sample : samples_) {
    if (sample.finish == rollout::FinishReason::kCancelled)
      return failed_reply("the sampling was cancelled", Blame::kUser);
    WireWriter sequence;
    sequence.varint(1, sample.finish == rollout::FinishReason::kLength ? 1 : 0);
    sequence.bytes(2, bytes_of(sample.tokens));
    sequence.bytes(3, bytes_of(sample.logprobs));
    if (top_k_ > 0) {
      std::vector<int32_t> ids;
      std::vector<float> logprobs;
      for (const std::vector<ops::Sampled>& top : sample.top)
        for (const ops::Sampled& one : top)
          ids.push_back(one.token), logprobs.push_back(one.logprob);
      WireWriter all;
      all.bytes(1, bytes_of(ids));
      all.bytes(2, bytes_of(logprobs));
      all.varint(3, static_cast<uint64_t>(top_k_));
      all.varint(4, sample.top.size());
      sequence.message(4, all);
    }
    response.message(1, sequence);
  }
  if (!prompt_logprobs_.empty()) response.bytes(2, bytes_of(prompt_logprobs_));
  return {.body = response.text(), .content_type = "application/x-protobuf"};
}

void Future::set(serve::Reply reply) {
  const std::lock_guard lock(mutex_);
  if (!reply_) reply_ = std::move(reply);
  changed_.notify_all();
}

void Future::set(std::unique_ptr<SampleCollector> collector) {
  const std::lock_guard lock(mutex_);
  collector_ = std::move(collector);
  changed_.notify_all();
}

std::optional<serve::Reply> Future::wait(double seconds, const std::function<bool()>& stop) {
  const Stopwatch watch;
  while (true) {
    const double left = std::min(seconds - watch.seconds(), kCollectSeconds);
    {
      std::unique_lock lock(mutex_);
      if (!reply_ && !collector_ && left > 0)
        changed_.wait_for(lock, std::chrono::duration<double>(left),
                          [&] { return reply_ || collector_; });
      if (!reply_ && collector_) {
        reply_ = reply_or_failure([&] { return collector_->wait(std::max(left, 0.0)); });
        if (reply_) collector_.reset();
      }
      if (reply_) return reply_;
    }
    if (watch.seconds() >= seconds || (stop && stop())) return std::nullopt;
  }
}

std::pair<std::shared_ptr<Future>, bool> FutureStore::open(const std::string& id,
                                                           const std::string& session) {
  const std::lock_guard lock(mutex_);
  if (const auto found = futures_.find(id); found != futures_.end()) return {found->second, false};
  if (futures_.size() >= kMaxFutures)
    throw serve::too_many_requests(std::to_string(kMaxFutures) +
                                   " results are not retrieved; retrieve some of them");
  return {futures_[id] = std::make_shared<Future>(session), true};
}

std::shared_ptr<Future> FutureStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = futures_.find(id);
  return found == futures_.end() ? nullptr : found->second;
}

void FutureStore::mark_retrieved(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!futures_.contains(id)) return;
  retrieved_.remove(id);
  retrieved_.push_back(id);
  if (retrieved_.size() <= kKeptAfterRetrieval) return;
  futures_.erase(retrieved_.front());
  retrieved_.pop_front();
}

void FutureStore::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  futures_.erase(id);
  retrieved_.remove(id);
}

void FutureStore::forget_session(const std::string& session) {
  const std::lock_guard lock(mutex_);
  std::erase_if(futures_, [&](const auto& entry) { return entry.second->session == session; });
  retrieved_.remove_if([&](const std::string& id) { return !futures_.contains(id); });
}

}  // namespace tlt::tinker
