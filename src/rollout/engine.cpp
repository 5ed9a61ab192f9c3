// SPDX-License-Identifier: Apache-2.0
#include "rollout/engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/clock.h"
#include "model/activations.h"

namespace tlt::rollout {
namespace {

// Number of pages: what fits into kv_memory_bytes, but at most what all running sequences fill at
// the model's full length (plus one page for the copy that a sample makes).
int64_t cache_pages(const model::PolicyModel& model, const EngineOptions& options) {
  options.check();
  const int64_t page_bytes = model.kv_shape().page_bytes();
  TLT_CHECK_INPUT(options.kv_memory_bytes >= page_bytes, "kv_memory_bytes is ",
                  options.kv_memory_bytes, ", less than one page of this model; give at least ",
                  page_bytes);
  return std::min(options.kv_memory_bytes / page_bytes,
                  options.max_running * (ops::pages_for(model.config().max_positions) + 1));
}

}  // namespace

Engine::Engine(const model::PolicyModel& model, const EngineOptions& options,
               const StopString* stop_text, HiddenStateObserver* tap, Speculation* speculation)
    : model_(model),
      stop_text_(stop_text),
      tap_(tap),
      speculation_(speculation),
      cache_(model.device(), model.kv_shape(), cache_pages(model, options)),
      pool_(cache_.pages()),
      scheduler_(options, pool_),
      sampler_(model, speculation ? options.max_batch_tokens : options.max_running),
      activations_(std::make_unique<model::Activations>(model, options.max_batch_tokens)) {
  Layers layers;
  if (tap) layers = tap->layers();
  if (speculation) layers = longer_of(layers, speculation->layers());
  activations_->capture(std::move(layers));
  if (speculation && speculation->target_only())
    sampler_.set_target_only(*speculation->target_only());
}

Engine::~Engine() = default;

void Engine::submit(Group group) {
  std::shared_ptr<GroupState> state = make_state(std::move(group));
  begin_rollout();
  scheduler_.submit(std::move(state));
}

void Engine::resume(Group group, std::vector<Response> begun) {
  group.first_sample = 0;
  group.samples = std::ssize(begun);
  std::shared_ptr<GroupState> state = make_state(std::move(group));
  begin_rollout();
  scheduler_.submit(std::move(state), std::move(begun));
}

void Engine::begin_rollout() {
  if (speculation_ && scheduler_.running() + scheduler_.waiting() == 0)
    speculation_->begin_rollout();
}

std::shared_ptr<GroupState> Engine::make_state(Group group) const {
  check_input(group);
  const model::ModelConfig& config = model_.config();
  const SamplingOptions& sampling = *group.sampling;
  auto state = std::make_shared<GroupState>();
  state->max_new_tokens =
      std::min(sampling.max_new_tokens, config.max_positions - std::ssize(group.tokens));
  state->stop_text = stop_text_;
  state->rule = sampling.rule();
  state->stop_tokens.assign(sampling.stop_tokens.begin(), sampling.stop_tokens.end());
  if (!sampling.ignore_eos)
    state->stop_tokens.insert(state->stop_tokens.end(), config.eos_tokens.begin(),
                              config.eos_tokens.end());
  state->request = std::move(group);
  const int64_t needed = state->pages_to_finish();
  TLT_CHECK_INPUT(
      needed <= pool_.total_pages(), "prompt ", state->request.prompt_id, " with its ",
      state->prompt_tokens(), " tokens and a response of ", state->max_new_tokens, " needs ",
      needed * cache_.shape().page_bytes(), " bytes of KV cache; kv_memory_bytes holds ",
      pool_.total_pages() * cache_.shape().page_bytes(),
      ": raise it or allow shorter responses (max_new_tokens, data.max_response_length)");
  return state;
}

void Engine::check_input(const Group& group) const {
  const model::ModelConfig& config = model_.config();
  TLT_CHECK(group.sampling != nullptr);
  group.sampling->check();
  TLT_CHECK_INPUT(!group.tokens.empty(), "prompt ", group.prompt_id,
                  " has no tokens; give at least one");
  TLT_CHECK_INPUT(std::ssize(group.tokens) < config.max_positions, "prompt ", group.prompt_id,
                  " has ", group.tokens.size(), " tokens and the model ", config.max_positions,
                  " positions; give a shorter prompt");
  for (const int32_t token : group.tokens)
    TLT_CHECK_INPUT(token >= 0 && token < config.vocabulary, "prompt ", group.prompt_id,
                    " has token ", token, "; the model's vocabulary ends at ",
                    config.vocabulary - 1);
  TLT_CHECK_INPUT(group.samples >= 1, "prompt ", group.prompt_id, " asks for ", group.samples,
                  " samples; ask for at least 1");
  TLT_CHECK(group.first_sample >= 0 &&
            group.first_sample + group.samples < HiddenStateObserver::kPrompt);
  TLT_CHECK_INPUT(group.sampling->stop.empty() || stop_text_ != nullptr, "prompt ", group.prompt_id,
                  " has stop strings, but there is no tokenizer to match them; use stop_tokens");
}

bool Engine::step() {
  Stopwatch watch;
  if (speculation_) speculation_->propose(scheduler_.running_sequences());
  const StepPlan& plan = scheduler_.plan();
  stats_.schedule_seconds += watch.restart();
  if (plan.empty()) return false;
  for (const PageCopy& copy : plan.copies) cache_.copy_page(copy.from, copy.to);
  const at::Tensor& hidden = model_.forward(plan.batch, cache_, *activations_);
  stats_.forward_seconds += watch.restart();
  const std::span<const SampleResult> drawn = sampler_.sample(hidden, plan.draws);
  stats_.sample_seconds += watch.restart();
  scheduler_.commit(drawn);
  const TargetStates states(hidden, activations_->captured());
  offer(plan, states);
  report(plan, drawn, states);
  count(plan);
  if (speculation_) speculation_->end_step(plan.has_prompt_rows());
  scheduler_.end_step();
  stats_.schedule_seconds += watch.restart();
  return true;
}

void Engine::report(const StepPlan& plan, std::span<const SampleResult> drawn,
                    const TargetStates& states) {
  size_t tree = 0;  // trees are in the same order in work and draws
  for (size_t i = 0; i < plan.draws.size(); ++i) {
    const SampleRequest& draw = plan.draws[i];
    size_t tokens = 1;
    if (draw.is_tree) {
      while (plan.work[tree].sequence != draw.sequence) ++tree;
      const std::span<const int32_t> path = plan.work[tree].kept_path;
      tokens = path.size();
      if (draw.sequence->state == Sequence::State::kRunning)
        cache_.keep_path(plan.batch, plan.batch.segments[tree], path);
    }
    stats_.tokens += static_cast<int64_t>(tokens);
    if (speculation_) speculation_->committed(draw, drawn[i], tokens, states);
  }
}

void Engine::offer(const StepPlan& plan, const TargetStates& states) {
  if (tap_ == nullptr && speculation_ == nullptr) return;
  const Layers layers = tap_ ? tap_->layers() : Layers();
  const std::span<const int32_t> tokens = plan.batch.tokens;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    const ScheduledSegment& work = plan.work[i];
    const ops::Segment& segment = plan.batch.segments[i];
    if (speculation_ && work.sequence != nullptr) offer_resumed(work, segment, states);
    if (tap_ == nullptr && work.sequence != nullptr) continue;  // drafters read those in report()
    const uint32_t prompt_id = work.group->request.prompt_id;
    const uint32_t sample = work.sequence ? work.sequence->sample : HiddenStateObserver::kPrompt;
    const auto offer_rows = [&](int32_t row, int32_t position, int32_t rows) {
      const TargetStates its_states = states.rows(row, rows);
      const auto its = tokens.subspan(static_cast<size_t>(row), static_cast<size_t>(rows));
      if (tap_) tap_->offer(prompt_id, sample, position, its_states.seen_by(layers), its);
      if (speculation_ && !work.sequence)
        speculation_->read_prompt(prompt_id, position, its_states, its);
    };
    if (segment.is_tree()) {
      for (size_t depth = 0; depth < work.kept_path.size(); ++depth)
        offer_rows(segment.first_row + work.kept_path[depth],
                   segment.first_position + static_cast<int32_t>(depth), 1);
    } else if (const int32_t skip = work.repeated_rows; skip < segment.rows) {
      offer_rows(segment.first_row + skip, segment.first_position + skip, segment.rows - skip);
    }
    if (speculation_ && work.sequence == nullptr) offer_resumed(work, segment, states);
  }
}

// Passes the states that tokens of another engine were sampled from to the drafters: the prompt's
// last one, for the first token of each response, and those of the response's own rows.
void Engine::offer_resumed(const ScheduledSegment& work, const ops::Segment& segment,
                           const TargetStates& states) {
  const int32_t skip = work.repeated_rows, last_row = segment.first_row + segment.rows - 1;
  if (segment.is_tree() || skip == segment.rows) return;
  const int32_t prompt = work.group->prompt_tokens();
  if (work.sequence != nullptr) {
    const int32_t first = segment.first_position + skip + 1 - prompt;
    const auto known = static_cast<int32_t>(work.sequence->begun.size());
    speculation_->read_resumed(*work.sequence, first, std::min(segment.rows - skip, known - first),
                               segment.first_row + skip, states);
  } else if (segment.first_position + segment.rows == prompt) {
    for (const Sequence* sequence : work.group->unfinished)
      if (!sequence->begun.empty()) speculation_->read_resumed(*sequence, 0, 1, last_row, states);
  }
}

std::vector<Response> Engine::take_finished() {
  std::vector<Response> finished = scheduler_.take_finished();
  if (speculation_)
    for (const Response& response : finished) speculation_->ended(response);
  return finished;
}

void Engine::count(const StepPlan& plan) {
  ++stats_.steps;
  stats_.rows += plan.batch.rows();
  for (size_t i = 0; i < plan.work.size(); ++i) {
    stats_.repeated_rows += plan.work[i].repeated_rows;
    if (plan.work[i].sequence == nullptr) stats_.prompt_rows += plan.batch.segments[i].rows;
  }
  const auto bucket =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(scheduler_.running()))) - 1;
  ++stats_.batch_sizes[std::min(bucket, stats_.batch_sizes.size() - 1)];
}

std::span<const int32_t> Engine::tokens_so_far(uint32_t prompt_id, uint32_t sample) const {
  for (const auto& sequence : scheduler_.running_sequences())
    if (sequence->group->request.prompt_id == prompt_id && sequence->sample == sample)
      return sequence->tokens;
  return {};
}

int64_t Engine::spare_capacity() const {
  if (!speculation_) return 0;
  return std::min(room(),
                  speculation_->spare_capacity(scheduler_.running() + scheduler_.waiting()));
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.preemptions = scheduler_.preemptions();
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.pages = pool_.total_pages();
  stats.peak_pages = scheduler_.peak_pages();
  stats.kv_bytes = pool_.total_pages() * cache_.shape().page_bytes();
  return stats;
}

void Engine::check_idle_invariants() const {
  scheduler_.check_invariants();
  TLT_CHECK(scheduler_.running() == 0 && scheduler_.waiting() == 0,
            "not idle: ", scheduler_.running(), " run and ", scheduler_.waiting(), " wait");
  TLT_CHECK(pool_.free_pages() == pool_.total_pages());
}

}  // namespace tlt::rollout
