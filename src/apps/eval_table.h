// The rows of an evaluation, and what `tlt eval` says about them: statistics of one, comparisons of
// several.
//
// A row is a line of an evaluation's responses.jsonl or of a run's validation/; those have no
// "answer" and "passed".
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "reward/eval_statistics.h"

namespace tlt::apps {

struct EvalRow {
  int64_t prompt = 0, sample = 0;  // the row of the data file
  std::string source;
  size_t input_hash = 0;  // of the prompt's text
  double score = 0;
  bool passed = false;
  std::string answer;
  int64_t tokens = 0;
  bool is_truncated = false, is_unscored = false;
};

// InputError, beginning with `where`: not a row of an evaluation.
EvalRow parse_eval_row(const nlohmann::json& line, const std::string& where);

// The rows of an evaluation, by prompt and sample.
struct EvalTable {
  std::string name;
  std::vector<EvalRow> rows;
};

// InputError: a line that is none, no lines, or a prompt with fewer responses than others.
EvalTable read_eval_table(const std::string& name, const std::string& path);

// The tables of a folder: of an evaluation one, of a run one for each validation, by step.
// InputError: neither, or an evaluation that is not finished.
std::vector<EvalTable> read_eval_folder(const std::string& folder);

// Those of reward/eval_statistics.h with bootstrap intervals, and the lengths of the responses:
// val-aux/<source>/response_length/…, as in validation. Percentiles have no interval.
std::vector<reward::EvalStatistic> statistics_of(std::span<const EvalRow> rows);

// The mean score of `table` minus that of `baseline`, over the prompts of a data source: a paired
// bootstrap over prompts.
struct Comparison {
  std::string source;  // "all": of all sources, if there are several
  std::string baseline, table;
  double before = 0, after = 0;   // mean scores
  reward::Estimate difference;    // after - before
  int64_t better = 0, worse = 0;  // prompts
};

// InputError: the tables have other prompts.
std::vector<Comparison> compare(const EvalTable& baseline, const EvalTable& table);

// For the terminal; ends with a line break.
std::string text_of_statistics(std::span<const reward::EvalStatistic> statistics,
                               std::span<const EvalRow> rows);
std::string text_of_comparisons(std::span<const Comparison> comparisons);

nlohmann::ordered_json line_of(const reward::EvalStatistic& statistic);
nlohmann::ordered_json line_of(const Comparison& comparison);

}  // namespace tlt::apps
