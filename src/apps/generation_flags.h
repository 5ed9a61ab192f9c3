// GenerationFlags: the flags of the commands that decode with a model (tlt generate, tlt chat), and
// what they stand for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/model_flags.h"
#include "rollout/engine_options.h"
#include "rollout/sampling_options.h"

namespace tlt::apps {

struct GenerationFlags {
  ModelFlags model;
  SpeculationFlags speculation{"auto"};
  rollout::SamplingOptions sampling;
  rollout::EngineOptions engine;
  int64_t seed = 0;  // CLI11 would take -1 for a very large unsigned number

  // All but the model's, which come first on a help page.
  void add_to(CLI::App& flags);
  // InputError for what makes no sense.
  void check() const;
};

}  // namespace tlt::apps
