// SPDX-License-Identifier: Apache-2.0
#include "run/loop_state.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_fault.h"

namespace tlt::run {

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
    saved.state.step = json.at("step").get<int64_t>();
    // Checkpoints without the field were made without dynamic sampling: one batch per step.
    saved.state.gen_batches = json.value("gen_batches", saved.state.step);
    saved.state.cursor = {json.at("epoch").get<int64_t>(), json.at("index").get<int64_t>()};
    saved.optimizer_steps = json.at("optimizer_steps").get<int64_t>();
    saved.skipped_in_row = json.value("skipped_in_row", int64_t{0});  // earlier versions: no skips
    return saved;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(
        check_internal::concat(location, ": not a checkpoint's state (", json_fault(error),
                               "); delete this checkpoint to resume from the one before"));
  }
}

}  // namespace tlt::run
