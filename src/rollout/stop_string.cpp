// SPDX-License-Identifier: Apache-2.0
#include "rollout/stop_string.h"

#include <algorithm>

namespace tlt::rollout {

StopFinder::StopFinder(std::unique_ptr<TextStream> stream, const std::vector<std::string>& stop)
    : stream_(std::move(stream)), stop_(&stop) {
  for (const std::string& text : stop) kept_bytes_ = std::max(kept_bytes_, text.size() - 1);
}

bool StopFinder::push(int32_t token) {
  tail_ += stream_->push(token);
  for (const std::string& text : *stop_)
    if (tail_.find(text) != std::string::npos) return true;
  if (tail_.size() > kept_bytes_) tail_.erase(0, tail_.size() - kept_bytes_);
  return false;
}

}  // namespace tlt::rollout
