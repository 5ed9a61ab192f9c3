// SimulatedEngine: one worker's engine in virtual time: continuous batching with chunked prefill, a
// KV cache that can run full, and speculation as the product's tuner decides.
//
// The queue is the scheduler's (rollout/fcfs_queue.h): the youngest sequence is preempted when the
// KV cache is full and computed again later. A step stands for up to `stride` engine steps with the
// same sequences and the same choice of the tuner (fewer while the tuner is new). Sequences get the
// expected number of tokens of their trees, so their progress is a fraction, and the tuner learns
// from sampled trees. With bench_suffix suffix drafts are those of the run's tokens: each step is
// simulated, and sequences get the tokens that are accepted of them.
//
// Simplified   the prompt is computed by the first sample of a group, and each sample has an n-th
//              of its KV cache; pages are not counted; the draft model's prefill takes no time.
//
// Owns       its sequences, its tuner, its suffix drafter.
// Borrows    cost model, likely draft trees, the memory of a step, the run's tokens.
// Threading  one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "cluster/messages.h"
#include "rollout/fcfs_queue.h"
#include "simulate/acceptance.h"
#include "simulate/cost_model.h"
#include "simulate/simulate_options.h"
#include "simulate/simulated_sequence.h"
#include "simulate/suffix_replay.h"
#include "simulate/ways.h"
#include "speculation/row_budget.h"
#include "speculation/tuner.h"

namespace tlt::simulate {

struct EngineCounters {
  double seconds = 0;
  int64_t steps = 0, speculative_steps = 0, draft_model_steps = 0;
  double tokens = 0, prefilled = 0;
  double sequence_steps = 0, speculative_sequence_steps = 0, speculative_tokens = 0;
  int64_t preemptions = 0;
  double peak_kv_tokens = 0;  // of any engine

  // What is summed.
  void visit(auto&& v) {
    v(seconds), v(steps), v(speculative_steps), v(draft_model_steps), v(tokens), v(prefilled),
        v(sequence_steps), v(speculative_sequence_steps), v(speculative_tokens), v(preemptions);
  }
  void add(const EngineCounters& more) {
    add_counters(*this, more);
    peak_kv_tokens = std::max(peak_kv_tokens, more.peak_kv_tokens);
  }
};

class SimulatedEngine {
  struct Draft {
    const LikelyTree* likely = nullptr;   // null: it is replayed
    double acceptance = 0;                // of a likely tree
    int32_t nodes = 0;                    // after the row budget
    drafter::VerifiedTree verified = {};  // if it is replayed

    double tokens() const {
      return likely ? likely->tokens[static_cast<size_t>(nodes)] : 1 + verified.accepted_depth();
    }
  };

 public:
  // What a step needs until it ends. Engines of one thread share it: each has a turn for every few
  // tokens, and would find memory of its own out of the caches.
  struct Scratch {
    // The sequences that decode. A drafter was asked for trees of the first `requests`, and `drafts`
    // has those of the first drafts.size().
    std::vector<SimulatedSequence*> decoding;
    size_t requests = 0;
    std::vector<Draft> drafts;
    std::vector<drafter::VerifiedTree> verified;
    std::vector<const drafter::DraftTree*> trees;  // of `drafts`
    speculation::RowScratch rows;
  };

  struct Setup {
    const SimulateOptions& options;
    const Way& way;
    const CostModel& costs;
    const speculation::CostTable& table;  // for the tuner
    DraftTrees& trees;
    Scratch& scratch;
    bool replays_suffixes = false;  // sequences have tokens
    int64_t worker = 0;
    int64_t kv_tokens = 0;
    double slowness = 1;  // factor of all times
  };
  explicit SimulatedEngine(const Setup& setup);

  // A group's sequences, or migrated ones.
  void submit(const std::vector<SimulatedSequence>& sequences);
  // Runs engine steps; returns their seconds. 0: there is nothing to do. `neighbours`: as
  // CostModel::forward().
  double step(double neighbours = 1);
  std::vector<SimulatedSequence> take_finished() { return std::exchange(finished_, {}); }
  std::vector<SimulatedSequence> take_unfinished();
  // The last step ends this much earlier: its worker is lost. Returns the tokens that it has not
  // generated, which are evenly distributed over its time.
  double cut(double seconds) {
    const double tokens = last_tokens_ * seconds / last_seconds_;
    counters_.seconds -= seconds;
    counters_.tokens -= tokens;
    return tokens;
  }

  // As FcfsQueue::free_slots.
  int64_t free_slots() const { return queue_.free_slots(setup_.options.max_num_seqs); }
  int64_t unfinished() const { return std::ssize(queue_.running()) + std::ssize(queue_.waiting()); }
  // What the worker reports to the coordinator.
  cluster::WorkerLoad load();

  void set_draft_acceptance(double acceptance) { draft_acceptance_ = acceptance; }
  void new_weights();
  EngineCounters take_counters() { return std::exchange(counters_, {}); }

 private:
  // While these are the same, so are the trees and nearly so what the row budget keeps of them.
  struct BudgetKey {
    speculation::Arm arm = {};
    std::array<int64_t, speculation::kPositions> positions = {};
    size_t trees = 0;
    double rate = 0;
    bool operator==(const BudgetKey&) const = default;
  };

  void admit();
  double prefill(double rows);
  double decode(bool has_prompt_rows, double prompt_seconds);
  void append(double steps);
  speculation::Load tuner_load() const;
  speculation::Arm choose(const speculation::Load& load);
  void draft(const speculation::Arm& arm, const speculation::Load& load);
  void draft_likely(const speculation::Arm& arm, size_t count, double rate);
  void draft_replayed(const speculation::Arm& arm, size_t count, const speculation::Load& load);
  size_t put_found_first(size_t count);
  void split_budget(const speculation::Load& load, const drafter::Calibration& calibration);
  bool has_row_budget() const;
  int64_t stride(bool has_prompt_rows) const;
  double tokens_of(size_t decoding) const;  // a step gives the sequence
  void learn(const speculation::Arm& arm, speculation::StepOutcome outcome);
  drafter::VerifiedTree sample(const Draft& draft, const SimulatedSequence& sequence);
  void preempt();
  double kv_of(const SimulatedSequence& sequence) const;
  double next_uniform() {
    return next_uniform_ < uniforms_.size() ? uniforms_[next_uniform_++] : refill();
  }
  double refill();

  const Setup setup_;
  Scratch& scratch_;
  const double prompt_share_;                  // KV tokens of the prompt for each sample
  std::unique_ptr<speculation::Tuner> tuner_;  // null: plain or fixed
  std::unique_ptr<SuffixReplay> suffixes_;     // null: likely trees
  BudgetKey budget_key_;                       // of the last split …
  std::vector<int32_t> keep_;                  // … and its result: nodes of each tree
  double draft_acceptance_ = 0;
  double neighbours_ = 1;
  std::array<double, 32> uniforms_ = {};  // drawn together, which takes a third of the time
  size_t next_uniform_ = uniforms_.size();
  uint32_t drawn_ = 0;
  int64_t decisions_ = 0;

  rollout::FcfsQueue<SimulatedSequence> queue_;
  std::vector<SimulatedSequence> finished_;
  double kv_tokens_ = 0;  // of those that run
  EngineCounters counters_;
  double last_seconds_ = 0, last_tokens_ = 0;  // of the last step
};

}  // namespace tlt::simulate
