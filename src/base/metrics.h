// Metrics: the named values of one step; MetricsWriter writes them to metrics.jsonl for scripts and
// to TensorBoard events for people. Names are "folder/what_unit", verl's where it has one.
//
// Threading  one thread at a time for each object.
//
//   Metrics metrics;
//   metrics.set("actor/lr", lr);
//   metrics.add_stats("critic/score", scores);        // critic/score/mean, /max, /min
//   writer.write(step, metrics);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tlt {

class FileHandle;
class TensorboardWriter;

class Metrics {
 public:
  using Entry = std::pair<std::string, double>;

  // An existing name keeps its position and gets the new value.
  void set(std::string_view name, double value);

  // Sets <name>/mean, /max and /min; sets nothing without values. A NaN among the values makes all
  // three NaN.
  void add_stats(std::string_view name, std::span<const double> values);
  void add_stats(std::string_view name, std::span<const float> values);

  // Sets all of `other`.
  void merge(const Metrics& other);

  std::optional<double> find(std::string_view name) const;
  double at(std::string_view name) const;  // REQUIRES: it was set

  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  // {"step": 3, "actor/lr": 1e-06}: in the order of set(), doubles in full precision, null for
  // values that are not finite.
  std::string to_json(int64_t step) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

class MetricsWriter {
 public:
  // Continues <folder>/metrics.jsonl after `last_step` and removes later steps, which a stopped run
  // wrote; -1 starts a new file. Damaged rows go to metrics.jsonl.damaged, and a warning says how
  // many of steps 1 to last_step are missing. TensorBoard events go to a new file in
  // <folder>/tensorboard. REQUIRES: the folder exists.
  MetricsWriter(const std::string& folder, int64_t last_step);
  ~MetricsWriter();

  // Both files are complete up to this step when write() returns. REQUIRES: step >= 0.
  void write(int64_t step, const Metrics& metrics);

 private:
  std::unique_ptr<FileHandle> file_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
};

}  // namespace tlt
