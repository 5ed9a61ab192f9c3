// AdapterFiles: what a run writes of its adapter: a folder adapter/ beside policy/ in PEFT's
// layout, and a text of the checkpoint that says what it is and which base it belongs to.
//
// Borrows    the adapter.
// Not here   the layout (train/lora_folder.h); A, B and their moments as training goes on from
// them:
//            they are the optimizer's state.
// Threading  engine thread only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/lora.h"

namespace tlt::rl {

// Of a checkpoint (train/checkpoint.h).
inline constexpr const char* kAdapterText = "adapter.txt";

class AdapterFiles {
 public:
  // base_path: where the base was read, as PEFT will look for it.
  AdapterFiles(const train::LoraAdapter& adapter, std::string base_path);

  // Rank, alpha, targets and the base's checksum, a line each.
  std::string describe() const;
  // InputError when a checkpoint has another adapter, or one of another base, or none.
  void check_same(const std::optional<std::string>& saved, const std::string& checkpoint) const;

  // A copy of the adapter as it is now, to be put into a folder by any thread.
  std::function<void(const std::string& folder)> snapshot() const;

 private:
  const train::LoraAdapter& adapter_;
  const std::string base_path_;
  const std::string base_checksum_;
};

}  // namespace tlt::rl
