// TimelinePicture: the first steps of a run, one row per worker: who rolled out, updated, trained
// the draft model or waited when; figure 1 of the paper ("Taming the Long-Tail", arXiv 2511.16665).
// Drawn from timeline.json.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tlt::rl {

// What the lanes of timeline.json are called.
inline constexpr const char* kRolloutLane = "rollout";
inline constexpr const char* kValidationLane = "validation";
inline constexpr const char* kUpdateLane = "update";
inline constexpr const char* kRewardLane = "reward";
inline constexpr const char* kSaveLane = "save";
inline constexpr const char* kDraftLane = "draft training";
inline constexpr const char* kPublishLane = "draft publish";

// An SVG of the first `steps` steps in the file; empty where it has no rollout of a step.
std::string draw_timeline(const std::string& timeline_path, const std::string& title,
                          int64_t steps = 4);

}  // namespace tlt::rl
