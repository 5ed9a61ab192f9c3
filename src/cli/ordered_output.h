// OrderedOutput: an output file with lines in a fixed order that are computed in any order, and are
// not lost if the program is killed.
//
// Lines go to PATH.partial as soon as they are computed:
//
//   {"partial": {"--seed": 0, …}}   what the lines depend on, by the user's names
//   …                               lines of PATH, in the order of their computation
//
// commit() writes PATH as a whole and removes PATH.partial. A later process resumes from the lines
// in it; an incomplete last line is dropped. If PATH is a stream (base/files.h) there is no partial
// file: a line is written as soon as all lines before it are.
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

namespace tlt::cli {

class OrderedOutput {
 public:
  struct Setup {
    std::string path;
    bool resume = false;
    nlohmann::ordered_json settings = nlohmann::ordered_json::object();
    int64_t lines = 0;
    std::string noun = "response";    // name of a line in messages
    std::string resume_command = {};  // command that resumes, for messages
  };

  // The index in PATH of a line of the partial file; `number` counts its lines from 0. InputError,
  // beginning with `where`: a line that this command would not write.
  using PlaceOf =
      std::function<int64_t(const nlohmann::json& line, int64_t number, const std::string& where)>;

  // To call before the computation. InputError: a partial file exists and `resume` is false, or
  // `resume` is true and PATH is a stream.
  static void check(const std::string& path, bool resume);

  // InputError: see check(), or the partial file has other settings.
  OrderedOutput(Setup setup, const PlaceOf& place_of);
  // Without commit() the partial file is kept, and a log line says how to resume.
  ~OrderedOutput();
  OrderedOutput(const OrderedOutput&) = delete;
  OrderedOutput& operator=(const OrderedOutput&) = delete;

  bool has(int64_t place) const { return places_[static_cast<size_t>(place)].bytes > 0; }
  // Number of lines computed or found in the partial file.
  int64_t done() const { return done_; }

  // `line` ends with a line break. REQUIRES: !has(place).
  void add(int64_t place, std::string_view line);

  // REQUIRES: all lines were added.
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
  int64_t end_ = 0;  // size of the partial file

  std::optional<AtomicFile> stream_;
  int64_t written_ = 0;                     // lines written to the stream
  std::map<int64_t, std::string> waiting_;  // lines that wait for an earlier one
};

}  // namespace tlt::cli
