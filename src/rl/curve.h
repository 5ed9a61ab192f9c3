// Curve: the picture of a run, drawn from its metrics: score, response length, truncated responses,
// and the draft model's acceptance length by step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rl/metric_history.h"

namespace tlt::rl {

// Reads metrics.jsonl and gives an SVG of 900 pixels width; empty while there are not two steps
// yet. A panel of which nothing is known is left out.
std::string draw_curve(const std::string& metrics_path, const std::string& title);

// For each point the mean of at most `window` points around it.
Points running_mean(const Points& points, size_t window);

// The held-out score by step: that of all data sources, or of the first one where only sources are
// known.
Points held_out_score(const MetricHistory& history);

// The acceptance length of the drafter that a step left in use, on held-out responses.
Points offline_acceptance(const MetricHistory& history);

}  // namespace tlt::rl
