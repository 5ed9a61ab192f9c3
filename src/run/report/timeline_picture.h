// TimelinePicture: draws the first steps of a run from timeline.json, one row per worker: rollout,
// update, training of the draft model, waiting; as in figure 1 of "Taming the Long-Tail", arXiv
// 2511.16665.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

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

// An SVG of the first `steps` steps in the file; empty if it has no rollout of a step.
std::string draw_timeline(const std::string& timeline_path, const std::string& title,
                          int64_t steps = 4);

}  // namespace tlt::run
