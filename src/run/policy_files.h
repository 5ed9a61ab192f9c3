// PolicyFiles: writes the policy of a run: policy/, a Hugging Face folder, and, if an adapter is
// trained, adapter/ in PEFT's layout.
//
// Borrows    the policy and the adapter of the run context.
// Not here   the layouts (model/hf_folder.h, train/lora_folder.h); A, B and their moments, which
//            training resumes from and which are part of the optimizer state.
// Threading  engine thread only; first worker only.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "run/run_context.h"

namespace tlt::run {

class PolicyFiles {
 public:
  // `base_path`: the folder the policy was loaded from. Its tokenizer is copied, and PEFT finds an
  // adapter's base model there. REQUIRES: nothing is trained yet.
  PolicyFiles(const RunContext& context, std::string base_path);

  // The adapter's rank, alpha, targets and base checksum, one "name = value" line each; empty: all
  // weights are trained.
  std::string describe_adapter() const;

  // Copies the present weights. The function writes them into a folder, on any thread.
  std::function<void(const std::string& folder)> snapshot() const;

  // Writes <folder>/policy and <folder>/adapter, each atomically.
  void write(const std::string& folder) const;

 private:
  std::function<void(const std::string& folder)> adapter_snapshot() const;

  const RunContext& context_;
  const std::string base_path_;
  const std::string base_checksum_;  // of an adapter's base; else empty
};

}  // namespace tlt::run
