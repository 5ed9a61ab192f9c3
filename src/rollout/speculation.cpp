// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tlt::rollout {
namespace {

// Weights of the latest step in the moving averages of speed and of the cost factor.
constexpr double kRateShare = 0.1, kFactorShare = 0.05;
constexpr double kLeastFactor = 0.5, kMostFactor = 3;  // limit the influence of interrupted steps
constexpr const char* kMixed = "mixed";

// Adds its lifetime to a sum.
struct Timed {
  Timed(double& sum, const Clock& clock) : sum(sum), watch(clock) {}
  ~Timed() { sum += watch.seconds(); }
  double& sum;
  const Stopwatch watch;
};

}  // namespace

void DraftStats::add(const DraftStats& other) {
  steps += other.steps;
  trees += other.trees;
  drafted_tokens += other.drafted_tokens;
  accepted_tokens += other.accepted_tokens;
  for (size_t i = 0; i < kLevels; ++i) {
    drafted_at[i] += other.drafted_at[i];
    accepted_at[i] += other.accepted_at[i];
  }
  mixed_drafted += other.mixed_drafted;
  mixed_accepted += other.mixed_accepted;
  draft_seconds += other.draft_seconds;
  failed += other.failed;
}

Speculation::Speculation(std::unique_ptr<drafter::Drafter> drafter, drafter::Strategy strategy,
                         int64_t vocabulary)
    : arm_{std::string(drafter->kind()), strategy},
      vocabulary_(vocabulary),
      clock_(steady_clock()) {
  add(std::move(drafter));
}

Speculation::Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters,
                         drafter::Strategy strategy, int64_t vocabulary)
    : arm_{kMixed, strategy}, vocabulary_(vocabulary), clock_(steady_clock()) {
  for (std::unique_ptr<drafter::Drafter>& drafter : drafters) add(std::move(drafter));
  add_mixed();
}

Speculation::Speculation(std::vector<std::unique_ptr<drafter::Drafter>> drafters, Adaptive adaptive,
                         int64_t vocabulary)
    : adaptive_(std::move(adaptive)), vocabulary_(vocabulary), clock_(*adaptive_->clock) {
  for (std::unique_ptr<drafter::Drafter>& drafter : drafters) add(std::move(drafter));
  if (std::ranges::find(adaptive_->kinds, kMixed) != adaptive_->kinds.end()) add_mixed();
  TLT_CHECK(adaptive_->costs || adaptive_->measure_costs);
  if (adaptive_->costs) make_tuner();
}

Speculation::~Speculation() = default;

void Speculation::add(std::unique_ptr<drafter::Drafter> drafter) {
  reads_states_ = reads_states_ || drafter->reads_states();
  members_.push_back({std::move(drafter), {}, {}});
}

void Speculation::add_mixed() {
  std::vector<drafter::Drafter*> drafters;
  for (const Member& member : members_) drafters.push_back(member.drafter.get());
  const auto try_propose = [this](size_t drafter, std::span<const drafter::DraftRequest> requests) {
    Member& member = members_[drafter];
    guard(member, [&](drafter::Drafter& it) {
      it.propose(requests);
      for (const drafter::DraftRequest& request : requests) check(request);
    });
    return member.stats.failed == 0;
  };
  auto mixed = std::make_unique<drafter::MixedDrafter>(std::move(drafters), try_propose);
  mixed_ = mixed.get();
  add(std::move(mixed));
}

// A mixed drafter of a single working drafter is that drafter.
bool Speculation::competes(const Member& member) const {
  const auto is_named = [&](const Member& one) {
    const std::vector<std::string>& kinds = adaptive_->kinds;
    return kinds.empty() || std::ranges::find(kinds, one.drafter->kind()) != kinds.end();
  };
  if (member.stats.failed || !is_named(member)) return false;
  if (member.drafter.get() != mixed_) return true;
  std::vector<const Member*> working;
  for (const Member& one : members_)
    if (one.drafter.get() != mixed_ && !one.stats.failed) working.push_back(&one);
  return working.size() > 1 || (working.size() == 1 && !is_named(*working.front()));
}

// Makes a tuner for the drafters that have not failed; null when there are none.
void Speculation::make_tuner() {
  std::vector<std::string> kinds;
  for (const Member& member : members_)
    if (competes(member)) kinds.emplace_back(member.drafter->kind());
  tuner_.reset();
  if (!kinds.empty())
    tuner_ = std::make_unique<speculation::Tuner>(
        adaptive_->options, speculation::Tuner::Setup{.kinds = std::move(kinds),
                                                      .costs = *adaptive_->costs,
                                                      .max_rows = adaptive_->max_rows,
                                                      .seed = adaptive_->seed});
}

void Speculation::measure_if_due() {
  if (!adaptive_ || adaptive_->costs || unmeasured_seconds_ < kMeasureAfterSeconds) return;
  adaptive_->costs = adaptive_->measure_costs();
  make_tuner();
}

template <class Call>
void Speculation::guard(Member& member, const Call& call) {
  if (member.stats.failed) return;
  try {
    call(*member.drafter);
  } catch (const std::exception& error) {
    member.stats.failed = 1;
    has_new_failure_ = true;
    log_warning("the {} drafter failed and is disabled; decoding continues without it: {}",
                member.drafter->kind(), error.what());
  }
}

// Calls every drafter that has not failed.
template <class Call>
void Speculation::for_each_drafter(const Call& call) {
  for (Member& member : members_) guard(member, call);
}

// Passes the logged states to the drafters: of all sequences, but in an exploration step of the
// requested ones only.
void Speculation::deliver_states() {
  const auto is_wanted = [&](drafter::SequenceId id) {
    return !is_exploration() ||
           std::ranges::find(requests_, id, &drafter::DraftRequest::id) != requests_.end();
  };
  log_.take(is_wanted, [&](drafter::SequenceId id, int64_t first, const TargetStates& states,
                           std::span<const int32_t> rows) {
    for_each_drafter([&](drafter::Drafter& drafter) {
      if (drafter.reads_states())
        drafter.read_states(id, first, states.seen_by(drafter.layers()), rows);
    });
  });
}

// The drafter of the next step, or null.
Speculation::Member* Speculation::choose() {
  if (adaptive_) {
    if (std::exchange(has_new_failure_, false) && adaptive_->costs) make_tuner();
    arm_ = tuner_ ? tuner_->choose(load_) : speculation::Arm{};
  }
  if (arm_.is_off()) return nullptr;
  const auto drafts = [&](const Member& member) {
    return !member.stats.failed && member.drafter->kind() == arm_.kind;
  };
  const auto member = std::ranges::find_if(members_, drafts);
  return member == members_.end() ? nullptr : &*member;
}

void Speculation::check(const drafter::DraftRequest& request) {
  const drafter::DraftTree& tree = *request.tree;
  TLT_CHECK(tree.size() < request.strategy.verify, "a tree of ", tree.size(), " nodes for ",
            to_string(request.strategy));
  TLT_CHECK(tree.is_depth_first(), "a tree that is not in depth-first order");
  for (const drafter::DraftNode& node : tree.nodes()) {
    TLT_CHECK(node.depth <= request.strategy.depth, "a node of depth ", node.depth, " for ",
              to_string(request.strategy));
    TLT_CHECK(node.token >= 0 && node.token < vocabulary_, "token ", node.token,
              " of a vocabulary of ", vocabulary_);
  }
}

void Speculation::propose(std::span<const std::unique_ptr<Sequence>> running) {
  measure_if_due();
  step_.restart();
  const Timed timed(seconds_, clock_);
  propose_trees(running);
}

void Speculation::propose_trees(std::span<const std::unique_ptr<Sequence>> running) {
  requests_.clear();
  verified_.clear();
  batch_ = tokens_ = 0;
  draft_seconds_ = 0;
  load_ = {0};
  for (const auto& sequence : running) {
    sequence->draft.clear();
    if (!sequence->decodes()) continue;
    ++load_.batch;
    load_.context += static_cast<double>(sequence->computed);
  }
  load_.context /= static_cast<double>(std::max<int64_t>(1, load_.batch));
  drafting_ = load_.batch > 0 ? choose() : nullptr;
  if (!drafting_) return;
  uniforms_.clear();
  uniforms_.reserve(static_cast<size_t>(load_.batch * arm_.strategy.depth));  // keep views valid
  const Stopwatch watch(clock_);
  for (const auto& sequence : running) {
    if (!sequence->decodes()) continue;
    // No tree starts at a response's last token, so a path is shorter than what remains.
    drafter::Strategy strategy = arm_.strategy;
    strategy.depth = std::min(strategy.depth, sequence->remaining() - 1);
    if (strategy.depth < 1) continue;
    const GroupState& group = *sequence->group;
    requests_.push_back({.id = {group.request.prompt_id, sequence->sample},
                         .prompt = group.request.tokens,
                         .response = sequence->tokens,
                         .strategy = strategy,
                         .tree = &sequence->draft,
                         .draws = uniforms_of(*sequence, strategy.depth)});
  }
  if (is_exploration()) limit_exploration();
  deliver_states();
  guard(*drafting_, [&](drafter::Drafter& drafter) {
    if (!requests_.empty()) drafter.propose(requests_);
    for (const drafter::DraftRequest& request : requests_) check(request);
  });
  if (drafting_->stats.failed) {
    for (const drafter::DraftRequest& request : requests_) request.tree->clear();
    drafting_ = nullptr;
    return;
  }
  if (adaptive_) prune_trees();
  draft_seconds_ = watch.seconds();
  drafting_->stats.draft_seconds += draft_seconds_;
  ++drafting_->stats.steps;
}

// Empty with FastRL's rule: its token depends on the draft tokens, which therefore must not depend
// on its uniform.
drafter::SharedUniforms Speculation::uniforms_of(const Sequence& sequence, int64_t tokens) {
  const ops::SamplingRule& rule = sequence.group->rule;
  if (target_only_ || rule.temperature <= 0) return {};
  const size_t first = uniforms_.size();
  for (int64_t i = 0; i < tokens; ++i)
    uniforms_.push_back(sequence.uniform_at(static_cast<size_t>(i)));
  return {std::span(uniforms_).subspan(first), rule};
}

// Exploration steps draft only for the sequences with the shortest responses.
void Speculation::limit_exploration() {
  if (std::ssize(requests_) <= speculation::kExplorationSequences) return;
  const auto few = requests_.begin() + speculation::kExplorationSequences;
  std::ranges::nth_element(requests_, few, {}, [](const drafter::DraftRequest& request) {
    return std::pair(request.response.size(), request.id);
  });
  requests_.erase(few, requests_.end());
}

// Keeps the nodes that are worth their token row.
void Speculation::prune_trees() {
  if (tokens_per_second_ <= 0 || requests_.empty()) return;
  trees_.clear();
  for (const drafter::DraftRequest& request : requests_) trees_.push_back(request.tree);
  keep_.resize(trees_.size());
  drafting_->budget.split({.trees = trees_,
                           .tokens_per_second = tokens_per_second_ * cost_factor_,
                           .context = load_.context,
                           .max_rows = std::max(adaptive_->max_rows, std::ssize(trees_))},
                          *adaptive_->costs, keep_);
  for (size_t i = 0; i < keep_.size(); ++i)
    if (keep_[i] < requests_[i].tree->size()) requests_[i].tree->keep_best(keep_[i]);
}

Layers Speculation::layers() const {
  Layers layers;
  for (const Member& member : members_) layers = longer_of(layers, member.drafter->layers());
  return layers;
}

void Speculation::read_prompt(uint32_t prompt_id, int32_t position, const TargetStates& states,
                              std::span<const int32_t> tokens) {
  if (!reads_states_) return;
  for_each_drafter([&](drafter::Drafter& drafter) {
    if (drafter.reads_states())
      drafter.read_prompt(prompt_id, position, states.seen_by(drafter.layers()), tokens);
  });
}

void Speculation::read_resumed(const Sequence& sequence, int32_t first, int32_t count, int32_t row,
                               const TargetStates& states) {
  if (!reads_states_) return;
  rows_.clear();
  for (int32_t i = 0; i < count; ++i) rows_.push_back(row + i);
  log_.add({sequence.group->request.prompt_id, sequence.sample}, first, states, rows_);
}

void Speculation::committed(const SampleRequest& draw, const SampleResult& drawn, size_t tokens,
                            const TargetStates& states) {
  if (!has_commits_) commits_.restart();
  has_commits_ = true;
  const Sequence& sequence = *draw.sequence;
  if (reads_states_ && sequence.state != Sequence::State::kFinished) {
    rows_.clear();
    for (size_t i = 0; i < tokens; ++i)
      rows_.push_back(draw.row + (draw.is_tree ? drawn.path[i] : 0));
    log_.add({sequence.group->request.prompt_id, sequence.sample},
             std::ssize(sequence.tokens) - std::ssize(rows_), states, rows_);
  }
  const bool is_first = sequence.target_forwards == 1;
  if (is_first) return;
  ++batch_;
  tokens_ += static_cast<int64_t>(tokens);
  if (!drafting_) return;
  if (!draw.is_tree) {
    if (sequence.draft.empty() && was_requested(sequence)) verified_.push_back({});
    return;
  }
  const drafter::VerifiedTree tree{sequence.draft.nodes(), drawn.path[tokens - 1] - 1};
  verified_.push_back(tree);
  count(tree, tokens);
}

bool Speculation::was_requested(const Sequence& sequence) const {
  return !is_exploration() || std::ranges::find(requests_, &sequence.draft,
                                                &drafter::DraftRequest::tree) != requests_.end();
}

void Speculation::count(const drafter::VerifiedTree& tree, size_t tokens) {
  DraftStats& stats = drafting_->stats;
  ++stats.trees;
  stats.drafted_tokens += std::ssize(tree.nodes);
  stats.accepted_tokens += static_cast<int64_t>(tokens) - 1;
  int32_t depth = 0;
  for (const drafter::DraftNode& node : tree.nodes) depth = std::max(depth, node.depth);
  for (size_t i = 0; i < std::min<size_t>(static_cast<size_t>(depth), DraftStats::kLevels); ++i) {
    ++stats.drafted_at[i];
    if (i + 1 < tokens) ++stats.accepted_at[i];
  }
  if (drafting_->drafter.get() != mixed_) return;
  const auto count_drafters = [&](const drafter::DraftNode& node, int64_t DraftStats::*counter) {
    for (size_t i = 0; i + 1 < members_.size(); ++i)
      members_[i].stats.*counter += node.origin.drafters >> i & 1;
  };
  for (const drafter::DraftNode& node : tree.nodes)
    count_drafters(node, &DraftStats::mixed_drafted);
  for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
    count_drafters(tree.nodes[static_cast<size_t>(i)], &DraftStats::mixed_accepted);
}

void Speculation::end_step(bool has_prompt_rows) {
  if (batch_ > 0) learn(has_prompt_rows);
  if (std::exchange(has_commits_, false)) seconds_ += commits_.seconds();
}

void Speculation::learn(bool has_prompt_rows) {
  // Learning from a step takes time too; that of this step is not known yet.
  double& learning = learning_seconds_[drafting_ ? 1 : 0];
  const double before = step_.seconds(), seconds = before + learning;
  ++decode_steps_;
  if (drafting_ && drafting_->drafter.get() == mixed_) mixed_->record(verified_);
  if (adaptive_ && !adaptive_->costs) unmeasured_seconds_ += before;
  if (!adaptive_ || !tuner_ || before <= 0) return;
  if (!has_prompt_rows) update_speed(seconds);
  if (drafting_) drafting_->budget.record(verified_);
  tuner_->record(drafting_ ? arm_ : speculation::Arm{}, {.batch = batch_,
                                                         .context = load_.context,
                                                         .tokens = tokens_,
                                                         .trees = verified_,
                                                         .seconds = seconds,
                                                         .draft_seconds = draft_seconds_,
                                                         .has_prompt_rows = has_prompt_rows});
  learning += kRateShare * (step_.seconds() - before - learning);
}

// Updates the speed that prune_trees() values token rows with.
void Speculation::update_speed(double seconds) {
  const double rate = static_cast<double>(tokens_) / seconds;
  tokens_per_second_ =
      tokens_per_second_ > 0 ? tokens_per_second_ + kRateShare * (rate - tokens_per_second_) : rate;
  const speculation::StepOutcome step{.batch = batch_, .trees = verified_};
  const double table = adaptive_->costs->target_seconds(static_cast<double>(step.rows()),
                                                        static_cast<double>(batch_), load_.context);
  const double factor = std::clamp((seconds - draft_seconds_) / table, kLeastFactor, kMostFactor);
  cost_factor_ += kFactorShare * (factor - cost_factor_);
}

void Speculation::ended(const Response& response) {
  const drafter::SequenceId id{response.prompt_id, response.sample};
  if (reads_states_) log_.forget(id);
  for_each_drafter([&](drafter::Drafter& drafter) { drafter.end(id, response.tokens); });
}

int64_t Speculation::spare_capacity(int64_t sequences) {
  return tuner_ ? tuner_->spare_capacity({sequences, load_.context}) : 0;
}

void Speculation::begin_rollout() {
  if (tuner_) tuner_->begin_rollout();
}

void Speculation::new_weights() {
  for_each_drafter([](drafter::Drafter& drafter) { drafter.new_weights(); });
  if (tuner_) tuner_->new_weights();
}

SpeculationStats Speculation::stats() const {
  SpeculationStats sum;
  for (const Member& member : members_) sum.add(member.stats);
  sum.decode_steps = decode_steps_;
  sum.seconds = seconds_;
  for (const Member& member : members_) sum.forward_seconds += member.drafter->forward_seconds();
  return sum;
}

std::vector<std::string> Speculation::kinds() const {
  std::vector<std::string> kinds;
  for (const Member& member : members_) kinds.emplace_back(member.drafter->kind());
  return kinds;
}

int64_t Speculation::memory_bytes() const {
  int64_t bytes = log_.memory_bytes();
  for (const Member& member : members_) bytes += member.drafter->memory_bytes();
  return bytes;
}

std::string Speculation::save() const {
  if (!tuner_) return "";
  nlohmann::json budgets;
  for (const Member& member : members_)
    budgets[std::string(member.drafter->kind())] = member.budget.save();
  nlohmann::json json = {{"tuner", tuner_->save()}, {"row_budgets", budgets}};
  if (mixed_) json["mixed"] = mixed_->save();
  return json.dump() + "\n";
}

void Speculation::restore(const std::string& text, const std::string& place) {
  if (!tuner_) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!tuner_->try_restore(json.at("tuner").get<std::string>(), place)) return;
    for (Member& member : members_)
      member.budget.restore(json.at("row_budgets").at(std::string(member.drafter->kind())));
    if (mixed_) mixed_->restore(json.at("mixed"));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(place, ": not a saved state of speculation (",
                                            error.what(), "); delete it to start without one"));
  }
}

}  // namespace tlt::rollout
