// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/idle_trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "cluster/launch.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kFirstPackTokens = 64;      // until pack times are known
constexpr int64_t kFewestPackTokens = 16;     // a smaller pack costs as much
constexpr int64_t kFewestToBegin = 128;       // tokens in the buffer before training starts
constexpr int64_t kUpdateElements = 1 << 19;  // per optimizer part: 1 to 5 ms per core
constexpr int64_t kProbeSteps = 8;
constexpr int64_t kHeldOutTokens = 1024;  // per worker, in publish()

// The options with a learning rate that starts at once and does not depend on the run's length.
DraftTrainOptions steady(DraftTrainOptions options) {
  options.optim.lr_scheduler_type = "constant";
  options.optim.lr_warmup_steps = 10;
  return options;
}

// Random weights have no acceptance, so a copy of them is no useful comparison.
std::optional<int64_t> freeze_after(const IdleTrainOptions& options, bool is_warm) {
  if (options.frozen_after_steps < 0) return std::nullopt;
  return is_warm ? 0 : options.frozen_after_steps;
}

}  // namespace

IdleTrainer::IdleTrainer(std::shared_ptr<drafter::DraftNetwork> drafter,
                         const DraftTrainOptions& training, const IdleTrainOptions& options,
                         bool is_warm, const Clock& clock)
    : drafter_(std::move(drafter)),
      training_(steady(training)),
      options_((options.check(), options)),
      clock_(clock),
      buffer_({.bytes = options.buffer_bytes,
               .seed = static_cast<uint64_t>(training.seed),
               .layers = layers_to_record(*drafter_),
               .columns = recorded_columns(*drafter_),
               .vocabulary = drafter_->target().config().vocabulary}),
      alone_(cluster::make_comm(cluster::Launch{}, {})),
      copy_(drafter_->copy()),
      trainer_(*copy_, training_, *alone_, /*total_steps=*/1),
      probe_(*copy_, kProbeSteps),
      freeze_after_(freeze_after(options, is_warm)) {
  freeze_when_due();
}

IdleTrainer::~IdleTrainer() = default;

void IdleTrainer::begin_step(int64_t step) {
  buffer_.begin_step();
  trains_ = options_.is_paper_trigger() ? step % options_.training_interval_steps == 0
                                        : trigger_.wants_training();
}

template <class Call>
void IdleTrainer::guard(const Call& call) {
  if (is_off_) return;
  try {
    call();
  } catch (const std::exception& error) {
    is_off_ = true;
    has_begun_ = false;
    log_warning(
        "collecting hidden states or training the draft model failed; both are off on this worker, "
        "and the run continues: {}",
        error.what());
  }
}

void IdleTrainer::on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position,
                                   const Rows& hidden, std::span<const int32_t> tokens) {
  guard([&] { buffer_.on_hidden_states(prompt_id, sample, position, hidden, tokens); });
}

bool IdleTrainer::try_slice() {
  if (!trains_) return false;
  const double start = clock_.seconds(), end = start + options_.slice_milliseconds / 1000;
  bool did = false;
  guard([&] {
    // Begins another part only if it is likely to end in time.
    do {
      if (!advance()) break;
      did = true;
    } while (clock_.seconds() + next_part_seconds() < end);
  });
  const double used = clock_.seconds() - start;
  if (did) {
    stats_.used_seconds += used;
    stats_.longest_slice = std::max(stats_.longest_slice, used);
    unpublished_seconds_ += used;
  }
  return did && !is_off_;
}

double IdleTrainer::acceptance_gain() const {
  if (!trains_) return 0;
  return options_.is_paper_trigger() ? std::numeric_limits<double>::infinity()
                                     : trigger_.gain_per_second();
}

void IdleTrainer::add_idle(double idle_seconds, double trained_seconds) {
  idle_seconds_ += idle_seconds;
  trained_seconds_ += trained_seconds;
}

double IdleTrainer::trained_share() const {
  return trained_seconds_ / std::max(1e-9, idle_seconds_);
}

// Runs a pack, after beginning its step; or a part of the optimizer's step, and ends it.
bool IdleTrainer::advance() {
  const double start = clock_.seconds();
  if (!has_begun_ && !begin_train_step()) return false;
  if (step_began_ == 0) step_began_ = start;
  const int64_t tokens = trainer_.run_pack();
  if (tokens > 0) {
    ++packs_run_;
    times_.add_pack(tokens, clock_.seconds() - start);
  } else {
    if (!trainer_.try_update(kUpdateElements)) finish_train_step();
    times_.add_update(clock_.seconds() - start);
  }
  return true;
}

double IdleTrainer::next_part_seconds() const {
  const int64_t tokens = has_begun_ ? trainer_.next_pack_tokens() : slice_tokens();
  return tokens > 0 ? times_.pack_seconds(tokens) : times_.update_seconds();
}

// The tokens of a pack that is likely to end within half a slice.
int64_t IdleTrainer::slice_tokens() const {
  if (!times_.knows_packs()) return kFirstPackTokens;
  return std::clamp(times_.tokens_within(options_.slice_milliseconds / 2000), kFewestPackTokens,
                    std::min(training_.max_tokens, options_.step_tokens));
}

bool IdleTrainer::begin_train_step() {
  if (buffer_.drawable_tokens() < kFewestToBegin) return false;
  const int64_t pack_tokens = slice_tokens(), window = std::min(options_.window, pack_tokens);
  const bool is_first = !times_.knows_packs();
  std::vector<DraftSample> batch =
      buffer_.draw(is_first ? 2 * kFirstPackTokens : options_.step_tokens, window);
  std::erase_if(batch, [&](const DraftSample& sample) {
    return sample.counted_pairs(training_.positions()) < 1;
  });
  if (batch.empty()) return false;
  trainer_.begin(std::move(batch), pack_tokens);
  has_begun_ = true;
  packs_run_ = 0;
  return true;
}

void IdleTrainer::finish_train_step() {
  DraftTrainStats done = trainer_.finish();
  pause();
  has_begun_ = false;
  if (!done.fault.empty()) {
    ++stats_.skipped_steps;
    if (trainer_.optimizer().skipped_in_row() > train::kMaxSkippedSteps)
      throw Error(check_internal::concat(done.fault, " in ", trainer_.optimizer().skipped_in_row(),
                                         " steps in a row"));
    warn_once("skipped_draft_step", "idle training skipped a step of the draft model: {}",
              done.fault);
    return;
  }
  stats_.last_step = std::move(done);
  ++stats_.steps;
  stats_.tokens += stats_.last_step.tokens;
  unpublished_tokens_ += stats_.last_step.tokens;
}

void IdleTrainer::pause() {
  if (!has_begun_ || step_began_ == 0) return;
  if (timeline_)
    timeline_->span("draft training", fmt::format("draft step {}", trainer_.optimizer().steps()),
                    step_began_, clock_.seconds());
  step_began_ = 0;
}

// --- the end of an RL step ---

IdleStep IdleTrainer::end_step(cluster::Comm& comm, double decode_seconds) {
  buffer_.end_step();
  IdleStep step{.used_version = version_};
  const bool has_gap = decode_seconds > 0;
  if (has_gap) {
    step.idle = take_stats();
    train_for(options_.gap_share * decode_seconds);
  }
  const TimelineSpan span(timeline_, "draft publish", "publish");
  step.publish = publish(comm);  // ends an unfinished train step
  (has_gap ? step.gap : step.idle) = take_stats();
  if (step.publish.was_trained) {
    ++trained_steps_;
    trigger_.trained(step.publish.before.tokens_per_forward(),
                     step.publish.after.tokens_per_forward(), step.publish.seconds);
  } else if (freeze_after_ || !options_.is_paper_trigger()) {
    step.publish.before = measure(comm);
    trigger_.rested(step.publish.before.tokens_per_forward());
  }
  trains_ = false;
  if (frozen_) step.frozen = measure(*frozen_, comm);
  freeze_when_due();
  return step;
}

void IdleTrainer::train_for(double seconds) {
  const double end = clock_.seconds() + seconds;
  while (clock_.seconds() < end && try_slice()) {
  }
  pause();
}

void IdleTrainer::freeze_when_due() {
  if (freeze_after_ && !frozen_ && trained_steps_ >= *freeze_after_) frozen_ = drafter_->copy();
}

PublishReport IdleTrainer::publish(cluster::Comm& comm) {
  // The unfinished step ends here: its gradients are of weights that will be replaced.
  guard([&] {
    if (has_begun_ && packs_run_ > 0) finish_train_step();
    for (const auto& [name, tensor] : trainer_.optimizer().state())
      TLT_CHECK(at::isfinite(tensor).all().item<bool>(), "the draft model's ", name,
                " is not finite");
  });
  has_begun_ = false;
  if (is_off_) unpublished_tokens_ = 0;
  const double seconds = std::exchange(unpublished_seconds_, 0.0);
  PublishReport report;
  Mean mean;
  comm.section("draft model", [&] {
    const std::vector<double> sums = comm.all_reduce_sum(
        std::vector<double>{static_cast<double>(unpublished_tokens_),
                            unpublished_tokens_ > 0 ? 1.0 : 0.0, is_off_ ? 1.0 : 0.0, seconds});
    report = {.was_trained = sums[0] > 0,
              .version = version_,
              .tokens = static_cast<int64_t>(sums[0]),
              .seconds = sums[3],
              .workers = static_cast<int64_t>(sums[1]),
              .workers_off = static_cast<int64_t>(sums[2])};
    if (report.was_trained) mean = average(comm, sums[0]);
  });
  if (!report.was_trained) return report;
  trainer_.optimizer().load(mean.state, mean.steps);
  unpublished_tokens_ = 0;
  report.after = measure_copy(comm);
  report.before = measure(comm);
  report.was_published = is_better(report);
  if (!report.was_published) {
    restart_training();
    return report;
  }
  trainer_.optimizer().load(trainer_.optimizer().state(), trainer_.optimizer().steps());
  drafter_->copy_weights(*copy_);
  report.version = ++version_;
  return report;
}

// The average of master weights and moments over all workers, weighted by the tokens of each; a
// worker without training has weight 0, even if its values are not finite.
IdleTrainer::Mean IdleTrainer::average(cluster::Comm& comm, double total_tokens) const {
  const double weight = static_cast<double>(unpublished_tokens_) / total_tokens;
  const train::Optimizer& optimizer = trainer_.optimizer();
  const auto state = optimizer.state();
  int64_t elements = 0;
  for (const auto& [name, tensor] : state) elements += tensor.numel();
  at::Tensor sums = at::zeros({elements}, state.front().second.options());  // in one collective
  Mean mean;
  for (int64_t begin = 0; const auto& [name, tensor] : state) {
    at::Tensor sum = sums.narrow(0, begin, tensor.numel()).view(tensor.sizes());
    if (weight > 0) sum.copy_(tensor).mul_(weight);
    mean.state.emplace_back(name, sum);
    begin += tensor.numel();
  }
  comm.all_reduce_sum(sums);
  at::Tensor steps = at::tensor({weight > 0 ? optimizer.steps() : 0}, at::kLong);
  comm.all_reduce_max(steps);
  mean.steps = steps.item<int64_t>();
  return mean;
}

// Resets the training copy to the draft model in use.
void IdleTrainer::restart_training() {
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const auto& [name, tensor] : trainer_.optimizer().state())
    state.emplace_back(name, at::zeros_like(tensor));
  for (const model::Parameter& parameter : drafter_->parameters()) {
    const auto master = std::find_if(state.begin(), state.end(), [&](const auto& entry) {
      return entry.first == "master." + parameter.name();
    });
    TLT_CHECK(master != state.end(), parameter.name());
    master->second = parameter.read(drafter_->device()).cpu().contiguous();
  }
  trainer_.optimizer().load(state, 0);
}

HeldOutFigures IdleTrainer::measure(const drafter::DraftNetwork& network, cluster::Comm& comm) {
  guard([&] {
    if (trainer_.is_updating()) finish_train_step();  // weights of half a step are not valid
  });
  has_begun_ = false;
  copy_->copy_weights(network);
  const HeldOutFigures figures = measure_copy(comm);
  trainer_.optimizer().load(trainer_.optimizer().state(), trainer_.optimizer().steps());
  return figures;
}

HeldOutFigures IdleTrainer::measure_copy(cluster::Comm& comm) {
  HeldOutFigures mine;
  mine.acceptance.accepted.resize(kProbeSteps);
  guard([&] {
    std::vector<DraftSample> samples = buffer_.held_out(
        kHeldOutTokens, std::min(kHeldOutTokens, std::min(options_.window, training_.max_tokens)));
    std::erase_if(samples, [&](const DraftSample& sample) {
      return sample.counted_pairs(training_.positions()) < 1;
    });
    if (samples.empty()) return;
    const DraftSums sums = trainer_.measure(samples);
    mine = {sums, probe_.measure(samples, *alone_)};
  });
  std::vector<double> values = mine.sums.values();
  const size_t sums = values.size();
  values.push_back(mine.acceptance.drafts);
  values.push_back(mine.acceptance.tokens);
  values.insert(values.end(), mine.acceptance.accepted.begin(), mine.acceptance.accepted.end());
  values = comm.all_reduce_sum(std::move(values));
  const auto rest = values.begin() + static_cast<std::ptrdiff_t>(sums);
  return {DraftSums::of(std::span(values).first(sums)),
          {rest[0], rest[1], {rest + 2, values.end()}}};
}

// If there was nothing to measure on, the trained draft model counts as better.
bool IdleTrainer::is_better(const PublishReport& report) const {
  const double before = report.before.tokens_per_forward(),
               after = report.after.tokens_per_forward();
  if (!std::isfinite(report.after.sums.hidden) || !std::isfinite(report.after.sums.logits))
    return false;
  return report.after.acceptance.drafts == 0 || after >= before * (1 - options_.publish_margin);
}

}  // namespace tlt::drafter_training
