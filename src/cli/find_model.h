// Finds the folder of the model that a user names: a model folder, a run folder, a model installed
// with the program, or a repository in the Hugging Face cache.
//
// Not here   loading it (model_flags.h, model/hf_folder.h). Nothing is downloaded.
// Threading  any.
//
//   find_model("runs/demo")                    // "runs/demo/checkpoints/step_000030/policy"
//   find_model("Qwen/Qwen2.5-0.5B-Instruct")   // "…/hub/models--Qwen--…/snapshots/7ae5…"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/launch.h"

namespace tlt::cli {

// The folder of a run's policy or draft model.
struct RunPart {
  std::string folder;
  int64_t step = -1;  // of its checkpoint; -1: not in a checkpoint
};

// `part` ("policy" or "drafter") of the run's newest checkpoint, or <run>/<part>. nullopt: neither
// exists.
std::optional<RunPart> find_in_run(const std::string& run, const std::string& part);

// The folder with config.json that `name` refers to, or `name` itself if it is one; otherwise a log
// line names the folder. InputError: not found; the message says what to type.
std::string find_model(const std::string& name);

// Like find_model() for a name that is not a folder here; returns any name unchanged that is neither
// an installed model nor "organisation/name".
std::string find_hub_model(const std::string& name);

// The cache of the Hugging Face libraries: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub.
std::string hub_cache(const cluster::Environment& environment);

}  // namespace tlt::cli
