// SPDX-License-Identifier: Apache-2.0
#include "rl/spot_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/statistics.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/files/draft_folder.h"
#include "drafter/files/draft_hot_tokens.h"
#include "drafter_training/token_ranking.h"
#include "model/safetensors.h"
#include "rl/step_report.h"
#include "rollout/make_speculation.h"
#include "run/report/timeline_picture.h"

namespace tlt::rl {
namespace {

constexpr const char* kDrafterFolder = "/drafter";
constexpr const char* kFrozenFolder = "/state/drafter_frozen";
constexpr const char* kOptimizer = "/state/drafter_optimizer.safetensors";
constexpr int64_t kMaxBufferBytes = int64_t{1} << 36;

std::string buffer_file(const std::string& folder, size_t worker) {
  return fmt::format("{}/state/draft_buffer_{}.bin", folder, worker);
}

}  // namespace

// A worker's idle training in one step.
struct SpotTraining::Ledger {
  double idle_seconds = 0;  // the engine was empty, or the worker waited for rewards
  double used_seconds = 0;  // training, out of idle_seconds
  double gap_seconds = 0;   // training after a single worker's rollouts, not in idle_seconds
  int64_t steps = 0, tokens = 0;
  double longest_slice = 0;
  std::vector<double> preemptions;
  std::vector<std::pair<std::string, double>> losses;  // of the last optimizer step

  nlohmann::json to_json() const {
    return {idle_seconds, used_seconds,  gap_seconds, steps,
            tokens,       longest_slice, preemptions, losses};
  }
  static Ledger parse(const nlohmann::json& json) {
    return {json[0],
            json[1],
            json[2],
            json[3],
            json[4],
            json[5],
            json[6].get<std::vector<double>>(),
            json[7].get<std::vector<std::pair<std::string, double>>>()};
  }
};

namespace {

constexpr int64_t kRankedPrompts = 8192;  // more do not change the ranking much

std::shared_ptr<drafter::DraftNetwork> make_eagle3(const run::SpeculativeTrainOptions& options,
                                                   const model::PolicyModel& model,
                                                   const data::Dataset& prompts) {
  const model::ModelConfig& target = model.config();
  const int64_t all = target.vocabulary, wanted = options.warmup.draft_vocab_size;
  auto network = std::make_shared<drafter::Eagle3Network>(
      model, drafter::Eagle3Config::make(target, wanted > 0 ? std::min(wanted, all) : all));
  if (network->head_rows() < all) {
    std::vector<drafter_training::DraftSample> samples(
        static_cast<size_t>(std::min(kRankedPrompts, prompts.size())));
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i].tokens = prompts.prompt(static_cast<int64_t>(i)).tokens;
    network->set_head_tokens(drafter::hottest(
        drafter_training::rank_tokens(samples, target.eos_tokens, target.vocabulary),
        network->head_rows()));
  }
  network->initialize(static_cast<uint64_t>(options.trainer.seed));
  return network;
}

}  // namespace

std::shared_ptr<drafter::DraftNetwork> make_draft_network(const run::RunOptions& options,
                                                          const model::PolicyModel& model,
                                                          const data::Dataset& prompts) {
  const run::SpeculativeOptions& speculative = options.speculative;
  if (auto network = rollout::load_draft_network(speculative, model)) return network;
  const bool is_wanted =
      speculative.enable && speculative.train.spot.enable_drafter_training &&
      std::ranges::find(speculative.drafters, "eagle") != speculative.drafters.end();
  if (!is_wanted) return nullptr;
  const std::string& init = speculative.train.warmup.init;
  if (init != "random" && init != "target") return drafter::load_drafter(init, model);
  if (speculative.train.warmup.algorithm == "eagle3")
    return make_eagle3(speculative.train, model, prompts);
  auto network = std::make_shared<drafter::EagleNetwork>(
      model, drafter::EagleNetwork::config_for(model.config()));
  const auto seed = static_cast<uint64_t>(speculative.train.trainer.seed);
  init == "target" ? network->initialize_from_target(seed) : network->initialize(seed);
  return network;
}

namespace {

// Random weights have no acceptance, so a copy of them is no useful comparison.
std::optional<int64_t> freeze_after(const drafter_training::SpotOptions& options, bool is_warm) {
  if (!options.compare_frozen) return std::nullopt;
  return is_warm ? 0 : options.frozen_after_steps;
}

}  // namespace

SpotTraining::SpotTraining(std::shared_ptr<drafter::DraftNetwork> network,
                           const run::SpeculativeTrainOptions& options, bool is_warm)
    : network_(std::move(network)),
      options_(options),
      buffer_({.bytes = options.spot.buffer_bytes,
               .seed = static_cast<uint64_t>(options.trainer.seed),
               .layers = drafter_training::layers_to_record(*network_)}),
      trainer_(network_, buffer_, options.trainer, options.spot),
      freeze_after_(freeze_after(options.spot, is_warm)) {
  freeze_when_due();
}

void SpotTraining::set_timeline(Timeline* timeline) {
  timeline_ = timeline;
  trainer_.set_timeline(timeline);
}

void SpotTraining::freeze_when_due() {
  if (freeze_after_ && !frozen_ && trained_steps_ >= *freeze_after_) frozen_ = network_->copy();
}

void SpotTraining::begin_step(int64_t step) {
  buffer_.begin_step();
  trains_ = options_.spot.is_paper_trigger() ? step % options_.spot.training_interval_steps == 0
                                             : trigger_.wants_training();
}

void SpotTraining::offer(uint32_t prompt_id, uint32_t sample, int32_t position,
                         const at::Tensor& hidden, std::span<const int32_t> tokens) {
  if (!collects_) return;
  try {
    buffer_.offer(prompt_id, sample, position, hidden, tokens);
  } catch (const std::exception& error) {
    collects_ = false;
    buffer_.end_step();
    log_warning(
        "collecting hidden states for the draft model failed and is off on this worker; the "
        "run continues: {}",
        error.what());
  }
}

bool SpotTraining::try_slice() { return trains_ && trainer_.try_slice(); }

void SpotTraining::train_in_gap(const PhaseTimes& times) {
  const double end = steady_clock().seconds() + options_.spot.gap_share * times.decode_seconds;
  while (steady_clock().seconds() < end && try_slice()) {
  }
  trainer_.pause();
}

void SpotTraining::end_step(cluster::Comm& comm, const PhaseTimes& times, Metrics& metrics) {
  const Stopwatch watch;
  buffer_.end_step();
  drafter_training::SpotStats stats = trainer_.take_stats();
  Ledger mine{.idle_seconds = times.idle_seconds + times.reward_seconds,
              .used_seconds = stats.used_seconds,
              .steps = stats.steps,
              .tokens = stats.tokens,
              .longest_slice = stats.longest_slice,
              .preemptions = times.preemption_seconds,
              .losses = stats.last_step.metrics};
  if (comm.size() == 1) {
    train_in_gap(times);
    stats = trainer_.take_stats();
    mine.gap_seconds = stats.used_seconds;
    mine.steps += stats.steps;
    mine.tokens += stats.tokens;
    mine.longest_slice = std::max(mine.longest_slice, stats.longest_slice);
    if (stats.steps > 0) mine.losses = stats.last_step.metrics;
  }
  const TimelineSpan span(timeline_, run::kPublishLane, "publish");
  metrics.set("speculation/drafter_version", static_cast<double>(trainer_.version()));
  drafter_training::PublishReport report = trainer_.publish(comm);
  if (report.was_trained) {
    ++trained_steps_;
    trigger_.trained(report.before.tokens_per_forward(), report.after.tokens_per_forward());
  } else if (freeze_after_ || (!trains_ && !options_.spot.is_paper_trigger())) {
    report.before = trainer_.measure(comm);
    if (!trains_) trigger_.rested(report.before.tokens_per_forward());
  }
  trains_ = false;
  if (frozen_) report_figures(trainer_.measure(*frozen_, comm), "frozen", metrics);
  freeze_when_due();
  report_times(comm, mine, metrics);
  report_publish(report, metrics);
  metrics.set("drafter/collected_samples", static_cast<double>(buffer_.sequences()));
  metrics.set("drafter/buffer_bytes", static_cast<double>(buffer_.bytes()));
  metrics.set("timing_s/drafter", watch.seconds());
}

void SpotTraining::report_times(cluster::Comm& comm, const Ledger& mine, Metrics& metrics) const {
  Ledger all;
  int worker = 0;
  for (const std::string& text : comm.all_gather_bytes(mine.to_json().dump())) {
    const Ledger its = Ledger::parse(nlohmann::json::parse(text));
    const std::string name = fmt::format("drafter/worker_{}/", worker++);
    metrics.set(name + "idle_seconds", its.idle_seconds);
    metrics.set(name + "used_seconds", its.used_seconds);
    metrics.set(name + "lost_seconds", std::max(0.0, its.idle_seconds - its.used_seconds));
    metrics.set(name + "steps", static_cast<double>(its.steps));
    metrics.set(name + "tokens", static_cast<double>(its.tokens));
    all.idle_seconds += its.idle_seconds;
    all.used_seconds += its.used_seconds;
    all.gap_seconds += its.gap_seconds;
    all.steps += its.steps;
    all.tokens += its.tokens;
    all.longest_slice = std::max(all.longest_slice, its.longest_slice);
    all.preemptions.insert(all.preemptions.end(), its.preemptions.begin(), its.preemptions.end());
    if (all.losses.empty()) all.losses = its.losses;
  }
  metrics.set("drafter/idle_seconds", all.idle_seconds);
  metrics.set("drafter/used_seconds", all.used_seconds);
  metrics.set("drafter/lost_seconds", std::max(0.0, all.idle_seconds - all.used_seconds));
  metrics.set("drafter/gap_seconds", all.gap_seconds);
  metrics.set("drafter/steps", static_cast<double>(all.steps));
  metrics.set("drafter/tokens", static_cast<double>(all.tokens));
  if (all.steps > 0) metrics.set("drafter/longest_slice_seconds", all.longest_slice);
  if (!all.preemptions.empty()) {
    metrics.set("drafter/preemption_seconds/median", percentile(all.preemptions, 0.5));
    metrics.set("drafter/preemption_seconds/max", percentile(all.preemptions, 1));
  }
  for (const auto& [name, value] : all.losses) metrics.set(name, value);
}

void SpotTraining::report_publish(const drafter_training::PublishReport& report,
                                  Metrics& metrics) const {
  metrics.set("drafter/trained", report.was_trained ? 1 : 0);
  metrics.set("drafter/published", report.was_published ? 1 : 0);
  metrics.set("drafter/refused", report.was_trained && !report.was_published ? 1 : 0);
  metrics.set("drafter/workers_off", static_cast<double>(report.workers_off));
  metrics.set("drafter/version", static_cast<double>(report.version));
  report_figures(report.before, "before", metrics);
  report_figures(report.after, "after", metrics);
}

void SpotTraining::report_figures(const drafter_training::HeldOutFigures& figures,
                                  const char* moment, Metrics& metrics) {
  if (figures.sums.rows == 0) return;
  const auto set = [&](const char* name, double value) {
    metrics.set(fmt::format("drafter/{}/{}", name, moment), value);
  };
  set("top1_accuracy", figures.sums.top[0] / figures.sums.rows);
  set("top3_accuracy", figures.sums.top[2] / figures.sums.rows);
  set("expected_acceptance", figures.sums.acceptance / figures.sums.rows);
  if (figures.acceptance.drafts > 0) set("acceptance_length", figures.tokens_per_forward());
}

// --- checkpoints ---

void SpotTraining::gather(cluster::Comm& comm) {
  if (options_.spot.save_buffer) gathered_ = comm.all_gather_bytes(buffer_.save());
}

std::function<void(const std::string& folder)> SpotTraining::snapshot() {
  const auto drafter =
      std::make_shared<drafter::DraftSnapshot>(drafter::snapshot_drafter(*network_));
  const auto optimizer = std::make_shared<std::vector<model::TensorSource>>(trainer_.snapshot());
  const auto buffers = std::make_shared<std::vector<std::string>>(std::exchange(gathered_, {}));
  // A frozen copy of a loaded draft model is not saved: it is loaded again.
  const auto frozen = freeze_after_.value_or(0) > 0 ? frozen_ : nullptr;
  return [drafter, optimizer, buffers, frozen](const std::string& folder) {
    drafter::save_drafter(*drafter, folder + kDrafterFolder);
    if (frozen) drafter::save_drafter(drafter::describe_drafter(*frozen), folder + kFrozenFolder);
    model::write_safetensors(folder + kOptimizer, *optimizer);
    for (size_t worker = 0; worker < buffers->size(); ++worker)
      write_file_atomic(buffer_file(folder, worker), (*buffers)[worker]);
  };
}

std::string SpotTraining::save() const {
  return nlohmann::json{{"version", trainer_.version()},
                        {"optimizer_steps", trainer_.optimizer_steps()},
                        {"trained_steps", trained_steps_},
                        {"trigger", trigger_.save()}}
             .dump(1) +
         "\n";
}

void SpotTraining::resume(const train::CheckpointPlace& checkpoint, const cluster::Comm& comm) {
  const std::optional<std::string> text = train::read_text(checkpoint, kSpotText);
  if (!text || !std::filesystem::exists(checkpoint.folder + kOptimizer)) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    model::SafetensorsFile file(checkpoint.folder + kOptimizer);
    std::vector<std::pair<std::string, at::Tensor>> state;
    for (const std::string& name : trainer_.state_names())
      state.emplace_back(name, file.read(name));
    trainer_.load(state, json.at("optimizer_steps").get<int64_t>(),
                  json.at("version").get<int64_t>());
    trigger_.restore(json.at("trigger"));
    trained_steps_ = json.value("trained_steps", int64_t{0});
    if (const std::string frozen = checkpoint.folder + kFrozenFolder;
        freeze_after_.value_or(0) > 0 && std::filesystem::exists(frozen)) {
      std::shared_ptr<drafter::DraftNetwork> network = network_->copy();
      drafter::load_draft_weights(frozen, *network);
      frozen_ = std::move(network);
    }
    // The buffers of any number of workers, distributed over the present ones.
    for (auto worker = static_cast<size_t>(comm.rank());
         std::filesystem::exists(buffer_file(checkpoint.folder, worker));
         worker += static_cast<size_t>(comm.size()))
      buffer_.add(read_file(buffer_file(checkpoint.folder, worker), kMaxBufferBytes));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(checkpoint.folder, "/state/", kSpotText,
                                            ": not a state of idle training (", error.what(),
                                            "); delete it to start without"));
  }
}

void SpotTraining::write_drafter(const std::string& folder) const {
  AtomicFolder drafter(folder);
  drafter::save_drafter(*network_, drafter.path());
  drafter.commit();
}

}  // namespace tlt::rl
