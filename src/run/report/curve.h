// Curve: draws the learning curves of a run from its metrics: score, response length, truncated
// responses, and the draft model's acceptance length by step.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "run/report/metric_history.h"

namespace tlt::run {

// Reads metrics.jsonl and returns an SVG, 900 pixels wide; empty if the run has fewer than two
// steps. A panel without data is left out.
std::string draw_curve(const std::string& metrics_path, const std::string& title);

// Replaces each value by the mean of the points around it, at most `window` with itself.
Points running_mean(const Points& points, size_t window);

// The held-out score by step: over all data sources, or of the first source if the metrics have
// scores by source only.
Points held_out_score(const MetricHistory& history);

// The acceptance length on held-out responses by step, of the draft model in use after the step.
Points offline_acceptance(const MetricHistory& history);

}  // namespace tlt::run
