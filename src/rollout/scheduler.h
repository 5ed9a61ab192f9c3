// Scheduler: decides which sequences take part in the next engine step, and allocates their pages.
//
// First come, first served (fcfs_queue.h). When the pages run out, the youngest running sequence is
// preempted: it keeps its tokens, releases its pages and is recomputed later. A group's prompt is
// computed by the first of its samples that runs; its pages are kept while a sample of it runs.
//
// Owns       the waiting and the running sequences; the prefix cache (shared_prefixes.h).
// Borrows    kv::PagePool, to allocate and release pages.
// Not here   the forward pass (engine.h); sampling tokens (token_sampler.h).
// Threading  engine thread only; no locks.
// Invariant  a sequence is in exactly one of: waiting, running, finished.
//
//   const StepPlan& plan = scheduler.plan();
//   … run the plan …
//   scheduler.commit(results);                 // the sampled tokens of plan.sample_requests
//   … use the outcome of the plan …
//   scheduler.end_step();
//   for (Response& response : scheduler.take_finished()) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "rollout/engine_options.h"
#include "rollout/fcfs_queue.h"
#include "rollout/shared_prefixes.h"
#include "rollout/step_plan.h"

namespace tlt::rollout {

// Sums over all sequences that are running or waiting.
struct Unfinished {
  int64_t sequences = 0;
  int64_t tokens = 0;     // tokens so far, prompts included
  int64_t remaining = 0;  // largest number of tokens that one of them may still get
};

class Scheduler {
 public:
  Scheduler(const EngineOptions& options, kv::PagePool& pool);

  // Adds the group's samples to the end of the queue. With `responses`, adds only those samples,
  // which continue after the tokens they have. REQUIRES: pages_to_finish() <= pool's pages.
  void submit(const std::shared_ptr<GroupState>& group, std::vector<Response> responses = {});

  // Plans the next step; empty when nothing is unfinished. Valid until the next non-const call. A
  // plan that was not run may be planned again.
  const StepPlan& plan();

  // Commits the planned step after it ran: results[i] is that of sample_requests[i]. Afterwards the
  // plan tells which rows of its trees were kept; plan and sequences stay valid until end_step().
  void commit(std::span<const SampleResult> results);
  void end_step();

  // Ends sequences between steps; false when there is no such unfinished sequence.
  bool cancel(uint32_t prompt_id, uint32_t sample);
  void cancel_all();

  // Responses finished since the last call, in the order they finished.
  std::vector<Response> take_finished();

  // The weights have changed: empties the prefix cache. REQUIRES: nothing is unfinished.
  void new_weights();

  // Oldest first.
  std::span<const std::unique_ptr<Sequence>> running_sequences() const { return queue_.running(); }
  int64_t running() const { return std::ssize(queue_.running()); }
  int64_t waiting() const { return std::ssize(queue_.waiting()); }
  // Number of sequences that could be submitted and start with the next step; 0 while one waits for
  // pages.
  int64_t free_slots() const { return queue_.free_slots(options_.max_running); }
  Unfinished unfinished() const;
  int64_t preemptions() const { return preemptions_; }
  int64_t peak_pages() const { return peak_pages_; }
  const PrefixCacheStats& prefix_cache_stats() const { return prefixes_.stats(); }

  // Throws Error when a page's reference count differs from its holders, when a queue is out of
  // order, or when the prefix cache and the pages differ. Slow: for tests.
  void check_invariants() const;

 private:
  void admit();
  int64_t reserved_pages() const;
  int64_t pages_to_run(const Sequence& sequence, bool first_of_group) const;
  bool first_of_group(size_t index) const;

  void plan_prompt(size_t index);
  void plan_response(size_t index);
  bool try_plan_tree(Sequence& sequence, int32_t root);
  void add_request(int64_t row, Sequence& sequence, bool is_tree = false);
  void share_prompt(Sequence& sequence);
  int32_t take_rows(int32_t wanted);

  // Allocates pages until `pages` holds this many positions, and preempts younger sequences if
  // needed. False: the sequence at `index` is itself the youngest and has been preempted.
  bool try_extend(std::vector<ops::PageId>& pages, int64_t positions, size_t index);
  bool try_reclaim(size_t index);
  bool drop_idle_prompt();
  void preempt_youngest();
  bool has_youngest_running(const GroupState& group) const;

  void append(const SampleRequest& request, const SampleResult& result);
  void finish(Sequence& sequence, FinishReason reason);
  void remove_finished();
  void release(std::vector<ops::PageId>& pages);
  void release_prompt(GroupState& group);

  const EngineOptions options_;
  kv::PagePool& pool_;
  SharedPrefixes prefixes_;

  FcfsQueue<std::unique_ptr<Sequence>> queue_;
  std::vector<Response> finished_;
  bool waiting_finished_ = false;  // a finished sequence still waits in queue_

  StepPlan plan_;
  int64_t spare_rows_ = 0;  // rows of the step beyond one per sequence or prompt

  int64_t arrived_ = 0;  // sequences submitted since construction
  int64_t preemptions_ = 0;
  int64_t peak_pages_ = 0;
};

}  // namespace tlt::rollout
