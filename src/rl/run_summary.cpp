// SPDX-License-Identifier: Apache-2.0
#include "rl/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json_lines.h"

namespace tlt::rl {
namespace {

using nlohmann::json;

constexpr int kReplayRounds = 2;

std::vector<rollout::Response> decode(rollout::Engine& engine,
                                      const std::vector<rollout::Group>& groups, double& seconds) {
  const Stopwatch watch;
  for (const rollout::Group& group : groups) engine.submit(group);
  std::vector<rollout::Response> responses;
  while (engine.step())
    for (rollout::Response& response : engine.take_finished())
      responses.push_back(std::move(response));
  seconds += watch.seconds();
  std::ranges::sort(responses, {}, [](const rollout::Response& response) {
    return std::pair(response.prompt_id, response.sample);
  });
  return responses;
}

// What the rows of a metrics file say of a metric.
class History {
 public:
  explicit History(const std::string& file) {
    JsonLinesReader reader(file);
    json row;
    while (reader.try_next(row)) rows_.push_back(row);
  }

  std::vector<double> values(const std::string& name) const {
    std::vector<double> values;
    for (const json& row : rows_)
      if (row.contains(name) && row.at(name).is_number()) values.push_back(row.at(name));
    return values;
  }
  double sum(const std::string& name) const {
    double sum = 0;
    for (const double value : values(name)) sum += value;
    return sum;
  }
  // The first metric that begins so.
  std::string find(const std::string& prefix) const {
    for (const json& row : rows_)
      for (const auto& [name, value] : row.items())
        if (name.starts_with(prefix)) return name;
    return "";
  }

 private:
  std::vector<json> rows_;
};

std::string line(const std::string& what, const std::string& says) {
  return fmt::format("  {:<22}{}", what, says);
}

std::string replay_line(const Replay& replayed) {
  const std::string same =
      replayed.equal == replayed.responses
          ? fmt::format("all {} responses decoded again without guesses are equal, bit for bit",
                        replayed.responses)
          : fmt::format("{} of {} responses decoded again without guesses DIFFER; please report it",
                        replayed.responses - replayed.equal, replayed.responses);
  return line("the same tokens", same);
}

}  // namespace

Replay replay(rollout::Engine& engine, const model::PolicyModel& model,
              const rollout::EngineOptions& options, const rollout::StopText* stop_text,
              const std::vector<rollout::Group>& groups) {
  Replay result;
  rollout::EngineOptions enough = options;  // memory for these alone
  int64_t pages = 0;
  for (const rollout::Group& group : groups)
    pages += group.samples *
             (1 + (std::ssize(group.tokens) + group.sampling->max_new_tokens) / ops::kPageSlots);
  enough.kv_memory_bytes = std::min(options.kv_memory_bytes, pages * model.kv_shape().page_bytes());
  rollout::Engine plain(model, enough, stop_text);
  // Other random numbers in each round: a drafter that has seen a response would know it by heart.
  for (int round = 0; round < kReplayRounds; ++round) {
    std::vector<rollout::Group> again = groups;
    for (rollout::Group& group : again) group.rl_step += static_cast<uint32_t>(round);
    std::vector<rollout::Response> got, want;
    if (round % 2 == 0) got = decode(engine, again, result.speculative_seconds);
    want = decode(plain, again, result.plain_seconds);
    if (round % 2 == 1) got = decode(engine, again, result.speculative_seconds);
    result.responses += std::ssize(want);
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
      result.equal += got[i].prompt_id == want[i].prompt_id && got[i].tokens == want[i].tokens &&
                      got[i].logprobs == want[i].logprobs;
  }
  return result;
}

std::vector<std::string> summarize(const std::string& metrics_file,
                                   const std::optional<Replay>& replayed) {
  const History history(metrics_file);
  std::vector<std::string> lines;
  const auto from_to = [&](const std::string& what, const std::string& first,
                           const std::string& last, const char* format) {
    const std::vector<double> before = history.values(first), after = history.values(last);
    if (before.empty() || after.empty()) return;
    lines.push_back(line(what, fmt::format(fmt::runtime(format), before.front(), after.back())));
  };
  const std::string validation = history.find("val-core/");
  if (history.values(validation).size() > 1)
    from_to("held-out score", validation, validation, "{:.3f} -> {:.3f}");
  from_to("training score", "critic/score/mean", "critic/score/mean", "{:.3f} -> {:.3f}");
  from_to("median length", "response_length/p50", "response_length/p50", "{:.0f} -> {:.0f} tokens");
  if (replayed) {
    lines.push_back(replay_line(*replayed));
    lines.push_back(line(
        "their time", fmt::format("{:.2f} s with guesses, {:.2f} s without: {:.2f} times as fast",
                                  replayed->speculative_seconds, replayed->plain_seconds,
                                  replayed->plain_seconds / replayed->speculative_seconds)));
  }
  from_to("drafter", "drafter/acceptance_length/before", "drafter/acceptance_length/after",
          "{:.2f} -> {:.2f} tokens a forward pass, on held-out responses");
  from_to("frozen drafter", "drafter/acceptance_length/frozen", "drafter/acceptance_length/frozen",
          "{:.2f} -> {:.2f} tokens a forward pass, had it stayed as it was");
  const double idle = history.sum("drafter/idle_seconds"),
               used = history.sum("drafter/used_seconds");
  if (idle > 0)
    lines.push_back(line("idle time", fmt::format("{:.1f} s of waiting workers, {:.1f} s of them "
                                                  "used to train the drafter ({:.0f} %)",
                                                  idle, used, 100 * used / idle)));
  return lines;
}

}  // namespace tlt::rl
