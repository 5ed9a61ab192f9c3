// RewardPool: scores responses on its own threads while the engine is still decoding.
//
// A reward may throw, be slow or never return; then the sample loses its reward, which is counted
// and reported, and the run continues. A reward is late when it has run for
// options.timeout_seconds times Reward::wall_factor(): its sample scores 0 immediately, its later result is dropped,
// and a new thread replaces its thread (up to kMaxHungThreads). When no thread is left, waiting
// samples are late after one more timeout.
//
// Owns       the threads, the queue, the results that were not fetched yet.
// Threading  synchronizes itself; any thread may call. The destructor waits at most kCloseSeconds
//            for running rewards and then detaches them (their state is shared).
//
//   RewardPool pool(make_reward(options), options);
//   pool.submit(id, std::move(job));                            // as responses finish
//   for (ScoredSample& sample : pool.wait_all()) …              // all of them, by id
//   metrics.add("reward/late", pool.counters().late);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reward/reward.h"

namespace tlt::reward {

inline constexpr int64_t kMaxHungThreads = 8;
inline constexpr double kCloseSeconds = 0.5;

// A RewardInput that owns its data; the JSON is shared by the samples of a group.
struct RewardJob {
  std::string data_source = {};
  std::string response = {};
  std::string raw_response = {};
  std::string ground_truth = {};
  std::shared_ptr<const nlohmann::ordered_json> extra_info = {};
  std::string prompt = {};
  std::shared_ptr<const nlohmann::ordered_json> messages = {};
  std::vector<int32_t> response_ids = {};
  bool truncated = false;
  int64_t response_tokens = 0;
  int64_t max_response_tokens = 0;
  std::shared_ptr<const EpisodeOutcome> episode = {};

  RewardInput input() const;
};

enum class RewardStatus { kScored, kFailed, kLate };

struct ScoredSample {
  uint64_t id = 0;
  RewardStatus status = RewardStatus::kScored;
  RewardResult result = {};  // 0 unless kScored
  std::string error = {};    // empty if kScored
  double seconds = 0;        // from its start to its score or timeout
};

// Counted since the pool was made.
struct RewardCounters {
  int64_t scored = 0;
  int64_t failed = 0;
  int64_t late = 0;
  std::map<std::string, int64_t> errors;           // failed or late, by the reward's name
  std::map<std::string, std::string> first_error;  // the first message of each reward
};

class RewardPool {
 public:
  using Clock = std::chrono::steady_clock;

  // REQUIRES: options.check() passes.
  RewardPool(std::shared_ptr<const Reward> reward, const RewardOptions& options);
  ~RewardPool();
  RewardPool(const RewardPool&) = delete;
  RewardPool& operator=(const RewardPool&) = delete;

  // Queues a job; never waits. REQUIRES: no sample with this id is queued, running or not fetched.
  void submit(uint64_t id, RewardJob job);

  // The samples that were scored since the last call, by id.
  std::vector<ScoredSample> poll();

  // Waits until every sample has its score, and returns those not fetched yet, by id. Samples that
  // are not scored at `deadline` are late.
  std::vector<ScoredSample> wait_all(Clock::time_point deadline = Clock::time_point::max());

  RewardCounters counters() const;

 private:
  struct State;
  class Workers;
  const std::shared_ptr<State> state_;
};

}  // namespace tlt::reward
