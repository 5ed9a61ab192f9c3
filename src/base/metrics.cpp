// SPDX-License-Identifier: Apache-2.0
#include "base/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/tensorboard.h"

namespace tlt {
namespace {

constexpr int64_t kMaxMetricsBytes = int64_t{4} << 30;

// What is left of a file of metrics.
struct Rows {
  std::string kept;     // of steps up to the last one that counts
  std::string damaged;  // lines that are no row, and a last one that is incomplete
  int64_t steps = 0;    // kept, after step 0
};

Rows read_rows(const std::string& text, int64_t last_step) {
  Rows rows;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line(text.data() + begin, end - begin + 1);
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) {
      rows.damaged += line;
      continue;
    }
    const auto step = row["step"].get<int64_t>();
    if (step > last_step) continue;
    rows.kept += line;
    if (step > 0) ++rows.steps;
  }
  rows.damaged += std::string_view(text).substr(begin);
  return rows;
}

// The rows in `path` up to last_step; a warning says how many of them are missing. Without one, what
// is damaged is of a later step: a killed run leaves an incomplete row.
std::string keep_rows(const std::string& path, int64_t last_step) {
  const bool is_there = ::access(path.c_str(), F_OK) == 0;
  Rows rows = read_rows(is_there ? read_file(path, kMaxMetricsBytes) : "", last_step);
  if (rows.steps >= last_step) return std::move(rows.kept);
  std::string where;
  if (!rows.damaged.empty()) {
    where = "; damaged ones are in " + path + ".damaged";
    FileHandle(path + ".damaged", O_WRONLY | O_CREAT | O_APPEND).write(rows.damaged);
  }
  log_warning("{}: {} of {} steps have no row, which the report leaves out{}", path,
              last_step - rows.steps, last_step, where);
  return std::move(rows.kept);
}

template <class T>
void set_stats(Metrics& metrics, const std::string& name, std::span<const T> values) {
  if (values.empty()) return;
  double sum = 0, high = values[0], low = values[0];
  for (const double value : values) {
    sum += value;
    high = std::max(high, value);
    low = std::min(low, value);
  }
  if (std::isnan(sum)) high = low = sum;
  metrics.set(name + "/mean", sum / static_cast<double>(values.size()));
  metrics.set(name + "/max", high);
  metrics.set(name + "/min", low);
}

}  // namespace

void Metrics::set(std::string_view name, double value) {
  const auto [found, is_new] = places_.try_emplace(std::string(name), entries_.size());
  if (is_new) {
    entries_.emplace_back(name, value);
  } else {
    entries_[found->second].second = value;
  }
}

void Metrics::add_stats(std::string_view name, std::span<const double> values) {
  set_stats(*this, std::string(name), values);
}

void Metrics::add_stats(std::string_view name, std::span<const float> values) {
  set_stats(*this, std::string(name), values);
}

void Metrics::merge(const Metrics& other) {
  for (const auto& [name, value] : other) set(name, value);
}

std::optional<double> Metrics::find(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  if (found == places_.end()) return std::nullopt;
  return entries_[found->second].second;
}

double Metrics::at(std::string_view name) const {
  const std::optional<double> value = find(name);
  TLT_CHECK(value.has_value(), "no metric ", name);
  return *value;
}

std::string Metrics::to_json(int64_t step) const {
  nlohmann::ordered_json row;
  row["step"] = step;
  for (const auto& [name, value] : entries_) row[name] = value;
  return row.dump();
}

MetricsWriter::MetricsWriter(const std::string& folder, int64_t last_step) {
  const std::string path = folder + "/metrics.jsonl";
  write_file_atomic(path, last_step >= 0 ? keep_rows(path, last_step) : "");
  file_ = std::make_unique<FileHandle>(path, O_WRONLY | O_APPEND);
  tensorboard_ = std::make_unique<TensorboardWriter>(folder + "/tensorboard", last_step + 1);
}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(int64_t step, const Metrics& metrics) {
  TLT_CHECK(step >= 0, "step ", step);
  file_->write(metrics.to_json(step) + "\n");
  tensorboard_->write(wall_seconds(), step, metrics);
}

}  // namespace tlt
