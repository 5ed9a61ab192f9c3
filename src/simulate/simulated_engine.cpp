// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulated_engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random_block.h"
#include "ops/batch.h"

namespace tlt::simulate {
namespace {

constexpr double kDone = 1e-6;  // tokens; sums of fractions are not exact
// A tuner that knows nothing learns from each step: after this many the stride grows by one, and a
// stride above kLearnedStride faster, so that any is reached as soon as that one.
constexpr int64_t kExactDecisions = 32;
// With a longer stride it learns from every n-th decision, as often as if each were so long.
constexpr int64_t kLearnedStride = 8;
constexpr int64_t kTunerRows = 2048;
const drafter::Calibration kTrue;               // the trees have the true probabilities
constexpr uint32_t kDraftStream = 0x51u << 24;  // a prompt id that no workload has

// Likely suffix drafts are chains, their most probable ones; the product's are trees.
drafter::Strategy strategy_of(const speculation::Arm& arm) {
  if (arm.kind != "suffix") return arm.strategy;
  return {arm.strategy.depth, 1, std::min(arm.strategy.verify, arm.strategy.depth + 1)};
}

bool drafts_suffixes(const Way& way) {
  return std::ranges::find(way.drafters, "suffix") != way.drafters.end();
}

}  // namespace

SimulatedEngine::SimulatedEngine(const Setup& setup)
    : setup_(setup),
      scratch_(setup.scratch),
      prompt_share_(static_cast<double>(setup.options.prompt_length) /
                    static_cast<double>(setup.options.n)) {
  if (setup.replays_suffixes && drafts_suffixes(setup.way))
    suffixes_ = std::make_unique<SuffixReplay>(setup.options.n, setup.options.max_response_length);
  if (!setup.way.drafters.empty() && !setup.way.fixed)
    tuner_ = std::make_unique<speculation::Tuner>(
        setup.way.tuning,
        speculation::Tuner::Setup{
            .kinds = setup.way.drafters,
            .costs = setup.table,
            .max_rows = std::min(kTunerRows, setup.options.max_num_batched_tokens),
            .seed = static_cast<uint64_t>(setup.options.seed)});
}

double SimulatedEngine::kv_of(const SimulatedSequence& sequence) const {
  return prompt_share_ + sequence.generated;
}

void SimulatedEngine::submit(const std::vector<SimulatedSequence>& sequences) {
  for (const SimulatedSequence& sequence : sequences) queue_.push(sequence);
}

std::vector<SimulatedSequence> SimulatedEngine::take_unfinished() {
  std::vector<SimulatedSequence> all = queue_.take_all();
  kv_tokens_ = 0;
  if (suffixes_)
    for (const SimulatedSequence& it : all) suffixes_->end(it);
  return all;
}

void SimulatedEngine::new_weights() {
  if (tuner_) tuner_->new_weights();
  if (suffixes_) suffixes_->new_weights();
}

cluster::WorkerLoad SimulatedEngine::load() {
  cluster::WorkerLoad load{.sequences = unfinished()};
  double tokens = 0, most = 0;
  const auto count = [&](const SimulatedSequence& it) {
    tokens += static_cast<double>(setup_.options.prompt_length) + it.generated;
    most = std::max(most, static_cast<double>(setup_.options.max_response_length) - it.generated);
  };
  std::ranges::for_each(queue_.running(), count);
  std::ranges::for_each(queue_.waiting(), count);
  load.tokens = std::llround(tokens);
  load.remaining = std::llround(most);
  if (tuner_ && !queue_.running().empty()) {
    scratch_.decoding.clear();
    for (SimulatedSequence& it : queue_.running()) scratch_.decoding.push_back(&it);
    load.room = tuner_->spare_capacity(tuner_load());
  }
  return load;
}

// As Scheduler::admit: when it and all running sequences can grow by a page.
void SimulatedEngine::admit() {
  const size_t before = queue_.running().size();
  double tokens = kv_tokens_ + static_cast<double>(before) * ops::kPageSlots;
  queue_.admit(setup_.options.max_num_seqs, [&](const SimulatedSequence& next) {
    tokens += kv_of(next) + ops::kPageSlots;
    return tokens <= static_cast<double>(setup_.kv_tokens);
  });
  for (const SimulatedSequence& it : queue_.running().subspan(before)) kv_tokens_ += kv_of(it);
}

double SimulatedEngine::step(double neighbours) {
  neighbours_ = neighbours;
  admit();
  if (queue_.running().empty()) return 0;
  const double tokens_before = counters_.tokens;
  scratch_.decoding.clear();
  double to_prefill = 0;
  for (SimulatedSequence& it : queue_.running())
    if (it.to_prefill > 0)
      to_prefill += it.to_prefill;
    else
      scratch_.decoding.push_back(&it);
  const double rows =
      static_cast<double>(setup_.options.max_num_batched_tokens - std::ssize(scratch_.decoding));
  double seconds = to_prefill > 0 ? prefill(std::min(to_prefill, std::max(rows, 1.0))) : 0;
  if (scratch_.decoding.empty())
    ++counters_.steps;
  else
    seconds = decode(to_prefill > 0, seconds);
  seconds *= setup_.slowness;
  counters_.seconds += seconds;
  last_seconds_ = seconds;
  last_tokens_ = counters_.tokens - tokens_before;
  preempt();
  return seconds;
}

double SimulatedEngine::prefill(double rows) {
  counters_.prefilled += rows;
  const double seconds = setup_.costs.prefill(rows, neighbours_);
  for (SimulatedSequence& it : queue_.running()) {
    const double part = std::min(it.to_prefill, rows);
    it.to_prefill -= part;
    rows -= part;
  }
  // A pass of its own also reads the weights.
  return seconds + (scratch_.decoding.empty() ? setup_.costs.forward(1, 1, 0, neighbours_) : 0);
}

speculation::Load SimulatedEngine::tuner_load() const {
  double context = 0;
  speculation::Load load(std::ssize(scratch_.decoding));
  load.positions = {};
  for (const SimulatedSequence* it : scratch_.decoding) {
    context += static_cast<double>(setup_.options.prompt_length) + it->generated;
    ++load.positions[speculation::position_bucket(static_cast<int64_t>(it->generated))];
  }
  load.context = context / static_cast<double>(load.batch);
  return load;
}

speculation::Arm SimulatedEngine::choose(const speculation::Load& load) {
  if (tuner_) return tuner_->choose(load);
  return setup_.way.fixed ? speculation::Arm{setup_.way.drafters.front(), *setup_.way.fixed}
                          : speculation::Arm{};
}

void SimulatedEngine::draft(const speculation::Arm& arm, const speculation::Load& load) {
  scratch_.drafts.clear();
  scratch_.requests = 0;
  if (arm.is_off()) return;
  size_t count = scratch_.decoding.size();
  if (tuner_ && tuner_->is_exploration())
    count = std::min(count, static_cast<size_t>(speculation::kExplorationSequences));
  scratch_.requests = count;
  scratch_.trees.clear();
  const bool has_model = arm.kind == "eagle";
  if (suffixes_ && !has_model) return draft_replayed(arm, count, load);
  const double rate = has_model ? draft_acceptance_ : setup_.options.suffix_acceptance;
  draft_likely(arm, has_model ? count : put_found_first(count), rate);
  if (!has_row_budget()) return;
  const BudgetKey key{arm, load.positions, scratch_.drafts.size(), rate};
  if (key != budget_key_) split_budget(load, kTrue);
  budget_key_ = key;
  for (size_t i = 0; i < scratch_.drafts.size(); ++i) scratch_.drafts[i].nodes = keep_[i];
}

bool SimulatedEngine::has_row_budget() const {
  return tuner_ && !scratch_.trees.empty() && tuner_->tokens_per_second() > 0;
}

// The same for all sequences at a position.
void SimulatedEngine::draft_likely(const speculation::Arm& arm, size_t count, double rate) {
  std::array<const LikelyTree*, speculation::kPositions> trees = {};
  for (size_t i = 0; i < count; ++i) {
    const size_t position =
        speculation::position_bucket(static_cast<int64_t>(scratch_.decoding[i]->generated));
    const double acceptance = rate * setup_.options.acceptance_by_position[position];
    const LikelyTree*& tree = trees[position];
    if (!tree) tree = &setup_.trees.find(strategy_of(arm), acceptance);
    scratch_.drafts.push_back({tree, acceptance, tree->tree.size()});
    scratch_.trees.push_back(&tree->tree);
  }
}

// Puts the sequences with a draft first.
void SimulatedEngine::draft_replayed(const speculation::Arm& arm, size_t count,
                                     const speculation::Load& load) {
  const size_t found = suffixes_->propose(std::span(scratch_.decoding).first(count), arm.strategy);
  keep_.clear();
  for (size_t i = 0; i < found; ++i) {
    scratch_.trees.push_back(&suffixes_->tree(i));
    keep_.push_back(suffixes_->tree(i).size());
  }
  if (has_row_budget()) split_budget(load, suffixes_->calibration());
  budget_key_ = {};
  for (size_t i = 0; i < found; ++i)
    scratch_.drafts.push_back(
        {.nodes = keep_[i], .verified = suffixes_->verify(i, keep_[i], *scratch_.decoding[i])});
}

// Of the first `count` sequences that decode those for which suffix lookup finds something; returns
// how many these are.
size_t SimulatedEngine::put_found_first(size_t count) {
  const double rate = setup_.options.suffix_draft_rate;
  if (rate >= 1) return count;
  const auto begin = scratch_.decoding.begin(),
             end = std::partition(begin, begin + static_cast<std::ptrdiff_t>(count),
                                  [&](const SimulatedSequence*) { return next_uniform() < rate; });
  return static_cast<size_t>(end - begin);
}

void SimulatedEngine::split_budget(const speculation::Load& load,
                                   const drafter::Calibration& calibration) {
  keep_.resize(scratch_.trees.size());
  speculation::split_rows({.trees = scratch_.trees,
                           .sequences = load.batch,
                           .calibration = calibration,
                           .costs = setup_.table,
                           .tokens_per_second = tuner_->tokens_per_second(),
                           .context = load.context,
                           .max_rows = std::max(kTunerRows, load.batch)},
                          keep_, scratch_.rows);
}

double SimulatedEngine::tokens_of(size_t decoding) const {
  return decoding < scratch_.drafts.size() ? scratch_.drafts[decoding].tokens() : 1;
}

// Until the first sequence ends or the KV cache is full. Without a choice to make, any number,
// unless others may end the step or change its time.
int64_t SimulatedEngine::stride(bool has_prompt_rows) const {
  if (has_prompt_rows || suffixes_ || (tuner_ && tuner_->is_exploration())) return 1;
  const int64_t growth = std::max(kLearnedStride, setup_.options.stride),
                most = std::min(setup_.options.stride,
                                1 + decisions_ * growth / (kLearnedStride * kExactDecisions));
  const bool is_bounded =
      tuner_ || setup_.way.is_partial || !setup_.options.bench_forward_alone.empty();
  double steps = is_bounded ? static_cast<double>(most) : 1e9, tokens = 0;
  for (size_t i = 0; i < scratch_.decoding.size(); ++i) {
    steps = std::min(steps, scratch_.decoding[i]->left() / tokens_of(i));
    tokens += tokens_of(i);
  }
  steps = std::min(steps, (static_cast<double>(setup_.kv_tokens) - kv_tokens_) / tokens);
  return std::max<int64_t>(1, std::llround(std::floor(steps + kDone)));
}

double SimulatedEngine::decode(bool has_prompt_rows, double prompt_seconds) {
  speculation::Load load = tuner_load();
  const speculation::Arm arm = choose(load);
  draft(arm, load);
  const int64_t steps = stride(has_prompt_rows);
  const auto count = static_cast<double>(scratch_.decoding.size());
  double nodes = 0, tokens = 0, drafted_tokens = 0;
  for (size_t i = 0; i < scratch_.decoding.size(); ++i) {
    tokens += tokens_of(i);
    if (i >= scratch_.drafts.size()) continue;
    nodes += scratch_.drafts[i].nodes;
    drafted_tokens += tokens_of(i);
  }
  // The context in the middle of the steps.
  load.context += static_cast<double>(steps - 1) / 2 * tokens / count;
  const double drafting =
      scratch_.requests == 0
          ? 0
          : setup_.costs.drafting(strategy_of(arm), static_cast<double>(scratch_.requests),
                                  arm.kind == "eagle");
  const double seconds = setup_.costs.forward(count + nodes, count, load.context, neighbours_) +
                         drafting + prompt_seconds;
  ++decisions_;
  const int64_t interval = std::max<int64_t>(1, steps / kLearnedStride);
  if (tuner_ && (tuner_->is_exploration() || decisions_ % interval == 0))
    learn(arm, {.batch = load.batch,
                .context = load.context,
                .trees = {},
                .seconds = seconds * setup_.slowness,
                .draft_seconds = drafting * setup_.slowness,
                .has_prompt_rows = has_prompt_rows});
  const auto repeats = static_cast<double>(steps);
  counters_.steps += steps;
  counters_.speculative_steps += scratch_.requests == 0 ? 0 : steps;
  counters_.draft_model_steps += scratch_.requests == 0 || arm.kind != "eagle" ? 0 : steps;
  counters_.sequence_steps += repeats * count;
  counters_.speculative_sequence_steps += repeats * static_cast<double>(scratch_.drafts.size());
  counters_.speculative_tokens += repeats * drafted_tokens;
  append(repeats);
  return seconds * repeats;
}

// Adds the tokens of `steps` engine steps.
void SimulatedEngine::append(double steps) {
  for (size_t i = 0; i < scratch_.decoding.size(); ++i) {
    const double more = std::min(steps * tokens_of(i), scratch_.decoding[i]->left());
    scratch_.decoding[i]->generated += more;
    kv_tokens_ += more;
    counters_.tokens += more;
  }
  counters_.peak_kv_tokens = std::max(counters_.peak_kv_tokens, kv_tokens_);
  queue_.erase_running_if([&](const SimulatedSequence& it) {
    if (it.left() > kDone) return false;
    kv_tokens_ -= kv_of(it);
    if (suffixes_) suffixes_->end(it);
    finished_.push_back(it);
    return true;
  });
}

void SimulatedEngine::learn(const speculation::Arm& arm, speculation::StepOutcome outcome) {
  scratch_.verified.clear();
  outcome.tokens = outcome.batch;
  for (size_t i = 0; i < scratch_.drafts.size(); ++i) {
    scratch_.verified.push_back(scratch_.drafts[i].likely
                                    ? sample(scratch_.drafts[i], *scratch_.decoding[i])
                                    : scratch_.drafts[i].verified);
    outcome.tokens += scratch_.verified.back().accepted_depth();
  }
  for (size_t i = scratch_.drafts.size(); i < scratch_.requests; ++i)
    scratch_.verified.push_back(
        {.nodes = {}, .position = static_cast<int64_t>(scratch_.decoding[i]->generated)});
  outcome.trees = scratch_.verified;
  if (suffixes_ && arm.kind != "eagle") suffixes_->record(scratch_.verified);
  tuner_->record(arm, outcome);
}

drafter::VerifiedTree SimulatedEngine::sample(const Draft& draft,
                                              const SimulatedSequence& sequence) {
  return {.nodes = std::span(draft.likely->tree.nodes()).first(static_cast<size_t>(draft.nodes)),
          .accepted = draft.likely->sample(draft.nodes, draft.acceptance,
                                           [this] { return next_uniform(); }),
          .position = static_cast<int64_t>(sequence.generated)};
}

void SimulatedEngine::preempt() {
  while (queue_.running().size() > 1 && kv_tokens_ > static_cast<double>(setup_.kv_tokens)) {
    SimulatedSequence& youngest = queue_.preempt_youngest();
    kv_tokens_ -= kv_of(youngest);
    youngest.to_prefill = static_cast<double>(setup_.options.prompt_length) + youngest.generated;
    ++counters_.preemptions;
  }
}

double SimulatedEngine::refill() {
  fill_uniforms(
      static_cast<uint64_t>(setup_.options.seed),
      {.step = static_cast<uint32_t>(setup_.worker), .prompt = kDraftStream, .position = drawn_},
      uniforms_);
  drawn_ += static_cast<uint32_t>(uniforms_.size());
  next_uniform_ = 1;
  return uniforms_.front();
}

}  // namespace tlt::simulate
