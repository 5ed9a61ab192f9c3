// SPDX-License-Identifier: Apache-2.0
#include "tinker/sessions.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "serve/api_error.h"
#include "tinker/replies.h"

namespace tlt::tinker {
namespace {

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

}  // namespace

Sessions::Sessions(const Options& options, Ended ended)
    : options_(options), ended_(std::move(ended)), prefix_(random_prefix()) {}

std::string Sessions::create() {
  for (const std::string& id : take_silent()) ended_(id);
  const std::lock_guard lock(mutex_);
  if (unseen_.size() >= kMaxSessions) throw serve::too_many_requests("too many sessions");
  std::string id = fmt::format("{}-{}", prefix_, ++created_);
  unseen_.try_emplace(id, *options_.clock);
  return id;
}

std::vector<std::string> Sessions::take_silent() {
  const std::lock_guard lock(mutex_);
  const double seconds =
      unseen_.size() >= kMaxSessions ? options_.silent_seconds : options_.forgotten_seconds;
  std::vector<std::string> silent;
  for (const auto& [id, unseen] : unseen_)
    if (unseen.seconds() > seconds) silent.push_back(id);
  for (const std::string& id : silent) unseen_.erase(id);
  return silent;
}

void Sessions::touch(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = unseen_.find(id);
  if (found == unseen_.end())
    throw serve::ApiError(410, "invalid_request_error",
                          "session " + id.substr(0, kMaxNameBytes) +
                              " has ended, or is of another start of the server");
  found->second = Stopwatch(*options_.clock);
}

bool Sessions::is_silent(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = unseen_.find(id);
  return found == unseen_.end() || found->second.seconds() >= options_.silent_seconds;
}

void Sessions::end(const std::string& id) {
  touch(id);
  {
    const std::lock_guard lock(mutex_);
    if (unseen_.erase(id) == 0) return;  // another thread has just ended it
  }
  ended_(id);
}

}  // namespace tlt::tinker
