// SPDX-License-Identifier: Apache-2.0
#include "rollout/engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/watchdog.h"

namespace tlt::rollout {
namespace {

// Number of pages: what fits into kv_memory_bytes, but at most what all running sequences fill at
// the model's full length (plus one page for the copy that a sample makes).
int64_t cache_pages(const TargetModel& target, const EngineOptions& options) {
  options.check();
  const int64_t page_bytes = target.kv_shape().page_bytes();
  TLT_CHECK_INPUT(options.kv_memory_bytes >= page_bytes, "kv_memory_bytes is ",
                  options.kv_memory_bytes, ", less than one page of this model; give at least ",
                  page_bytes);
  return std::min(options.kv_memory_bytes / page_bytes,
                  options.max_running * (ops::pages_for(target.model.config().max_positions) + 1));
}

}  // namespace

Engine::Engine(const TargetModel& target, const EngineOptions& options,
               const StopString* stop_string, HiddenStateObserver* observer,
               Speculation* speculation)
    : model_(target.model),
      stop_string_(stop_string),
      observer_(observer),
      speculation_(speculation),
      runner_(target.make_runner(cache_pages(target, options), options.max_batch_tokens)),
      pool_(runner_->pages()),
      scheduler_(options, pool_),
      sampler_(model_, speculation ? options.max_batch_tokens : options.max_running,
               runner_.get()) {
  Layers layers;
  TLT_CHECK(observer == nullptr || !options.prefix_cache || !options.caches_prompts,
            "an observer gets the states of whole prompts");
  if (observer) layers = observed_layers_ = observer->layers();
  if (speculation) layers = merge_layers(layers, speculation->layers());
  runner_->activations().capture(std::move(layers));
  if (!model_.device().is_cpu()) timer_ = std::make_unique<runtime::DeviceTimer>(model_.device());
  if (options.graphs) runner_->use_graphs();
  if (speculation && speculation->target_only())
    sampler_.set_target_only(*speculation->target_only());
}

Engine::~Engine() = default;

void Engine::submit(Group group) {
  std::shared_ptr<GroupState> state = make_state(std::move(group));
  scheduler_.submit(std::move(state));
}

void Engine::resume(Group group, std::vector<Response> responses) {
  group.first_sample = 0;
  group.samples = std::ssize(responses);
  std::shared_ptr<GroupState> state = make_state(std::move(group));
  scheduler_.submit(std::move(state), std::move(responses));
}

void Engine::release_memory() {
  scheduler_.new_weights();
  runner_->release_memory();
}

std::shared_ptr<GroupState> Engine::make_state(Group group) const {
  check_input(group);
  const model::ModelConfig& config = model_.config();
  const SamplingOptions& sampling = *group.sampling;
  const int64_t limit = response_limit(group);
  auto state = std::make_shared<GroupState>();
  state->max_new_tokens = limit;
  state->stop_string = stop_string_;
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
      needed * runner_->kv_shape().page_bytes(), " bytes of KV cache; kv_memory_bytes holds ",
      pool_.total_pages() * runner_->kv_shape().page_bytes(),
      ": raise it or allow shorter responses (max_new_tokens, data.max_response_length)");
  return state;
}

int64_t Engine::response_limit(const Group& group) const {
  return std::min(group.sampling->max_new_tokens,
                  model_.config().max_positions - std::ssize(group.tokens));
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
  TLT_CHECK_INPUT(group.sampling->stop.empty() || stop_string_ != nullptr, "prompt ",
                  group.prompt_id,
                  " has stop strings, but there is no tokenizer to match them; use stop_tokens");
}

bool Engine::step() {
  Stopwatch watch;
  if (speculation_) speculation_->propose(scheduler_.running_sequences());
  const StepPlan& plan = scheduler_.plan();
  stats_.schedule_seconds += watch.restart();
  if (plan.empty()) return false;
  runner_->copy_pages(plan.copies);
  if (timer_) timer_->start();
  const at::Tensor& hidden = runner_->forward(plan.batch);
  double forward_seconds = watch.restart();
  if (timer_) timer_->stop();
  const std::span<const SampleResult> results = sampler_.sample(hidden, plan.sample_requests);
  stats_.sample_seconds += watch.restart();
  if (timer_) forward_seconds = work_of_forward(plan, forward_seconds);
  stats_.forward_seconds += forward_seconds;
  scheduler_.commit(results);
  const TargetStates states(hidden, runner_->activations().captured());
  complete(plan, states);
  if (speculation_) speculation_->finish(plan, states);
  scheduler_.end_step();
  stats_.schedule_seconds += watch.restart();
  report_progress();
  return true;
}

// The clock showed the launches of the pass, and the wait for it as part of the sampling.
double Engine::work_of_forward(const StepPlan& plan, double launch_seconds) {
  if (plan.sample_requests.empty()) model_.device().synchronize();  // nothing waited for the pass
  const double seconds = timer_->seconds();
  stats_.sample_seconds -= std::max(0.0, seconds - launch_seconds);
  return std::max(seconds, launch_seconds);
}

void Engine::complete(const StepPlan& plan, const TargetStates& states) {
  keep_paths(plan);
  const bool is_observed = observer_ && observer_->is_open();
  const at::Tensor observed = is_observed ? states.of_layers(observed_layers_).cpu() : at::Tensor();
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const ScheduledSegment& scheduled = plan.segments[i];
    const ops::Segment& segment = plan.batch.segments[i];
    if (is_observed) observe(plan, i, observed);
    stats_.repeated_rows += scheduled.repeated_rows;
    if (scheduled.sequence == nullptr) stats_.prompt_rows += segment.rows;
  }
  for (const SampleRequest& request : plan.sample_requests)
    stats_.tokens += plan.committed_tokens(request);
  stats_.rows += plan.batch.rows();
  ++stats_.steps;
  const auto bucket =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(scheduler_.running()))) - 1;
  ++stats_.batch_sizes[std::min(bucket, stats_.batch_sizes.size() - 1)];
}

void Engine::keep_paths(const StepPlan& plan) {
  kept_paths_.clear();
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const ops::Segment& segment = plan.batch.segments[i];
    const ScheduledSegment& scheduled = plan.segments[i];
    if (segment.is_tree() && scheduled.sequence->state == Sequence::State::kRunning)
      kept_paths_.push_back({&segment, scheduled.kept_path});
  }
  if (!kept_paths_.empty()) runner_->keep_paths(plan.batch, kept_paths_);
}

void Engine::observe(const StepPlan& plan, size_t segment, const at::Tensor& states) {
  const ScheduledSegment& scheduled = plan.segments[segment];
  const auto pass = [&](const NewRows& rows) {
    if (rows.count == 0) return;
    observer_->on_hidden_states(
        scheduled.group->request.prompt_id,
        scheduled.sequence ? scheduled.sequence->sample : HiddenStateObserver::kPrompt,
        rows.position, {states, rows.row},
        std::span(plan.batch.tokens)
            .subspan(static_cast<size_t>(rows.row), static_cast<size_t>(rows.count)));
  };
  const ops::Segment& rows = plan.batch.segments[segment];
  if (!rows.is_tree()) return pass(plan.new_rows(segment));
  for (int32_t depth = 0; depth < std::ssize(scheduled.kept_path); ++depth)
    pass({rows.first_row + scheduled.kept_path[static_cast<size_t>(depth)],
          rows.first_position + depth, 1});
}

std::vector<Response> Engine::take_finished() {
  std::vector<Response> finished = scheduler_.take_finished();
  if (speculation_)
    for (const Response& response : finished) speculation_->ended(response);
  return finished;
}

std::span<const int32_t> Engine::tokens_so_far(uint32_t prompt_id, uint32_t sample) const {
  for (const auto& sequence : scheduler_.running_sequences())
    if (sequence->group->request.prompt_id == prompt_id && sequence->sample == sample)
      return sequence->tokens;
  return {};
}

int64_t Engine::spare_capacity() const {
  if (!speculation_) return 0;
  return std::min(free_slots(),
                  speculation_->spare_capacity(scheduler_.running() + scheduler_.waiting()));
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.preemptions = scheduler_.preemptions();
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.pages = pool_.total_pages();
  stats.held_pages = pool_.total_pages() - pool_.free_pages();
  stats.cached_pages = pool_.kept_free_pages();
  stats.prefix_cache = scheduler_.prefix_cache_stats();
  stats.peak_pages = scheduler_.peak_pages();
  stats.kv_bytes = pool_.total_pages() * runner_->kv_shape().page_bytes();
  stats.graphs = runner_->graph_stats();
  return stats;
}

void Engine::check_idle_invariants() const {
  scheduler_.check_invariants();
  TLT_CHECK(scheduler_.running() == 0 && scheduler_.waiting() == 0,
            "not idle: ", scheduler_.running(), " run and ", scheduler_.waiting(), " wait");
  TLT_CHECK(pool_.free_pages() == pool_.total_pages());
}

}  // namespace tlt::rollout
