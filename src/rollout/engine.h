// Engine: turns groups of prompts into responses, many sequences at a time.
//
// A token depends on the weights, the request and its place alone; never on what runs beside it, on
// how prompts are cut into chunks, on preemption or on the memory there is
// (tests/laws/batch_never_changes_tokens).
//
// Owns       the KV cache, its pages, the scheduler, the buffers of a step.
// Borrows    the policy model (weights change only while the engine is idle), StopText, HiddenTap,
//            Speculation.
// Not here   who runs next (scheduler.h), how a token is chosen (token_sampler.h).
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

#include "kv/kv_cache.h"
#include "kv/page_pool.h"
#include "model/policy_model.h"
#include "rollout/engine_options.h"
#include "rollout/hidden_tap.h"
#include "rollout/scheduler.h"
#include "rollout/speculation.h"
#include "rollout/stop_text.h"
#include "rollout/token_sampler.h"

namespace tlt::rollout {

// Counted since the engine was made.
struct EngineStats {
  int64_t steps = 0;
  int64_t rows = 0;           // tokens that went through the model
  int64_t repeated_rows = 0;  // of them, computed again after a preemption
  int64_t prompt_rows = 0;    // of them, of prompts
  int64_t tokens = 0;         // of responses
  int64_t preemptions = 0;
  int64_t running = 0;  // now
  int64_t waiting = 0;  // now
  int64_t pages = 0;
  int64_t peak_pages = 0;
  int64_t kv_bytes = 0;  // of all pages
  double schedule_seconds = 0;
  double forward_seconds = 0;
  double sample_seconds = 0;
  // batch_sizes[i]: steps with 2^i .. 2^(i+1) - 1 running sequences; the last one and more.
  std::array<int64_t, 12> batch_sizes = {};
};

class Engine {
 public:
  // `stop_text` is needed for requests with stop texts, `tap` may be null; all outlive the engine.
  // `speculation`: guesses ahead of the model; null: plain decoding. The same tokens either way.
  Engine(const model::PolicyModel& model, const EngineOptions& options,
         const StopText* stop_text = nullptr, HiddenTap* tap = nullptr,
         Speculation* speculation = nullptr);
  ~Engine();

  // Adds a group to the end of the line. InputError when it can never be served: an empty prompt,
  // one longer than the model's positions, or a response that does not fit into kv_memory_bytes
  // (the message says what does). A response that meets the end of the model's positions finishes
  // there, with kLength.
  void submit(Group group);

  // The same with responses that another engine began and gave up (kCancelled): they go on, and end
  // as they would have there. Of `group`, samples and first_sample are theirs. The tap is offered
  // all their states, from the prompt on. REQUIRES: none of them is unfinished here.
  void resume(Group group, std::vector<Response> begun);

  // One forward pass and the tokens it gives; false when nothing is unfinished.
  bool step();

  // What finished since the last call, in the order it finished.
  std::vector<Response> take_finished();

  // Between steps: the response ends with the tokens it has, as kCancelled. False when there is
  // none such.
  bool cancel(uint32_t prompt_id, uint32_t sample) { return scheduler_.cancel(prompt_id, sample); }
  void cancel_all() { scheduler_.cancel_all(); }

  // Between steps: what a response has so far; empty when it does not run. Valid until the next
  // step.
  std::span<const int32_t> tokens_so_far(uint32_t prompt_id, uint32_t sample) const;

  // How many more sequences could be submitted and start with the next step.
  int64_t room() const { return scheduler_.room(); }
  // Of them, how many would hardly slow the unfinished ones down: what the tuner of speculation
  // knows of costs; 0 where there is none. REQUIRES: some are unfinished.
  int64_t room_at_no_cost() const;
  // What is running or waiting; looks at each of them.
  Unfinished unfinished() const { return scheduler_.unfinished(); }
  EngineStats stats() const;

  // Throws Error when a page is held by none of the unfinished sequences; after the last one, when
  // any is held. Slow.
  void check_invariants() const { scheduler_.check_invariants(); }
  void check_idle_invariants() const;

 private:
  void check_input(const Group& group) const;
  std::shared_ptr<GroupState> make_state(Group group) const;
  void begin_rollout();
  // What was committed, to those who learn from it.
  void offer(const StepPlan& plan, const TargetStates& states);
  void offer_begun(const Work& work, const ops::Segment& segment, const TargetStates& states);
  void report(const StepPlan& plan, std::span<const Drawn> drawn, const TargetStates& states);
  void count(const StepPlan& plan);

  const model::PolicyModel& model_;
  const StopText* stop_text_;
  HiddenTap* tap_;
  Speculation* speculation_;
  kv::KvCache cache_;
  kv::PagePool pool_;
  Scheduler scheduler_;
  TokenSampler sampler_;
  std::unique_ptr<model::Activations> activations_;
  EngineStats stats_;
};

}  // namespace tlt::rollout
