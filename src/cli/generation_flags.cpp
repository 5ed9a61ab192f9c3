// SPDX-License-Identifier: Apache-2.0
#include "cli/generation_flags.h"

#include <CLI/CLI.hpp>

#include "base/check.h"

namespace tlt::cli {

void add_size_flag(CLI::App& flags, const char* name, int64_t& bytes, const char* shown,
                   const char* help) {
  CLI::AsSizeValue size(/*kb_is_1000=*/false);
  size.description("");
  flags.add_option(name, bytes, help)->transform(size)->type_name("SIZE")->default_str(shown);
}

void add_kv_memory_flag(CLI::App& flags, rollout::EngineOptions& engine) {
  add_size_flag(flags, "--kv-memory", engine.kv_memory_bytes, "1GB",
                "Memory for the KV cache: bytes, or 512MB, 4GB.");
}

void check_kv_memory(const rollout::EngineOptions& engine) {
  TLT_CHECK_INPUT(engine.kv_memory_bytes >= 1, "--kv-memory is ", engine.kv_memory_bytes,
                  "; give a size as 4GB");
}

void GenerationFlags::add_to(CLI::App& flags) {
  flags.add_option("--max-new-tokens", sampling.max_new_tokens, "Longest response, in tokens.");
  flags.add_option("--temperature", sampling.temperature, "Sampling temperature; 0: greedy.");
  flags.add_option("--top-k", sampling.top_k,
                   "Sample only from the k most likely tokens; -1: all.");
  flags.add_option("--top-p", sampling.top_p,
                   "Sample from the most likely tokens that together have this probability.");
  flags.add_option("--seed", seed, "Random seed: same seed, same tokens.");
  flags.add_flag("--ignore-eos", sampling.ignore_eos,
                 "End-of-sequence tokens do not end a response.");
  speculation.add_to(flags);
  add_kv_memory_flag(flags, engine);
}

void GenerationFlags::check() const {
  TLT_CHECK_INPUT(seed >= 0, "--seed is ", seed, "; give an integer from 0");
  check_kv_memory(engine);
  sampling.check();
  speculation.check();
}

}  // namespace tlt::cli
