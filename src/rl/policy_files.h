// PolicyFiles: what a run writes of its policy: policy/, a Hugging Face folder, and beside it,
// where an adapter is trained, adapter/ in PEFT's layout.
//
// Borrows    the policy and the adapter of the workplace.
// Not here   the layouts (model/hf_folder.h, train/lora_folder.h); A, B and their moments as
//            training goes on from them: they are the optimizer's state.
// Threading  engine thread only; first worker only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "rl/workplace.h"

namespace tlt::rl {

class PolicyFiles {
 public:
  // `base_path`: where the policy was read: its tokenizer is copied from there, and an adapter's
  // base is looked for there by PEFT. REQUIRES: nothing was trained yet.
  PolicyFiles(const Workplace& place, std::string base_path);

  // The adapter's rank, alpha, targets and its base's checksum, a "name = value" line each; empty:
  // all weights are trained.
  std::string describe_adapter() const;

  // A copy as of now, to be put into a folder by any thread.
  std::function<void(const std::string& folder)> snapshot() const;

  // Writes <folder>/policy and <folder>/adapter, each as a whole.
  void write(const std::string& folder) const;

 private:
  std::function<void(const std::string& folder)> adapter_snapshot() const;

  const Workplace& place_;
  const std::string base_path_;
  const std::string base_checksum_;  // with an adapter
};

}  // namespace tlt::rl
