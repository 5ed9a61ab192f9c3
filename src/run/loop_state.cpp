// SPDX-License-Identifier: Apache-2.0
#include "run/loop_state.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_fault.h"

namespace tlt::run {
namespace {

[[noreturn]] void refuse(const std::string& location, const std::string& fault) {
  throw InputError(
      check_internal::concat(location, ": not a checkpoint's state (", fault,
                             "); delete this checkpoint to resume from the one before"));
}

}  // namespace

std::string to_json(const SavedState& saved) {
  const LoopState& state = saved.state;
  const nlohmann::ordered_json json = {{"step", state.step},
                                       {"gen_batches", state.gen_batches},
                                       {"epoch", state.cursor.epoch},
                                       {"index", state.cursor.index},
                                       {"optimizer_steps", saved.optimizer_steps},
                                       {"skipped_in_row", saved.skipped_in_row}};
  return json.dump(1) + "\n";
}

SavedState parse_state(const std::string& text, const std::string& location) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    SavedState saved;
    saved.state.step = json_count(json, "step");
    // Checkpoints without the field were made without dynamic sampling: one batch per step.
    saved.state.gen_batches = json_count(json, "gen_batches", saved.state.step);
    saved.state.cursor = {json_count(json, "epoch"), json_count(json, "index")};
    saved.optimizer_steps = json_count(json, "optimizer_steps");
    // Earlier versions skipped no steps.
    saved.skipped_in_row = json_count(json, "skipped_in_row", int64_t{0});
    return saved;
  } catch (const nlohmann::json::exception& error) {
    refuse(location, json_fault(error));
  }
}

}  // namespace tlt::run
