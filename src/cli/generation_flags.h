// GenerationFlags: the flags of the commands that decode with a model (tlt generate, tlt chat).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/model_flags.h"
#include "rollout/engine_options.h"
#include "rollout/sampling_options.h"

namespace tlt::cli {

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
