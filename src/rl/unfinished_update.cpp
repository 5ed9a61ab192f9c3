// SPDX-License-Identifier: Apache-2.0
#include "rl/unfinished_update.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/files.h"

namespace tlt::rl {
namespace {

constexpr const char* kUpdateFile = "/state/update.bin";
constexpr std::string_view kUpdateFirstLine = "tlt unfinished update 1\n";
constexpr int64_t kMaxUpdateBytes = int64_t{1} << 36;

void write_stats(const train::TrainStats& stats, ByteWriter& out) {
  out.value(static_cast<uint64_t>(stats.metrics.size()));
  for (const auto& [name, value] : stats.metrics) {
    out.list(name);
    out.value(value);
  }
  for (const double number : {stats.logprob_difference, stats.probability_difference})
    out.value(number);
  for (const int64_t number :
       {stats.packs, stats.tokens, stats.optimizer_bytes, stats.skipped_steps, stats.steps})
    out.value(number);
  out.list(stats.fault);
  out.value(stats.is_abandoned);
}

train::TrainStats read_stats(ByteReader& in) {
  train::TrainStats stats;
  const auto count = in.value<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    std::string name = in.list<std::string>();
    stats.metrics.emplace_back(std::move(name), in.value<double>());
  }
  for (double* number : {&stats.logprob_difference, &stats.probability_difference})
    *number = in.value<double>();
  for (int64_t* number :
       {&stats.packs, &stats.tokens, &stats.optimizer_bytes, &stats.skipped_steps, &stats.steps})
    *number = in.value<int64_t>();
  stats.fault = in.list<std::string>();
  stats.is_abandoned = in.value<uint8_t>() != 0;
  return stats;
}

}  // namespace

void UnfinishedUpdate::write(const std::string& checkpoint) const {
  write_file_atomic(checkpoint + kUpdateFile, pack());
}

UnfinishedUpdate UnfinishedUpdate::read(const std::string& checkpoint) {
  const std::string path = checkpoint + kUpdateFile;
  return unpack(read_file(path, kMaxUpdateBytes), path);
}

std::string UnfinishedUpdate::pack() const {
  ByteWriter out;
  write_stats(critic, out);
  write_stats(policy, out);
  out.value(static_cast<uint64_t>(values.size()));
  for (const std::vector<float>& one : values) out.list(one);
  return std::string(kUpdateFirstLine) + out.take();
}

UnfinishedUpdate UnfinishedUpdate::unpack(std::string_view bytes, const std::string& location) {
  constexpr const char* kWayOut = "; delete this checkpoint to resume from the one before";
  TLT_CHECK_INPUT(bytes.starts_with(kUpdateFirstLine), location, ": not of this version of tlt",
                  kWayOut);
  try {
    ByteReader in(bytes.substr(kUpdateFirstLine.size()));
    UnfinishedUpdate update;
    update.critic = read_stats(in);
    update.policy = read_stats(in);
    const auto count = in.value<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) update.values.push_back(in.list<std::vector<float>>());
    TLT_CHECK(
        in.at_end() && update.critic.steps >= 0 && update.policy.steps >= 0 && update.steps() > 0,
        "no update");
    return update;
  } catch (const Error&) {  // which names a place in the program
    throw InputError(location + ": it is damaged" + kWayOut);
  }
}

}  // namespace tlt::rl
