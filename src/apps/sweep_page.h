// The results of `tlt simulate --sweep` as an HTML file with charts (run/report/html_page.h).
//
// The horizontal axis is the option that was swept last; the values of the others give a line each.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace tlt::apps {

struct SweepPoint {
  std::vector<std::string> overrides;  // of the sweeps, in order: "workers=8", "device=H20"
  nlohmann::ordered_json rows;         // simulate::to_json() of each way
};

// `title`: the command. REQUIRES: the points of simulate::sweep_points(), all ways in each.
std::string sweep_page(const std::string& title, std::span<const SweepPoint> points);

}  // namespace tlt::apps
