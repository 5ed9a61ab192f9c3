// SPDX-License-Identifier: Apache-2.0
#include "rl/replay.h"

#include <algorithm>

#include "base/clock.h"
#include "base/statistics.h"
#include "rl/step_report.h"

namespace tlt::rl {
namespace {

constexpr uint32_t kCompareRounds = 2;
constexpr size_t kMostRounds = 9;
constexpr double kRunSeconds = 0.1;  // target for one engine's part of a round, at most
constexpr int64_t kFewestTokens = 16, kMostTokens = 128;

// Limits the KV cache to what these groups need.
rollout::EngineOptions enough_for(rollout::EngineOptions options,
                                  const rollout::TargetModel& target,
                                  const std::vector<rollout::Group>& groups) {
  int64_t pages = 0;
  for (const rollout::Group& group : groups)
    pages += group.samples *
             (1 + (std::ssize(group.tokens) + group.sampling->max_new_tokens) / ops::kPageSlots);
  options.kv_memory_bytes =
      std::min(options.kv_memory_bytes, pages * target.kv_shape().page_bytes());
  return options;
}

}  // namespace

// Time of decoding after every sequence has its first token: prefill is not measured.
struct ReplayEngines::DecodeTime {
  double seconds = 0;
  int64_t steps = 0;
};

ReplayEngines::ReplayEngines(rollout::Engine& engine, const rollout::Speculation& speculation,
                             const Baseline& baseline, std::vector<rollout::Group> groups)
    : engine_(engine),
      speculation_(speculation),
      groups_(std::move(groups)),
      most_sequences_(std::min(std::ssize(groups_), baseline.options.max_running)),
      baseline_(baseline.target, enough_for(baseline.options, baseline.target, groups_),
                baseline.stop_string) {}

std::vector<rollout::Response> ReplayEngines::decode(
    rollout::Engine& engine, const std::vector<rollout::Group>& groups) const {
  for (const rollout::Group& group : groups) engine.submit(group);
  std::vector<rollout::Response> responses;
  while (engine.step())
    for (rollout::Response& response : engine.take_finished())
      responses.push_back(std::move(response));
  std::ranges::sort(responses, {}, [](const rollout::Response& response) {
    return std::pair(response.prompt_id, response.sample);
  });
  return responses;
}

Replay ReplayEngines::compare() {
  Replay result;
  // Other uniforms in each round: a drafter could repeat a response that it has seen.
  for (uint32_t i = 0; i < kCompareRounds; ++i, ++round_) {
    std::vector<rollout::Group> again = groups_;
    for (rollout::Group& group : again) group.rl_step += round_;
    const std::vector<rollout::Response> got = decode(engine_, again),
                                         want = decode(baseline_, again);
    result.responses += std::ssize(want);
    for (size_t k = 0; k < std::min(got.size(), want.size()); ++k)
      result.equal += got[k].prompt_id == want[k].prompt_id && got[k].tokens == want[k].tokens &&
                      got[k].logprobs == want[k].logprobs && got[k].entropies == want[k].entropies;
  }
  return result;
}

// Takes other prompts and uniforms than earlier rounds.
std::vector<rollout::Group> ReplayEngines::next_round(const std::vector<rollout::Group>& pool,
                                                      int64_t sequences, int64_t tokens) {
  std::vector<rollout::Group> taken;
  for (int64_t i = 0; i < sequences; ++i) {
    const auto index = (round_ * static_cast<size_t>(sequences) + static_cast<size_t>(i));
    rollout::Group& group = taken.emplace_back(pool[index % pool.size()]);
    auto sampling = std::make_shared<rollout::SamplingOptions>(*group.sampling);
    sampling->max_new_tokens = std::min(tokens, sampling->max_new_tokens);
    group.sampling = std::move(sampling);
    group.samples = 1;
    group.rl_step += round_;
  }
  ++round_;
  return taken;
}

ReplayEngines::DecodeTime ReplayEngines::run(rollout::Engine& engine,
                                             const std::vector<rollout::Group>& groups) const {
  for (const rollout::Group& group : groups) engine.submit(group);
  rollout::EngineStats before = engine.stats();
  const int64_t first_tokens = before.tokens + std::ssize(groups);
  while (before.tokens < first_tokens && engine.step()) before = engine.stats();
  const Stopwatch watch;
  while (engine.step()) {
  }
  const double seconds = watch.seconds();
  static_cast<void>(engine.take_finished());
  return {seconds, engine.stats().steps - before.steps};
}

run::SpeedupRounds ReplayEngines::measure_size(const std::vector<rollout::Group>& pool,
                                               int64_t sequences, double seconds) {
  run::SpeedupRounds result{.sequences = sequences};
  const double end = steady_clock().seconds() + seconds,
               run_seconds = std::min(kRunSeconds, seconds / (2 * kMostRounds + 2));
  // Warm-up of both engines at this size; also finds how many tokens take run_seconds.
  const std::vector<rollout::Group> probed = next_round(pool, sequences, kFewestTokens);
  const DecodeTime probe = run(baseline_, probed);
  run(engine_, probed);
  const double each = probe.seconds / static_cast<double>(std::max<int64_t>(1, probe.steps));
  const auto tokens = static_cast<int64_t>(
      std::clamp(run_seconds / std::max(each, 1e-9), double{kFewestTokens}, double{kMostTokens}));
  const rollout::SpeculationStats before = speculation_.stats();
  std::vector<double> step_seconds;
  while (result.ratios.size() < kMostRounds && steady_clock().seconds() < end) {
    const bool baseline_first = round_ % 2 == 0;
    const std::vector<rollout::Group> groups = next_round(pool, sequences, tokens);
    DecodeTime baseline, speculative;
    if (baseline_first) baseline = run(baseline_, groups);
    speculative = run(engine_, groups);
    if (!baseline_first) baseline = run(baseline_, groups);
    if (baseline.steps == 0 || speculative.steps == 0) continue;  // all ended at their first token
    result.ratios.push_back(baseline.seconds / speculative.seconds);
    step_seconds.push_back(baseline.seconds / static_cast<double>(baseline.steps));
  }
  const rollout::SpeculationStats after = speculation_.stats();
  const int64_t steps = after.decode_steps - before.decode_steps;
  if (steps > 0)
    result.speculative_step_share =
        static_cast<double>(after.steps - before.steps) / static_cast<double>(steps);
  if (!step_seconds.empty()) result.plain_step_seconds = percentile(step_seconds, 0.5);
  return result;
}

std::vector<run::SpeedupRounds> ReplayEngines::measure(const std::vector<rollout::Group>& pool,
                                                       double seconds) {
  std::vector<int64_t> sizes;  // those that both engines can run
  for (int64_t size = 1; size <= std::min(most_sequences_, std::ssize(pool)); size *= 2)
    sizes.push_back(size);
  const double end = steady_clock().seconds() + seconds;
  std::vector<run::SpeedupRounds> rounds;
  for (const int64_t size : sizes)
    if (steady_clock().seconds() < end)  // a round of a slow model can exceed its share
      rounds.push_back(measure_size(pool, size, seconds / static_cast<double>(sizes.size())));
  return rounds;
}

}  // namespace tlt::rl
