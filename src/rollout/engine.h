// Engine: generates the responses to groups of prompts, many sequences per forward pass.
//
// A token depends only on the weights, the request and its sample and position. It does not depend
// on the other sequences of the batch, on chunked prefill, on preemption, on the size of the KV
// cache or on the prefix cache (tests/invariants/batch_never_changes_tokens).
//
// Owns       the model runner with the KV cache, its pages, the scheduler, the buffers of a step.
// Borrows    the target model (its weights change only while the engine is idle), StopString,
//            HiddenStateObserver, Speculation.
// Not here   which sequences run in a step (scheduler.h), how a token is sampled (token_sampler.h).
// Threading  engine thread only; no locks.
//
//   Engine engine(model, options);
//   engine.submit({.prompt_id = 7, .tokens = prompt, .samples = 8, .seed = 1});
//   while (engine.step())
//     for (Response& response : engine.take_finished()) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kv/page_pool.h"
#include "model/policy_model.h"
#include "rollout/engine_options.h"
#include "rollout/graph_cache.h"
#include "rollout/hidden_state_observer.h"
#include "rollout/model_runner.h"
#include "rollout/scheduler.h"
#include "rollout/speculation.h"
#include "rollout/stop_string.h"
#include "rollout/token_sampler.h"
#include "runtime/device_timer.h"

namespace tlt::rollout {

// Counters since construction, except where noted.
struct EngineStats {
  int64_t steps = 0;
  int64_t rows = 0;           // token rows of all forward passes
  int64_t repeated_rows = 0;  // part of rows: computed again after a preemption
  int64_t prompt_rows = 0;    // part of rows: rows of prompts
  int64_t tokens = 0;         // response tokens
  int64_t preemptions = 0;
  int64_t running = 0;  // current
  int64_t waiting = 0;  // current
  int64_t pages = 0;
  int64_t held_pages = 0;    // current
  int64_t cached_pages = 0;  // current: free, with contents that a sequence may begin with
  int64_t peak_pages = 0;
  int64_t kv_bytes = 0;  // bytes of all pages
  PrefixCacheStats prefix_cache;
  double schedule_seconds = 0;
  double forward_seconds = 0;
  double sample_seconds = 0;
  GraphStats graphs;
  // batch_sizes[i]: steps with 2^i .. 2^(i+1) - 1 running sequences; the last entry has no upper
  // bound.
  std::array<int64_t, 12> batch_sizes = {};
};

class Engine {
 public:
  // stop_string: required by requests with stop strings. observer: may be null. speculation: null
  // means non-speculative decoding; the tokens are the same either way. All outlive the engine.
  Engine(const TargetModel& target, const EngineOptions& options,
         const StopString* stop_string = nullptr, HiddenStateObserver* observer = nullptr,
         Speculation* speculation = nullptr);
  ~Engine();

  // Adds a group to the end of the queue. InputError when it can never be served: an empty prompt,
  // a prompt longer than the model's positions, or a response that does not fit into
  // kv_memory_bytes (the message says what does). A response that reaches the model's last position
  // finishes there with kLength.
  void submit(Group group);

  // Resumes responses that another engine started and cancelled (kCancelled). They end as they
  // would have there. `group.samples` and `first_sample` are ignored: `responses` says which
  // samples. The observer gets all their states, from the prompt on; with a prefix cache those that
  // are computed. REQUIRES: none of them is unfinished here.
  void resume(Group group, std::vector<Response> responses);

  // Runs one forward pass and samples its tokens; false when nothing is unfinished.
  bool step();
  // ModelRunner::keep_alive().
  void keep_alive() { runner_->keep_alive(); }

  // Responses finished since the last call, in the order they finished.
  std::vector<Response> take_finished();

  // Between steps: ends a response with the tokens it has, as kCancelled. False when there is no
  // such unfinished response.
  bool cancel(uint32_t prompt_id, uint32_t sample) { return scheduler_.cancel(prompt_id, sample); }
  void cancel_all() { scheduler_.cancel_all(); }

  // The policy model's weights have changed: no prompt begins with pages of the old ones. REQUIRES:
  // nothing is unfinished.
  void new_weights() { scheduler_.new_weights(); }

  // Returns the memory of the KV cache to the system, where that is possible (kv_cache.h), until the
  // next step; for the time of an update. The prefix cache is empty afterwards. REQUIRES: nothing is
  // unfinished.
  void release_memory();

  // Between steps: the tokens of a running response so far; empty when it does not run. Valid until
  // the next step.
  std::span<const int32_t> tokens_so_far(uint32_t prompt_id, uint32_t sample) const;

  // Between steps: the unfinished responses that have started and are not preempted, oldest first.
  // Valid until the next step or cancellation.
  std::span<const std::unique_ptr<Sequence>> running_sequences() const {
    return scheduler_.running_sequences();
  }

  // Most tokens of a response to this group: its max_new_tokens, limited by the model's positions.
  int64_t response_limit(const Group& group) const;

  // Number of further sequences that could be submitted and start with the next step.
  int64_t free_slots() const { return scheduler_.free_slots(); }
  // Spare capacity: how many of these would slow the unfinished ones down only slightly, as
  // predicted by the tuner; 0 without a tuner. REQUIRES: some sequences are unfinished.
  int64_t spare_capacity() const;
  // Sums over the running and waiting sequences; visits each of them.
  Unfinished unfinished() const { return scheduler_.unfinished(); }
  EngineStats stats() const;

  // Throw Error when a page is held by none of the unfinished sequences;
  // check_idle_invariants() also when any sequence is unfinished or any page is held. Pages that
  // only the prefix cache has are free. Slow.
  void check_invariants() const { scheduler_.check_invariants(); }
  void check_idle_invariants() const;

 private:
  void check_input(const Group& group) const;
  std::shared_ptr<GroupState> make_state(Group group) const;
  // Completes the segments of a committed plan: keeps the KV entries of accepted paths, passes
  // hidden states to the observer, counts rows.
  void complete(const StepPlan& plan, const TargetStates& states);
  // The accepted paths of draft trees, into the slots of their positions.
  void keep_paths(const StepPlan& plan);
  // Off the CPU, after the sampling: seconds of the pass that was launched in `launch_seconds`.
  double work_of_forward(const StepPlan& plan, double launch_seconds);
  void observe(const StepPlan& plan, size_t segment, const at::Tensor& states);

  const model::PolicyModel& model_;
  const StopString* stop_string_;  // or null
  HiddenStateObserver* observer_;  // or null
  Layers observed_layers_;         // observer_->layers()
  Speculation* speculation_;       // or null
  const std::unique_ptr<ModelRunner> runner_;
  std::vector<ops::KeptPath> kept_paths_;  // scratch
  kv::PagePool pool_;
  Scheduler scheduler_;
  TokenSampler sampler_;
  EngineStats stats_;
  // Of a forward pass; null on the CPU, where the clock shows it.
  std::unique_ptr<runtime::DeviceTimer> timer_;
};

}  // namespace tlt::rollout
