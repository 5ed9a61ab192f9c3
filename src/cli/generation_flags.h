// GenerationFlags: the flags of the commands that decode with a model (tlt generate, tlt chat).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/model_flags.h"
#include "rollout/engine_options.h"
#include "rollout/sampling_options.h"

namespace tlt::cli {

// Adds a flag for a number of bytes, given as 512MB or 4GB; `shown` is the default on help pages.
void add_size_flag(CLI::App& flags, const char* name, int64_t& bytes, const char* shown,
                   const char* help);
// Adds --kv-memory.
void add_kv_memory_flag(CLI::App& flags, rollout::EngineOptions& engine);
// InputError: --kv-memory is not a size.
void check_kv_memory(const rollout::EngineOptions& engine);

struct GenerationFlags {
  ModelFlags model;
  SpeculationFlags speculation{"auto"};
  rollout::SamplingOptions sampling;
  rollout::EngineOptions engine;
  int64_t seed = 0;  // signed, because CLI11 reads -1 as a very large unsigned number

  // Adds all flags but those of the model, which come first on a help page.
  void add_to(CLI::App& flags);
  // InputError: invalid values.
  void check() const;
};

}  // namespace tlt::cli
