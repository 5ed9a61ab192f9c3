// SPDX-License-Identifier: Apache-2.0
#include "rollout/speculation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tlt::rollout {
namespace {

constexpr double kRateShare = 0.1;     // of the latest step in the mean of the tokens per second
constexpr double kFactorShare = 0.05;  // the same, of what the cost table is off by …
constexpr double kLeastFactor = 0.5, kMostFactor = 3;  // … a step that was interrupted aside
constexpr const char* kMixed = "mixed";

// Adds the time it lives.
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
  failed = failed || other.failed;
}

Speculation::Speculation(std::unique_ptr<spec::Drafter> drafter, spec::Strategy strategy,
                         int64_t vocabulary)
    : arm_{std::string(drafter->kind()), strategy},
      vocabulary_(vocabulary),
      clock_(steady_clock()) {
  add(std::move(drafter));
}

Speculation::Speculation(std::vector<std::unique_ptr<spec::Drafter>> drafters,
                         spec::Strategy strategy, int64_t vocabulary)
    : arm_{kMixed, strategy}, vocabulary_(vocabulary), clock_(steady_clock()) {
  for (std::unique_ptr<spec::Drafter>& drafter : drafters) add(std::move(drafter));
  add_mixed();
}

Speculation::Speculation(std::vector<std::unique_ptr<spec::Drafter>> drafters, Adaptive adaptive,
                         int64_t vocabulary)
    : adaptive_(std::move(adaptive)), vocabulary_(vocabulary), clock_(*adaptive_->clock) {
  for (std::unique_ptr<spec::Drafter>& drafter : drafters) add(std::move(drafter));
  if (std::ranges::find(adaptive_->kinds, kMixed) != adaptive_->kinds.end()) add_mixed();
  TLT_CHECK(adaptive_->costs || adaptive_->measure_costs);
  if (adaptive_->costs) make_tuner();
}

Speculation::~Speculation() = default;

void Speculation::add(std::unique_ptr<spec::Drafter> drafter) {
  reads_states_ = reads_states_ || drafter->reads_states();
  members_.push_back({std::move(drafter), {}, {}});
}

void Speculation::add_mixed() {
  std::vector<spec::Drafter*> drafters;
  for (const Member& member : members_) drafters.push_back(member.drafter.get());
  const auto ask = [this](size_t drafter, std::span<const spec::DraftRequest> requests) {
    Member& member = members_[drafter];
    guard(member, [&](spec::Drafter& asked) {
      asked.propose(requests);
      for (const spec::DraftRequest& request : requests) check(request);
    });
    return !member.stats.failed;
  };
  auto mixed = std::make_unique<spec::MixedDrafter>(std::move(drafters), ask);
  mixed_ = mixed.get();
  add(std::move(mixed));
}

// A mixture of one is that one.
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

// Of the drafters that work; none when none does.
void Speculation::make_tuner() {
  std::vector<std::string> kinds;
  for (const Member& member : members_)
    if (competes(member)) kinds.emplace_back(member.drafter->kind());
  tuner_.reset();
  if (!kinds.empty())
    tuner_ = std::make_unique<spec::Tuner>(adaptive_->options,
                                           spec::Tuner::Setup{.kinds = std::move(kinds),
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
    member.stats.failed = has_new_failure_ = true;
    log_warning("the {} drafter failed and is not asked again; decoding goes on: {}",
                member.drafter->kind(), error.what());
  }
}

// Tells all drafters that work.
template <class Call>
void Speculation::tell(const Call& call) {
  for (Member& member : members_) guard(member, call);
}

// Of the sequences that are asked about; of all, unless only a few are.
void Speculation::tell_states() {
  const auto is_wanted = [&](spec::SequenceId id) {
    return !is_try() ||
           std::ranges::find(requests_, id, &spec::DraftRequest::id) != requests_.end();
  };
  log_.take(is_wanted, [&](spec::SequenceId id, int64_t first, const TargetStates& states,
                           std::span<const int32_t> rows) {
    tell([&](spec::Drafter& drafter) {
      if (drafter.reads_states())
        drafter.read_states(id, first, states.seen_by(drafter.layers()), rows);
    });
  });
}

// Who drafts for the next step; null: nobody.
Speculation::Member* Speculation::choose() {
  if (adaptive_) {
    if (std::exchange(has_new_failure_, false) && adaptive_->costs) make_tuner();
    arm_ = tuner_ ? tuner_->choose(load_) : spec::Arm{};
  }
  if (arm_.is_off()) return nullptr;
  const auto drafts = [&](const Member& member) {
    return !member.stats.failed && member.drafter->kind() == arm_.kind;
  };
  const auto member = std::ranges::find_if(members_, drafts);
  return member == members_.end() ? nullptr : &*member;
}

void Speculation::check(const spec::DraftRequest& request) {
  const spec::DraftTree& tree = *request.tree;
  TLT_CHECK(tree.size() < request.strategy.verify, "a tree of ", tree.size(), " nodes for ",
            to_string(request.strategy));
  TLT_CHECK(tree.is_depth_first(), "a tree that does not stand depth first");
  for (const spec::DraftNode& node : tree.nodes()) {
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
  numbers_.clear();
  numbers_.reserve(static_cast<size_t>(load_.batch * arm_.strategy.depth));  // views stay
  const Stopwatch watch(clock_);
  for (const auto& sequence : running) {
    if (!sequence->decodes()) continue;
    // The last token of a response is nobody's root, so a path is shorter than what remains.
    spec::Strategy strategy = arm_.strategy;
    strategy.depth = std::min(strategy.depth, sequence->remaining() - 1);
    if (strategy.depth < 1) continue;
    const GroupState& group = *sequence->group;
    requests_.push_back({.id = {group.request.prompt_id, sequence->sample},
                         .prompt = group.request.tokens,
                         .response = sequence->tokens,
                         .strategy = strategy,
                         .tree = &sequence->draft,
                         .draws = draws_of(*sequence, strategy.depth)});
  }
  if (is_try()) keep_few();
  tell_states();
  guard(*drafting_, [&](spec::Drafter& drafter) {
    if (!requests_.empty()) drafter.propose(requests_);
    for (const spec::DraftRequest& request : requests_) check(request);
  });
  if (drafting_->stats.failed) {
    for (const spec::DraftRequest& request : requests_) request.tree->clear();
    drafting_ = nullptr;
    return;
  }
  if (adaptive_) cut();
  draft_seconds_ = watch.seconds();
  drafting_->stats.draft_seconds += draft_seconds_;
  ++drafting_->stats.steps;
}

// By FastRL's rule the token depends on the guesses: they must not depend on its number.
spec::KnownDraws Speculation::draws_of(const Sequence& sequence, int64_t tokens) {
  const ops::SamplingRule& rule = sequence.group->rule;
  if (target_only_ || rule.temperature <= 0) return {};
  const size_t first = numbers_.size();
  for (int64_t i = 0; i < tokens; ++i) numbers_.push_back(sequence.number(static_cast<size_t>(i)));
  return {std::span(numbers_).subspan(first), rule};
}

// A try is for the sequences with the least to read.
void Speculation::keep_few() {
  if (std::ssize(requests_) <= spec::kTrySequences) return;
  const auto few = requests_.begin() + spec::kTrySequences;
  std::ranges::nth_element(requests_, few, {}, [](const spec::DraftRequest& request) {
    return std::pair(request.response.size(), request.id);
  });
  requests_.erase(few, requests_.end());
}

// Leaves the guesses that are worth their row of the forward pass.
void Speculation::cut() {
  if (tokens_per_second_ <= 0 || requests_.empty()) return;
  trees_.clear();
  for (const spec::DraftRequest& request : requests_) trees_.push_back(request.tree);
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
  tell([&](spec::Drafter& drafter) {
    if (drafter.reads_states())
      drafter.read_prompt(prompt_id, position, states.seen_by(drafter.layers()), tokens);
  });
}

void Speculation::read_begun(const Sequence& sequence, int32_t first, int32_t count, int32_t row,
                             const TargetStates& states) {
  if (!reads_states_) return;
  rows_.clear();
  for (int32_t i = 0; i < count; ++i) rows_.push_back(row + i);
  log_.add({sequence.group->request.prompt_id, sequence.sample}, first, states, rows_);
}

void Speculation::committed(const Draw& draw, const Drawn& drawn, size_t tokens,
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
    if (sequence.draft.empty() && was_asked_for(sequence)) verified_.push_back({});
    return;
  }
  const spec::VerifiedTree tree{sequence.draft.nodes(), drawn.path[tokens - 1] - 1};
  verified_.push_back(tree);
  count(tree, tokens);
}

bool Speculation::was_asked_for(const Sequence& sequence) const {
  return !is_try() || std::ranges::find(requests_, &sequence.draft, &spec::DraftRequest::tree) !=
                          requests_.end();
}

void Speculation::count(const spec::VerifiedTree& tree, size_t tokens) {
  DraftStats& stats = drafting_->stats;
  ++stats.trees;
  stats.drafted_tokens += std::ssize(tree.nodes);
  stats.accepted_tokens += static_cast<int64_t>(tokens) - 1;
  int32_t depth = 0;
  for (const spec::DraftNode& node : tree.nodes) depth = std::max(depth, node.depth);
  for (size_t i = 0; i < std::min<size_t>(static_cast<size_t>(depth), DraftStats::kLevels); ++i) {
    ++stats.drafted_at[i];
    if (i + 1 < tokens) ++stats.accepted_at[i];
  }
  if (drafting_->drafter.get() != mixed_) return;
  const auto count_guessers = [&](const spec::DraftNode& node, int64_t DraftStats::*counter) {
    for (size_t i = 0; i + 1 < members_.size(); ++i)
      members_[i].stats.*counter += node.guess.guessers >> i & 1;
  };
  for (const spec::DraftNode& node : tree.nodes) count_guessers(node, &DraftStats::mixed_drafted);
  for (int32_t i = tree.accepted; i >= 0; i = tree.nodes[static_cast<size_t>(i)].parent)
    count_guessers(tree.nodes[static_cast<size_t>(i)], &DraftStats::mixed_accepted);
}

void Speculation::end_step(bool has_prompt_rows) {
  if (batch_ > 0) learn(has_prompt_rows);
  if (std::exchange(has_commits_, false)) seconds_ += commits_.seconds();
}

void Speculation::learn(bool has_prompt_rows) {
  // To learn from a step costs time too; of this one it is not known yet.
  double& learning = learning_seconds_[drafting_ ? 1 : 0];
  const double before = step_.seconds(), seconds = before + learning;
  ++decode_steps_;
  if (drafting_ && drafting_->drafter.get() == mixed_) mixed_->record(verified_);
  if (adaptive_ && !adaptive_->costs) unmeasured_seconds_ += before;
  if (!adaptive_ || !tuner_ || before <= 0) return;
  if (!has_prompt_rows) learn_pace(seconds);
  if (drafting_) drafting_->budget.record(verified_);
  tuner_->record(drafting_ ? arm_ : spec::Arm{}, {.batch = batch_,
                                                  .context = load_.context,
                                                  .tokens = tokens_,
                                                  .trees = verified_,
                                                  .seconds = seconds,
                                                  .draft_seconds = draft_seconds_,
                                                  .has_prompt_rows = has_prompt_rows});
  learning += kRateShare * (step_.seconds() - before - learning);
}

// What cut() weighs rows with.
void Speculation::learn_pace(double seconds) {
  const double rate = static_cast<double>(tokens_) / seconds;
  tokens_per_second_ =
      tokens_per_second_ > 0 ? tokens_per_second_ + kRateShare * (rate - tokens_per_second_) : rate;
  const spec::StepOutcome step{.batch = batch_, .trees = verified_};
  const double table = adaptive_->costs->target_seconds(static_cast<double>(step.rows()),
                                                       static_cast<double>(batch_), load_.context);
  const double factor = std::clamp((seconds - draft_seconds_) / table, kLeastFactor, kMostFactor);
  cost_factor_ += kFactorShare * (factor - cost_factor_);
}

void Speculation::ended(const Response& response) {
  const spec::SequenceId id{response.prompt_id, response.sample};
  if (reads_states_) log_.forget(id);
  tell([&](spec::Drafter& drafter) { drafter.end(id, response.tokens); });
}

int64_t Speculation::room_beside(int64_t sequences) {
  return tuner_ ? tuner_->room_beside({sequences, load_.context}) : 0;
}

void Speculation::begin_rollout() {
  if (tuner_) tuner_->begin_rollout();
}

void Speculation::new_weights() {
  tell([](spec::Drafter& drafter) { drafter.new_weights(); });
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
    throw InputError(check_internal::concat(place, ": not what speculation learned (", error.what(),
                                            "); delete it to start without"));
  }
}

}  // namespace tlt::rollout
