// RolloutChoice: a run's responses that the page of a report shows, read from rollouts/ and
// validation/.
//
// Of up to 12 files of each, at equal distances, each file gives the rows that have tokens, its
// longest, best and worst one, and its first rows: whole groups of prompts, the same prompts in
// each validation. Files take turns until the bytes are used up, so that a step is not shown in
// full while another is missing.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "run/report/left_out.h"

namespace tlt::run {

// A list of {"kind": "rollout" or "validation", "step", "prompt", "output", "score" …}; long texts
// are cut at a character and have "cut": the bytes that are missing. `max_bytes`: of the list, as
// written into the page.
nlohmann::json choose_rollouts(const std::string& run_folder, int64_t max_bytes, LeftOut& left_out);

}  // namespace tlt::run
