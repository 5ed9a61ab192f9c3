// SPDX-License-Identifier: Apache-2.0
#include "run/report/timeline_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "base/files.h"
#include "base/json_limits.h"

namespace tlt::run {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxTimelineBytes = int64_t{256} << 20;
constexpr size_t kReadBytes = 1 << 20, kMaxEventBytes = 1 << 16;
constexpr size_t kMaxSpans = 2'000'000;
constexpr int kLastWorker = 1023, kLastRow = 1023;  // of a timeline that is read
constexpr double kLatest = 1e18;                    // microseconds
constexpr double kSmallestGap = 1 / 2000.;          // of a step, still visible

// In the order of the page's legend; later lanes are drawn over earlier ones.
constexpr std::array<const char*, 9> kLanes = {kRolloutLane,  kUpdateLane,    kValidationLane,
                                               kRewardLane,   kReferenceLane, kSaveLane,
                                               kGradientLane, kDraftLane,     kPublishLane};

struct LaneSpan {
  int worker = 0;
  uint32_t lane = 0;
  int64_t step = -1;          // of a rollout
  double start = 0, end = 0;  // microseconds
};

// "step 12" -> 12
std::optional<int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step ";
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [used, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || used != end || step < 0) return std::nullopt;
  return step;
}

// Collects the spans of known lanes from the lines of a file.
class SpanReader {
 public:
  // Skips a line that is no event of base/timeline.h.
  void read_line(std::string_view line) {
    if (line.ends_with(',')) line.remove_suffix(1);
    if (line.size() > kMaxEventBytes || is_too_deep_json(line)) return;
    try {
      read_event(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    } catch (const Json::exception&) {  // not the types of an event
    }
  }
  bool is_full() const { return spans_.size() >= kMaxSpans; }
  std::vector<LaneSpan>& spans() { return spans_; }

 private:
  void read_event(const Json& event) {
    if (!event.is_object() || !event.contains("tid")) return;
    const Json &worker = event.at("pid"), &row = event.at("tid");
    if (!worker.is_number_unsigned() || !row.is_number_unsigned()) return;
    if (worker > kLastWorker || row > kLastRow) return;
    const std::pair<int, int> lane(worker, row);
    const std::string& phase = event.at("ph").get_ref<const std::string&>();
    if (phase == "M") {
      const auto found = std::ranges::find(kLanes, event.at("args").at("name").get<std::string>());
      if (found != kLanes.end()) lanes_[lane] = static_cast<uint32_t>(found - kLanes.begin());
    }
    const auto known = lanes_.find(lane);
    if (phase != "X" || known == lanes_.end()) return;
    const double start = event.at("ts"), length = event.at("dur");
    if (!(std::abs(start) < kLatest && length >= 0 && length < kLatest)) return;
    const bool is_rollout = std::string_view(kLanes[known->second]) == kRolloutLane;
    const std::string& name = event.at("name").get_ref<const std::string&>();
    spans_.push_back({.worker = lane.first,
                      .lane = known->second,
                      .step = is_rollout ? step_of(name).value_or(-1) : -1,
                      .start = start,
                      .end = start + length});
  }

  std::map<std::pair<int, int>, uint32_t> lanes_;
  std::vector<LaneSpan> spans_;
};

std::vector<LaneSpan> read_spans(const std::string& path, LeftOut& left_out) {
  FileHandle file = open_file(path);
  SpanReader reader;
  std::string text;
  int64_t offset = 0;
  while (!reader.is_full() && offset < kMaxTimelineBytes) {
    const size_t before = text.size();
    text.resize(before + kReadBytes);
    const size_t bytes = file.read_at(offset, text.data() + before, kReadBytes);
    text.resize(before + bytes);
    offset += static_cast<int64_t>(bytes);
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      reader.read_line(std::string_view(text).substr(begin, end - begin));
    if (bytes == 0 && begin < text.size()) reader.read_line(std::string_view(text).substr(begin));
    if (bytes == 0) return std::move(reader.spans());
    text.erase(0, begin);
    if (text.size() > kMaxEventBytes) text.clear();  // no event
  }
  left_out.add(fmt::format("{}: the timeline after the first {} spans or {} MB is not shown", path,
                           kMaxSpans, kMaxTimelineBytes >> 20));
  return std::move(reader.spans());
}

struct TimelineStep {
  int64_t step = 0;
  double start = 0, end = 0;
};

// From the first rollout of a step, on any worker, to that of the next step, or to the last span.
std::vector<TimelineStep> steps_of(const std::vector<LaneSpan>& spans) {
  std::map<int64_t, double> first;
  double last = -std::numeric_limits<double>::infinity();
  for (const LaneSpan& span : spans) {
    last = std::max(last, span.end);
    if (span.step < 0) continue;
    const auto [found, is_new] = first.emplace(span.step, span.start);
    found->second = std::min(found->second, span.start);
  }
  std::vector<TimelineStep> steps;
  for (const auto& [step, start] : first) steps.push_back({.step = step, .start = start});
  std::ranges::sort(steps, {}, &TimelineStep::start);  // after a lost worker a step begins again
  for (size_t i = 0; i < steps.size(); ++i)
    steps[i].end = i + 1 < steps.size() ? steps[i + 1].start : last;
  return steps;
}

// Indices of the steps to show, in the order of their importance.
std::vector<size_t> by_importance(const std::vector<TimelineStep>& steps, size_t max_steps) {
  std::vector<size_t> chosen;
  std::set<size_t> seen;
  const auto add = [&](size_t i) {
    if (i < steps.size() && seen.size() < max_steps && seen.insert(i).second) chosen.push_back(i);
  };
  std::vector<size_t> slowest(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) slowest[i] = i;
  std::ranges::sort(slowest, std::greater(),
                    [&](size_t i) { return steps[i].end - steps[i].start; });
  for (size_t i = 0; i < std::min<size_t>(3, steps.size()); ++i) {
    add(i);
    add(steps.size() - 1 - i);
    add(slowest[i]);
  }
  const size_t others = std::max<size_t>(1, max_steps);
  for (size_t i = 0; i <= others; ++i) add(i * (steps.size() - 1) / others);
  return chosen;
}

// The parts of spans within a step. REQUIRES: sorted by worker, lane and start.
Json step_json(const TimelineStep& step, const std::vector<const LaneSpan*>& spans) {
  const double gap = (step.end - step.start) * kSmallestGap;
  Json workers = Json::array();
  for (size_t i = 0; i < spans.size();) {
    const LaneSpan& first = *spans[i];
    const double start = std::max(first.start, step.start);
    double end = first.end;
    for (++i; i < spans.size() && spans[i]->worker == first.worker &&
              spans[i]->lane == first.lane && spans[i]->start - end < gap;
         ++i)
      end = std::max(end, spans[i]->end);
    if (workers.empty() || workers.back()["worker"] != first.worker)
      workers.push_back({{"worker", first.worker}, {"spans", Json::object()}});
    Json& lane = workers.back()["spans"][kLanes[first.lane]];
    lane.push_back(std::llround(start - step.start));
    lane.push_back(std::llround(std::min(end, step.end) - start));
  }
  return {{"step", step.step},
          {"length", std::llround(step.end - step.start)},
          {"workers", std::move(workers)}};
}

size_t count_numbers(const Json& step) {
  size_t count = 0;
  for (const Json& worker : step.at("workers"))
    for (const Json& lane : worker.at("spans")) count += lane.size();
  return count;
}

}  // namespace

nlohmann::json timeline_steps(const std::string& path, size_t max_steps, size_t max_numbers,
                              LeftOut& left_out) {
  if (!std::filesystem::exists(path)) return nullptr;
  std::vector<LaneSpan> spans = read_spans(path, left_out);
  const std::vector<TimelineStep> steps = steps_of(spans);
  if (steps.empty()) return nullptr;
  std::ranges::sort(spans, {}, [](const LaneSpan& span) {
    return std::tuple(span.worker, span.lane, span.start);
  });
  std::map<int64_t, Json> shown;
  size_t numbers = 0;
  for (const size_t i : by_importance(steps, max_steps)) {
    std::vector<const LaneSpan*> within;
    for (const LaneSpan& span : spans)
      if (span.end > steps[i].start && span.start < steps[i].end) within.push_back(&span);
    Json step = step_json(steps[i], within);
    numbers += count_numbers(step);
    if (numbers > max_numbers && !shown.empty()) break;
    shown.emplace(steps[i].step, std::move(step));
  }
  Json list = Json::array();
  for (auto& [step, json] : shown) list.push_back(std::move(json));
  return {{"lanes", kLanes}, {"steps", std::move(list)}};
}

}  // namespace tlt::run
