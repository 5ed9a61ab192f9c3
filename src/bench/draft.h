// The checkpoint benchmark of `tlt bench draft-train --checkpoint`: how long draft model training
// is blocked by ways to write checkpoints.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "drafter_training/draft_trainer.h"

namespace tlt::bench {

// Milliseconds, medians of `repeat` rounds, each way once per round:
//   blocking_full    the draft model with the target's embedding and LM head, and the optimizer,
//                    written, checksummed and flushed to the disk while training waits
//   async_full       the same, copied while training waits and written in the background
//   async_selective  only the trained weights and their optimizer, as tlt train writes them
// …_blocked_ms is the time training waits, …_durable_ms the time until the files are on the disk.
// The files are below `folder` and are removed. Error: the last checkpoint does not read back
// equal.
nlohmann::ordered_json measure_checkpoints(const drafter::DraftNetwork& network,
                                           drafter_training::DraftTrainer& trainer,
                                           const std::string& folder, int64_t repeat);

}  // namespace tlt::bench
