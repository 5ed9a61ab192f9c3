// SPDX-License-Identifier: Apache-2.0
#include "run/report/timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "run/report/chart.h"
#include "run/report/svg.h"

namespace tlt::run {
namespace {

constexpr int64_t kReadBytes = int64_t{16} << 20;  // the first steps are at the start of the file
constexpr double kWidth = 1000, kLeft = 90, kRight = 30, kTop = 96, kRow = 30, kBetween = 12;
constexpr double kSmallestGap = 0.4;  // smallest visible gap between bars, in pixels
constexpr int kLastWorker = 1023;
constexpr double kLatest = 1e18;  // microseconds

struct Kind {
  const char* lane;
  const char* label;
  const char* colour;
};
// In the order of the legend; later kinds are drawn over earlier ones.
constexpr std::array<Kind, 9> kKinds = {{{kRolloutLane, "rollout", svg::kBlue},
                                         {kUpdateLane, "update", svg::kRed},
                                         {kValidationLane, "validation", svg::kPurple},
                                         {kRewardLane, "reward", "#b58900"},
                                         {kReferenceLane, "reference", "#953800"},
                                         {kSaveLane, "save", "#57606a"},
                                         {kGradientLane, "early gradients", "#bc4c00"},
                                         {kDraftLane, "draft model training", svg::kGreen},
                                         {kPublishLane, "draft model publish", "#1b7f79"}}};

struct Span {
  int worker = 0;
  size_t kind = 0;
  std::string name;
  double start = 0, end = 0;  // microseconds
};

using Lanes = std::map<std::pair<int, int>, std::string>;

// Adds the span of an event of a known lane. Throws Json's exception if it is no event of
// base/timeline.h.
void read_event(const nlohmann::json& event, Lanes& lanes, std::vector<Span>& spans) {
  if (!event.is_object() || !event.contains("tid")) return;
  const std::pair<int, int> lane(event.at("pid"), event.at("tid"));
  if (event.at("ph") == "M") lanes[lane] = event.at("args").at("name");
  if (event.at("ph") != "X" || lane.first < 0 || lane.first > kLastWorker) return;
  const auto kind = std::ranges::find(kKinds, lanes[lane], &Kind::lane);
  if (kind == kKinds.end()) return;
  const double start = event.at("ts"), length = event.at("dur");
  if (!(std::abs(start) < kLatest && length >= 0 && length < kLatest)) return;
  spans.push_back({lane.first, static_cast<size_t>(kind - kKinds.begin()), event.at("name"), start,
                   start + length});
}

// The spans of known lanes. Each line of the file is an event; incomplete and other lines are
// skipped.
std::vector<Span> read_spans(const std::string& path) {
  FileHandle file = open_file(path);
  std::string text(static_cast<size_t>(std::min(kReadBytes, file.size_bytes())), '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  Lanes lanes;
  std::vector<Span> spans;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with(',')) line.remove_suffix(1);
    try {
      read_event(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false), lanes, spans);
    } catch (const nlohmann::json::exception&) {  // a picture must not end a run
    }
  }
  return spans;
}

// Name and start of each step: the start of its first rollout on any worker.
using Steps = std::vector<std::pair<std::string, double>>;
Steps steps_of(const std::vector<Span>& spans) {
  std::map<std::string, double> first;
  for (const Span& span : spans) {
    if (std::string_view(kKinds[span.kind].lane) != kRolloutLane) continue;
    const auto [found, is_new] = first.emplace(span.name, span.start);
    found->second = std::min(found->second, span.start);
  }
  Steps steps(first.begin(), first.end());
  std::ranges::sort(steps, {}, &Steps::value_type::second);
  return steps;
}

class Picture {
 public:
  Picture(const std::vector<Span>& spans, const Steps& steps, size_t count)
      : begin_(steps.front().second), steps_(steps.begin(), steps.begin() + count) {
    const double next =
        count < steps.size() ? steps[count].second : std::numeric_limits<double>::infinity();
    for (const Span& span : spans) {
      if (span.end <= begin_ || span.start >= next) continue;
      spans_.push_back(span);
      spans_.back().start = std::max(span.start, begin_);
      spans_.back().end = std::min(span.end, next);
      end_ = std::max(end_, spans_.back().end);
      rows_.emplace(span.worker, 0);
    }
    int row = 0;
    for (auto& [worker, index] : rows_) index = row++;
    std::ranges::stable_sort(spans_, {}, [](const Span& span) {
      return std::tuple(span.kind, span.worker, span.start);
    });
  }

  std::string draw(const std::string& title) const {
    std::string body = svg::text({kLeft, 30}, title, {.classes = "ink", .size = 17});
    for (const auto& [worker, row] : rows_) body += worker_row(worker);
    body += bars() + step_lines() + time_axis() + legend();
    return svg::document(kWidth, bottom() + 46, title, body);
  }

 private:
  double x(double time) const {
    return kLeft + (kWidth - kLeft - kRight) * (time - begin_) / (end_ - begin_);
  }
  double y(int worker) const { return kTop + (kRow + kBetween) * rows_.at(worker); }
  double bottom() const {
    return kTop + (kRow + kBetween) * static_cast<double>(rows_.size()) - kBetween;
  }

  static std::string rectangle(const Box& box, std::string_view looks) {
    return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' {}/>\n",
                       box.left, box.top, box.width, box.height, looks);
  }

  std::string worker_row(int worker) const {
    return svg::text({kLeft - 10, y(worker) + kRow / 2 + 5}, fmt::format("worker {}", worker),
                     {.anchor = "end", .classes = "ink"}) +
           rectangle({kLeft, y(worker), x(end_) - kLeft, kRow}, kWaiting);
  }

  // Merges the bars of a worker that touch each other.
  std::string bars() const {
    std::string out;
    for (size_t i = 0; i < spans_.size();) {
      const Span& first = spans_[i];
      double end = first.end;
      for (++i; i < spans_.size() && spans_[i].kind == first.kind &&
                spans_[i].worker == first.worker && x(spans_[i].start) - x(end) < kSmallestGap;
           ++i)
        end = std::max(end, spans_[i].end);
      out +=
          rectangle({x(first.start), y(first.worker), std::max(0.3, x(end) - x(first.start)), kRow},
                    fmt::format("fill='{}'", kKinds[first.kind].colour));
    }
    return out;
  }

  std::string step_lines() const {
    std::string out;
    for (const auto& [name, start] : steps_) {
      out += svg::line({x(start), kTop - 8}, {x(start), bottom() + 6},
                       "stroke='#8b949e' stroke-dasharray='2 3'");
      out += svg::text({x(start) + 4, kTop - 9}, name, {.size = 12});
    }
    return out;
  }

  std::string time_axis() const {
    const double seconds = (end_ - begin_) / 1e6;
    const Axis axis{0, seconds, fit_axis(0, seconds, 8).step};
    std::string out;
    for (const double tick : axis.ticks()) {
      const double at = x(begin_ + tick * 1e6);
      out += svg::line({at, bottom() + 2}, {at, bottom() + 7}, "stroke='#8b949e'");
      out += svg::text({at, bottom() + 22}, axis.label(tick) + " s", {.anchor = "middle"});
    }
    return out;
  }

  // The kinds that occur, with their share of all workers' time.
  std::string legend() const {
    const std::array<double, kKinds.size() + 1> seen = shares();
    double at = kLeft;
    std::string out;
    const auto add = [&](const std::string& label, double share, const std::string& looks) {
      out += rectangle({at, 44, 12, 12}, looks);
      const std::string words = fmt::format("{} {:.0f} %", label, 100 * share);
      out += svg::text({at + 17, 54}, words, {.size = 12});
      at += 17 + svg::text_width(words, 12) + 16;
    };
    for (size_t i = 0; i < kKinds.size(); ++i)
      if (seen[i] > 0) add(kKinds[i].label, seen[i], fmt::format("fill='{}'", kKinds[i].colour));
    add("waiting", seen.back(), kWaiting);
    return out;
  }

  // Shares of all workers' time, as drawn: later kinds cover earlier ones. The last share is not
  // covered by any bar.
  std::array<double, kKinds.size() + 1> shares() const {
    std::map<int, std::vector<size_t>> cells;
    for (const auto& [worker, row] : rows_) cells[worker].assign(kCells, kKinds.size());
    const auto cell = [&](double time) {
      return static_cast<size_t>(std::lround(kCells * (time - begin_) / (end_ - begin_)));
    };
    for (const Span& span : spans_)
      for (size_t i = cell(span.start); i < std::min<size_t>(kCells, cell(span.end)); ++i)
        cells[span.worker][i] = span.kind;
    std::array<double, kKinds.size() + 1> shares = {};
    for (const auto& [worker, kinds] : cells)
      for (const size_t kind : kinds)
        shares[kind] += 1.0 / (kCells * static_cast<double>(rows_.size()));
    return shares;
  }

  static constexpr int kCells = 20'000;  // resolution of a row
  static constexpr const char* kWaiting = "fill='#8b949e' fill-opacity='0.22'";

  const double begin_;
  double end_ = 0;
  const Steps steps_;
  std::vector<Span> spans_;  // of these steps, sorted by kind, worker and time
  std::map<int, int> rows_;  // worker -> row
};

}  // namespace

std::string draw_timeline(const std::string& timeline_path, const std::string& title,
                          int64_t steps) {
  const std::vector<Span> spans = read_spans(timeline_path);
  const Steps found = steps_of(spans);
  if (found.empty()) return "";
  const size_t count = std::min(found.size(), static_cast<size_t>(steps));
  return Picture(spans, found, count)
      .draw(fmt::format("{}: {} to {} of the run, by worker", title, found.front().first,
                        found[count - 1].first));
}

}  // namespace tlt::run
