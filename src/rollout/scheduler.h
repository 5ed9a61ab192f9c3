// Scheduler: decides which sequences take part in the next engine step, and gives them pages.
//
// The unfinished sequences stand in one line by age: the older run, the younger wait. A sequence
// that needs a page when none is free takes it from the youngest that runs, which goes back to the
// head of the waiting: it keeps its tokens and computes them again later. So the oldest always gets
// on, and every sequence becomes the oldest. A group's prompt is computed by the first of its
// samples that runs; its pages are kept while a sample of it runs.
//
// Owns       the waiting and the running sequences.
// Borrows    kv::PagePool, to take and give back pages.
// Not here   the forward pass (engine.h); choosing tokens (token_sampler.h).
// Threading  engine thread only; no locks.
// Invariant  a sequence is in exactly one of: waiting, running, finished.
// Invariant  everyone running is older than everyone waiting.
//
//   const StepPlan& plan = scheduler.plan();
//   … run the plan …
//   scheduler.commit(drawn);                   // the tokens of each of plan.draws
//   … look at what became of the plan …
//   scheduler.end_step();
//   for (Response& response : scheduler.take_finished()) …
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "rollout/engine_options.h"
#include "rollout/step_plan.h"

namespace tlt::rollout {

// Of all sequences that are running or waiting.
struct Unfinished {
  int64_t sequences = 0;
  int64_t tokens = 0;     // that they have, prompts included
  int64_t remaining = 0;  // that one of them may still get, at most
};

class Scheduler {
 public:
  Scheduler(const EngineOptions& options, kv::PagePool& pool);

  // Adds the group's samples to the end of the line, or those of them in `begun`, which go on with
  // the tokens they have. REQUIRES: pages_to_finish() <= pool's pages.
  void submit(std::shared_ptr<GroupState> group, std::vector<Response> begun = {});

  // The next step; empty when nothing is unfinished. Valid until the next call that is not const. A
  // plan that was not run may be made again.
  const StepPlan& plan();

  // The planned step was run: drawn[i] is what draws[i] gave. The plan says which rows of its trees
  // were kept, and stays as it is, as do the sequences, until end_step().
  void commit(std::span<const Drawn> drawn);
  void end_step();

  // Ends sequences between steps; false when there is no such unfinished sequence.
  bool cancel(uint32_t prompt_id, uint32_t sample);
  void cancel_all();

  // What finished since the last call, in the order it finished.
  std::vector<Response> take_finished();

  // By age.
  std::span<const std::unique_ptr<Sequence>> running_sequences() const { return running_; }
  int64_t running() const { return std::ssize(running_); }
  int64_t waiting() const { return std::ssize(waiting_); }
  // Sequences that could be submitted and start with the next step; none while one waits for pages.
  int64_t room() const;
  Unfinished unfinished() const;
  int64_t preemptions() const { return preemptions_; }
  int64_t peak_pages() const { return peak_pages_; }

  // Throws Error when a page is held by nobody, or by others than its holders, or the line is out
  // of order. Slow: for tests.
  void check_invariants() const;

 private:
  void admit();
  int64_t pages_promised() const;
  int64_t pages_to_run(const Sequence& sequence, bool first_of_group) const;
  bool first_of_group(size_t index) const;

  void plan_prompt(size_t index);
  void plan_response(size_t index);
  bool try_plan_tree(Sequence& sequence, int32_t root);
  void share_prompt(Sequence& sequence);
  int32_t take_rows(int32_t wanted);

  // Takes pages until `pages` holds so many positions, from younger sequences if need be. False:
  // the one at `index` is itself the youngest, and has been preempted.
  bool try_extend(std::vector<ops::PageId>& pages, int64_t positions, size_t index);
  bool try_reclaim(size_t index);
  bool drop_idle_prompt();
  void preempt_youngest();

  void append(const Draw& draw, const Drawn& drawn);
  void finish(Sequence& sequence, FinishReason reason);
  void remove_finished();
  void release(std::vector<ops::PageId>& pages);
  void release_prompt(GroupState& group);

  const EngineOptions options_;
  kv::PagePool& pool_;

  std::vector<std::unique_ptr<Sequence>> running_;  // by age
  std::deque<std::unique_ptr<Sequence>> waiting_;   // by age, all younger than those running
  std::vector<Response> finished_;
  bool short_of_pages_ = false;    // at the last plan() a slot was free and the pages were not
  bool waiting_finished_ = false;  // a waiting sequence has finished and is to be removed

  StepPlan plan_;
  int64_t spare_rows_ = 0;  // of the step being planned, beyond one row for everybody

  int64_t arrived_ = 0;  // sequences, ever
  int64_t preemptions_ = 0;
  int64_t peak_pages_ = 0;
};

}  // namespace tlt::rollout
