// SPDX-License-Identifier: Apache-2.0
#include "simulate/losses.h"

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace tlt::simulate {
namespace {

constexpr double kDay = 86'400;
constexpr uint32_t kLossStream = 0x53u << 24;  // a prompt id that no workload has

Loss parse_loss(const std::string& text, int64_t workers) {
  Loss loss;
  const char* const end = text.data() + text.size();
  std::from_chars_result read = std::from_chars(text.data(), end, loss.worker);
  const bool has_two = read.ec == std::errc() && read.ptr != end && *read.ptr == '@';
  if (has_two) read = std::from_chars(read.ptr + 1, end, loss.at);
  TLT_CHECK_INPUT(
      has_two && read.ec == std::errc() && read.ptr == end && loss.at >= 0 && loss.at <= 1e12,
      "lost_workers has \"", text,
      "\"; give WORKER@SECONDS, as 3@120 for worker 3 after two minutes");
  TLT_CHECK_INPUT(loss.worker >= 0 && loss.worker < workers, "lost_workers has \"", text,
                  "\", but workers are 0 to ", workers - 1);
  return loss;
}

}  // namespace

LossSchedule::LossSchedule(const SimulateOptions& options)
    : mean_seconds_(options.losses_per_worker_day > 0 ? kDay / options.losses_per_worker_day : 0),
      seed_(static_cast<uint64_t>(options.seed)),
      drawn_(static_cast<size_t>(options.workers)) {
  for (const std::string& text : options.lost_workers)
    losses_.push(parse_loss(text, options.workers));
  for (int64_t i = 0; mean_seconds_ > 0 && i < options.workers; ++i) draw(i, 0);
}

void LossSchedule::draw(int64_t worker, double from) {
  const double share = uniform(seed_, {.step = static_cast<uint32_t>(worker),
                                       .prompt = kLossStream,
                                       .position = drawn_[static_cast<size_t>(worker)]++});
  losses_.push({from - mean_seconds_ * std::log1p(-share), worker});
}

// A given loss also draws a further random one: after it the worker's times begin again.
std::optional<Loss> LossSchedule::try_next(double now) {
  if (next_at() > now) return std::nullopt;
  const Loss loss = losses_.top();
  losses_.pop();
  if (mean_seconds_ > 0) draw(loss.worker, loss.at);
  return loss;
}

}  // namespace tlt::simulate
