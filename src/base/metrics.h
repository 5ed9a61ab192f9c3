// Metrics: the named numbers of one step, and MetricsWriter, which keeps them: metrics.jsonl for
// scripts, TensorBoard events for people. Names are "folder/what_unit", verl's where it has one.
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

  // A name that is there keeps its place and gets the new value.
  void set(std::string_view name, double value);

  // Sets <name>/mean, /max and /min; nothing for no values, which have none. A NaN among the values
  // makes all three NaN.
  void add_stats(std::string_view name, std::span<const double> values);
  void add_stats(std::string_view name, std::span<const float> values);

  // Sets all of `other`.
  void merge(const Metrics& other);

  std::optional<double> find(std::string_view name) const;
  double at(std::string_view name) const;  // REQUIRES: it was set

  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  // {"step": 3, "actor/lr": 1e-06}: in the order of set(), doubles in full, null for what is not
  // finite.
  std::string to_json(int64_t step) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

class MetricsWriter {
 public:
  // Continues <folder>/metrics.jsonl after `last_step`: what a stopped run wrote about later steps
  // is taken out; a run that starts anew gives -1. TensorBoard events go to a new file in
  // <folder>/tensorboard. REQUIRES: the folder exists.
  MetricsWriter(const std::string& folder, int64_t last_step);
  ~MetricsWriter();

  // Both files are complete up to this step when it returns. REQUIRES: step >= 0.
  void write(int64_t step, const Metrics& metrics);

 private:
  std::unique_ptr<FileHandle> file_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
};

}  // namespace tlt
