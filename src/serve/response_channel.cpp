// SPDX-License-Identifier: Apache-2.0
#include "serve/response_channel.h"

#include <chrono>
#include <utility>

namespace tlt::serve {

void ResponseChannel::open(int64_t weight_version) {
  const std::lock_guard lock(mutex_);
  weight_version_ = weight_version;
  changed_.notify_one();
}

void ResponseChannel::push(TokenDelta delta) {
  const std::lock_guard lock(mutex_);
  deltas_.push_back(std::move(delta));
  changed_.notify_one();
}

void ResponseChannel::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  changed_.notify_one();
}

template <class Ready>
std::unique_lock<std::mutex> ResponseChannel::wait_until(double seconds, Ready ready) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return ready() || error_ != nullptr; });
  if (error_) std::rethrow_exception(error_);
  return lock;
}

std::optional<int64_t> ResponseChannel::wait_open(double seconds) {
  const auto lock = wait_until(seconds, [&] { return weight_version_.has_value(); });
  return weight_version_;
}

std::vector<TokenDelta> ResponseChannel::wait(double seconds) {
  const auto lock = wait_until(seconds, [&] { return !deltas_.empty(); });
  return std::exchange(deltas_, {});
}

}  // namespace tlt::serve
