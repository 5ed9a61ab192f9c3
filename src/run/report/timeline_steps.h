// TimelineSteps: what each worker did in chosen steps of a run, read from timeline.json, in JSON
// for the page of a report; as in figure 1 of "Taming the Long-Tail", arXiv 2511.16665.
//
//   {"lanes": ["rollout", …], "steps": [{"step": 3, "length": 2500000,
//     "workers": [{"worker": 0, "spans": {"rollout": [0, 1000000], "update": [1200000, 90000]}}]}]}
//
// The numbers of a lane are pairs of start, from that of the step, and length, in microseconds.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "run/report/left_out.h"

namespace tlt::run {

// Names of the lanes in timeline.json.
inline constexpr const char* kRolloutLane = "rollout";
inline constexpr const char* kValidationLane = "validation";
inline constexpr const char* kUpdateLane = "update";
inline constexpr const char* kRewardLane = "reward";
inline constexpr const char* kReferenceLane = "reference";
inline constexpr const char* kSaveLane = "save";
inline constexpr const char* kGradientLane = "early gradients";
inline constexpr const char* kDraftLane = "draft training";
inline constexpr const char* kPublishLane = "draft publish";

// At most `max_steps` steps: the first three and last three, the slowest three, and others at equal
// distances; fewer if their spans are more than `max_numbers` numbers. Spans of a lane with a gap
// too small to be visible are one. null: the file has no rollout of a step, or is missing.
// `left_out`: limits that the file exceeds. Lines that are no events are skipped without a message:
// the last one of a run that is being written is incomplete.
nlohmann::json timeline_steps(const std::string& path, size_t max_steps, size_t max_numbers,
                              LeftOut& left_out);

}  // namespace tlt::run
