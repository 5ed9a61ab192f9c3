// OrderedOutput: an output file whose lines are computed in any order, stand in a given one, and
// are not lost when the program is killed.
//
// Lines go to PATH.partial as soon as they are computed:
//
//   {"partial": {"--seed": 0, …}}   what the lines depend on, by the names a user knows
//   …                               lines of PATH, in the order in which they were computed
//
// commit() writes PATH as a whole and removes PATH.partial. A later process resumes from the lines
// that are there; a last one that is not whole is dropped. Where PATH is a stream (base/files.h)
// there is no partial file: a line is written as soon as those before it are.
//
// Owns       PATH.partial, locked against other processes.
// Threading  one thread.
//
//   OrderedOutput output({.path = "out.jsonl", .settings = {{"--seed", 0}}, .lines = 2}, place_of);
//   if (!output.has(1)) output.add(1, "{}\n");
//   …
//   output.commit();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace tlt::apps {

class OrderedOutput {
 public:
  struct Setup {
    std::string path;
    bool resume = false;
    nlohmann::ordered_json settings = nlohmann::ordered_json::object();
    int64_t lines = 0;
    std::string noun = "response";    // what a line is, in messages
    std::string resume_command = {};  // what a user types to go on
  };

  // Where in PATH a line of the partial file belongs; `number` counts the lines from 0. Throws
  // InputError, beginning with `where`, for a line that this command would not write.
  using PlaceOf =
      std::function<int64_t(const nlohmann::json& line, int64_t number, const std::string& where)>;

  // InputError, before anything is computed: there is a partial file and `resume` is false, or
  // `resume` is true and PATH a stream.
  static void check(const std::string& path, bool resume);

  // InputError: check(), or the partial file is of other settings.
  OrderedOutput(Setup setup, const PlaceOf& place_of);
  // What was not committed stays in the partial file; a log line says how to resume.
  ~OrderedOutput();
  OrderedOutput(const OrderedOutput&) = delete;
  OrderedOutput& operator=(const OrderedOutput&) = delete;

  bool has(int64_t place) const { return places_[static_cast<size_t>(place)].bytes > 0; }
  // Lines that are there: computed, or found in the partial file.
  int64_t done() const { return done_; }

  // `line` ends with a line break. REQUIRES: !has(place).
  void add(int64_t place, std::string_view line);

  // REQUIRES: every place has its line.
  void commit();

 private:
  struct Place {
    int64_t begin = 0, bytes = 0;  // in the partial file
  };

  void open_partial();
  void read_partial(const PlaceOf& place_of);
  void check_settings(const nlohmann::json& header) const;
  void keep(int64_t place, int64_t bytes);
  void write_stream(int64_t place, std::string_view line);
  void write_ordered();

  const Setup setup_;
  const std::string partial_path_;  // empty: a stream
  std::vector<Place> places_;
  int64_t done_ = 0;
  bool is_committed_ = false;

  FileHandle partial_;
  int64_t end_ = 0;  // of the partial file

  std::optional<AtomicFile> stream_;
  int64_t written_ = 0;                     // to the stream
  std::map<int64_t, std::string> waiting_;  // for a line before theirs
};

}  // namespace tlt::apps
