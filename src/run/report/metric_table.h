// MetricTable: the metrics of a run as columns over steps, in JSON, for the page of a report.
//
//   {"steps": [0, 1, 2], "tokens": [0, 800, 1650], "seconds": [1.5, 8, 15],
//    "columns": {"critic/score/mean": [null, 0.4, 0.5],
//                "main/validation_score": {"at": [0], "values": [0.3]}},
//    "means": {"critic/score/mean": [null, 0.45, 0.45]},
//    "sums": {"timing_s/step": [14.8, 2]}}
//
// A column has a value for each step or, if most are missing, the indices of its steps. Numbers are
// those of metrics.jsonl. `tokens` and `seconds` are sums up to and including a step; `means` has the
// mean of kMeanSteps values around each step for the metrics of which the page draws it; `sums` has
// the sum and the number of values over the whole run of each metric in seconds. All three are over
// all steps of the run, also those that the table does not have.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "run/report/metric_history.h"

namespace tlt::run {

// All steps while the columns have at most `max_values` values. Of a longer run, each stretch of
// steps keeps its first step, its last and its best validation, and those with the highest score,
// gradient norm and time: what a curve is read for. The first and last kMeanSteps steps with a score
// are kept, too.
nlohmann::json metric_table(const MetricHistory& history, int64_t max_values);

// The steps that metric_table() keeps, sorted.
std::vector<double> choose_steps(const MetricHistory& history, int64_t max_values);

}  // namespace tlt::run
