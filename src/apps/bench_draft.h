// What `tlt bench draft-train` measures beside its packing: how long a drafter's trainer waits for
// checkpoints of several kinds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "spot/draft_trainer.h"

namespace tlt::apps {

// Milliseconds, medians of `repeat` rounds, each kind once a round:
//   blocking_full    the drafter with the target's embedding and head, and the optimizer, written,
//                    checksummed and flushed to the disk while the trainer waits
//   async_full       the same, copied while the trainer waits and written beside it
//   async_selective  what is trained and its optimizer alone, so: what tlt train writes
// …_blocked_ms is what the trainer waits, …_durable_ms until it is on the disk. The files are below
// `folder` and gone afterwards. Error: what was written last does not read back equal.
nlohmann::ordered_json measure_checkpoints(const model::DraftNetwork& network,
                                           spot::DraftTrainer& trainer, const std::string& folder,
                                           int64_t repeat);

}  // namespace tlt::apps
