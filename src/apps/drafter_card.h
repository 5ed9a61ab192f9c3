// The model card (README.md) of an exported draft model: its target, how to serve it, and its
// acceptance, from the metrics of the run that trained it.
//
// Threading  no state; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "drafter/files/draft_export.h"

namespace tlt::apps {

struct DrafterFacts {
  std::string algorithm;  // "eagle" or "eagle3"
  drafter::DraftFormat format = drafter::DraftFormat::kSglang;
  int64_t parameters = 0;
  bool has_token_map = false;
  std::string name;                                               // of its folder
  std::string target_name;                                        // the target's name for a server
  std::vector<std::pair<std::string, std::string>> target_files;  // weight files: name, SHA-256
  std::string run;                                                // run folder; empty: unknown
  int64_t step = -1;                                              // of the run; -1: its last
};

std::string drafter_card(const DrafterFacts& facts);

}  // namespace tlt::apps
