// Where the model is that a user names: a folder, a run's folder, or a repository of the Hugging
// Face Hub that was downloaded before.
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

namespace tlt::apps {

// A part of a run: "policy" or "drafter".
struct RunPart {
  std::string folder;
  int64_t step = -1;  // of its checkpoint; -1: it is of none
};

// That of the run's newest checkpoint, else <run>/<part>. nullopt: there is neither.
std::optional<RunPart> find_in_run(const std::string& run, const std::string& part);

// The folder with config.json that `name` stands for, or `name` itself if it is one. A log line
// says which was taken. InputError: there is none, and what to type.
std::string find_model(const std::string& name);

// As find_model() for "organisation/name" that is no folder here; any other name as it is.
std::string find_hub_model(const std::string& name);

// Where the Hugging Face libraries keep what they download: HF_HUB_CACHE, HF_HOME/hub or
// ~/.cache/huggingface/hub.
std::string hub_cache(const cluster::Environment& environment);

}  // namespace tlt::apps
