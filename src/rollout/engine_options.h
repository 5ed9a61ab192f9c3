// EngineOptions: limits on batch size and memory of the engine. None of them changes a token.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/options.h"

namespace tlt::rollout {

struct EngineOptions {
  int64_t max_running = 64;
  int64_t kv_memory_bytes = int64_t{1} << 30;
  int64_t max_batch_tokens = 1024;
  // Not an option: prompt tokens of one sequence in one forward pass. Larger chunks read the
  // weights hardly less often per token, and delay the sequences that decode.
  int64_t prefill_chunk = 512;
  // Not an option: prompts begin with the pages that earlier sequences left (kv/prefix_cache.h).
  // For a server, whose prompts have common beginnings, and for the turns of episodes
  // (rl/episodes.h). In training new weights make the pages of a step useless, and the samples of a
  // prompt share its pages without it.
  bool prefix_cache = false;
  // Not an option: with the prefix cache, prompts begin with cached pages, too; false: only resumed
  // responses do. False where an observer gets the states of whole prompts.
  bool caches_prompts = true;
  // Not an option: off the CPU, forward passes are replayed from graphs (graph_cache.h). False to
  // compare with passes that are launched directly.
  bool graphs = true;

  void visit(auto& v) {
    v(max_running, "max_num_seqs", Affects::kSpeed,
      "Largest number of sequences that decode at the same time.");
    v(kv_memory_bytes, "kv_memory_bytes", Affects::kSpeed,
      "Memory of the KV cache; when it is full, sequences wait or are preempted.");
    v(max_batch_tokens, "max_num_batched_tokens", Affects::kSpeed,
      "Largest number of tokens in one forward pass.");
  }

  void check() const {
    TLT_CHECK_INPUT(max_running >= 1, "max_num_seqs is ", max_running, "; give at least 1");
    TLT_CHECK_INPUT(kv_memory_bytes >= 1, "kv_memory_bytes is ", kv_memory_bytes,
                    "; give a number of bytes");
    TLT_CHECK(prefill_chunk >= 1, "prefill_chunk is ", prefill_chunk);
    TLT_CHECK_INPUT(max_batch_tokens >= max_running && max_batch_tokens <= 1 << 20,
                    "max_num_batched_tokens is ", max_batch_tokens,
                    "; give at least max_num_seqs (", max_running, ") and at most ", 1 << 20);
  }
};

}  // namespace tlt::rollout
