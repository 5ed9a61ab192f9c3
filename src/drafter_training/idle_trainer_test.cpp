// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/idle_trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "cluster/launch.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter_training/hidden_store.h"
#include "tests/support/losing_comm.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/ticking_clock.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter_training {
namespace {

using Weights = std::vector<at::Tensor>;

// A worker: a target that generates repetitive responses, a draft model, a trainer that has
// collected one step.
struct Site {
  explicit Site(double lr = 5e-3, uint64_t seed = 5, const IdleTrainOptions& options = small(),
                const Clock& clock = steady_clock()) {
    drafter->initialize(3);
    DraftTrainOptions training;
    training.optim.lr = lr;
    training.logits_weight = 0.5;
    training.seed = 1;
    trainer = std::make_unique<IdleTrainer>(drafter, training, options, /*is_warm=*/false, clock);
    roll_out(seed, *trainer);
  }
  static IdleTrainOptions small() {
    IdleTrainOptions options;
    options.step_tokens = 512;
    options.window = 128;
    return options;
  }
  static model::ModelConfig config() {
    model::ModelConfig config = tests::tiny_config(model::Family::kQwen2);
    config.vocabulary = 12;
    return config;
  }
  void roll_out(uint64_t seed, IdleTrainer& observed) const {
    observed.begin_step(0);
    rollout::EngineOptions options;
    options.max_running = 16;
    rollout::Engine engine(*target, options, nullptr, &observed);
    for (uint32_t id = 0; id < 12; ++id) {
      rollout::SamplingOptions sampling;
      sampling.max_new_tokens = 60;
      sampling.ignore_eos = true;
      engine.submit({.prompt_id = id,
                     .tokens = tests::random_tokens(seed, id, 4, config().vocabulary),
                     .samples = 4,
                     .sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
                     .seed = seed});
    }
    while (engine.step()) engine.take_finished();
  }
  void train(int64_t steps) {
    const int64_t end = trainer->optimizer_steps() + steps;
    while (trainer->optimizer_steps() < end) ASSERT_TRUE(trainer->try_slice());
  }
  // Offers the same sequences with states that are NaN.
  void poison() const {
    trainer->begin_step(1);
    const at::Tensor states =
        at::full({20, config().hidden}, std::numeric_limits<float>::quiet_NaN(), at::kBFloat16);
    for (uint32_t id = 0; id < 40; ++id)
      for (const uint32_t sample : {rollout::HiddenStateObserver::kPrompt, 0u}) {
        const std::vector<int32_t> tokens = tests::random_tokens(1, id, 20, 12);
        trainer->on_hidden_states(id, sample, sample == 0 ? 20 : 0, {states}, tokens);
      }
  }

  const std::unique_ptr<model::PolicyModel> target =
      tests::make_tiny_model(config(), at::kBFloat16);
  std::shared_ptr<drafter::DraftNetwork> drafter = std::make_shared<drafter::EagleNetwork>(
      *target, drafter::EagleNetwork::config_for(target->config()));
  std::unique_ptr<IdleTrainer> trainer;
};

// FastRL's publish writes the target's embedding (docs/paper_map.md).
TEST(IdleTrainerTest, PublishImprovesTheDraftModelOnly) {
  const auto comm = train::solo();
  Site site;
  const std::string target = target_digest(*site.target);
  const Weights before = tests::weights_of(*site.drafter);
  site.train(60);
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*site.drafter), before));  // until it is published
  const PublishReport report = site.trainer->publish(*comm);
  EXPECT_TRUE(report.was_trained && report.was_published);
  EXPECT_EQ(report.version, 1);
  EXPECT_EQ(report.workers, 1);
  EXPECT_FALSE(tests::all_equal(tests::weights_of(*site.drafter), before));
  EXPECT_GT(report.after.sums.acceptance, 1.2 * report.before.sums.acceptance);
  EXPECT_GT(report.after.tokens_per_forward(), 1.1 * report.before.tokens_per_forward());
  EXPECT_EQ(site.trainer->measure(*comm).tokens_per_forward(), report.after.tokens_per_forward());
  EXPECT_EQ(target_digest(*site.target), target);
  const PublishReport again = site.trainer->publish(*comm);
  EXPECT_FALSE(again.was_trained || again.was_published);
  EXPECT_EQ(again.version, 1);
}

TEST(IdleTrainerTest, WorseDraftModelIsRejectedAndTrainingRestarts) {
  const auto comm = train::solo();
  Site site;
  site.train(60);
  ASSERT_TRUE(site.trainer->publish(*comm).was_published);
  const Weights good = tests::weights_of(*site.drafter);
  Site bad(/*lr=*/1.0);
  for (size_t i = 0; i < good.size(); ++i)
    bad.drafter->parameters()[i].write(bad.drafter->device(), good[i]);
  bad.trainer->load(
      [&] {
        std::vector<std::pair<std::string, at::Tensor>> state;
        for (const model::TensorSource& source : site.trainer->optimizer_state())
          state.emplace_back(source.name, source.values());
        return state;
      }(),
      60, 4);
  bad.train(5);
  const PublishReport report = bad.trainer->publish(*comm);
  EXPECT_TRUE(report.was_trained);
  EXPECT_FALSE(report.was_published);
  EXPECT_EQ(report.version, 4);
  EXPECT_LT(report.after.tokens_per_forward(), 0.9 * report.before.tokens_per_forward());
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*bad.drafter), good));
  EXPECT_EQ(bad.trainer->optimizer_steps(), 0);
  EXPECT_EQ(bad.trainer->measure(*comm).tokens_per_forward(), report.before.tokens_per_forward());
}

// The average over two of three workers that trained, the same bits on all of them.
TEST(IdleTrainerTest, WorkersGetTheAverageWeightedByTokens) {
  std::vector<Weights> got(3), mine(3);
  std::vector<PublishReport> reports(3);
  std::vector<double> tokens(3);
  train::run_workers(3, [&](cluster::Comm& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    IdleTrainOptions options = Site::small();
    options.slice_milliseconds = 1e-3;  // one part per slice: no step is unfinished at the end
    Site site(5e-3, /*seed=*/5 + rank, options);
    site.train(rank == 2 ? 0 : 10 + 20 * comm.rank());
    for (const model::TensorSource& source : site.trainer->optimizer_state())
      if (source.name.starts_with("master.")) mine[rank].push_back(source.values());
    reports[rank] = site.trainer->publish(comm);
    tokens[rank] = static_cast<double>(site.trainer->take_stats().tokens);
    got[rank] = tests::weights_of(*site.drafter);
    for (const model::TensorSource& source : site.trainer->optimizer_state())
      if (source.name.starts_with("master.")) got[rank].push_back(source.values());
  });
  EXPECT_TRUE(reports[0].was_published);
  EXPECT_EQ(reports[0].workers, 2);
  for (const size_t rank : {size_t{1}, size_t{2}}) {
    EXPECT_TRUE(tests::all_equal(got[rank], got[0])) << rank;
    EXPECT_EQ(reports[rank].version, 1);
    EXPECT_EQ(reports[rank].after.sums.values(), reports[0].after.sums.values());
  }
  EXPECT_EQ(static_cast<double>(reports[0].tokens), tokens[0] + tokens[1]);
  const size_t parameters = mine[0].size();
  double share = -1;  // of worker 0, from the first value that differs
  for (size_t p = 0; p < parameters; ++p) {
    const at::Tensor average = got[0][parameters + p];
    if (share < 0) {
      const at::Tensor apart = (mine[0][p] - mine[1][p]).abs();
      const int64_t place = apart.argmax().item<int64_t>();
      const auto at_place = [&](const at::Tensor& t) { return t.flatten()[place].item<double>(); };
      share = (at_place(average) - at_place(mine[1][p])) /
              (at_place(mine[0][p]) - at_place(mine[1][p]));
    }
    EXPECT_TRUE(at::allclose(average, share * mine[0][p] + (1 - share) * mine[1][p], 1e-4, 1e-6));
  }
  EXPECT_NEAR(share, tokens[0] / (tokens[0] + tokens[1]), 1e-3);
  EXPECT_NEAR(share, 0.25, 0.03);  // 10 steps of 40
}

// The average is over the workers that are left, whose weights sum to one.
TEST(IdleTrainerTest, WorkerLostWhilePublishingIsLeftOutOfTheAverage) {
  const auto publish = [](cluster::Comm& comm) {
    IdleTrainOptions options = Site::small();
    options.slice_milliseconds = 1e-3;  // one part per slice: no step is unfinished at the end
    Site site(5e-3, /*seed=*/5 + static_cast<uint64_t>(comm.rank()), options);
    site.train(10 + 5 * comm.rank());
    EXPECT_EQ(site.trainer->publish(comm).workers, 2);
    return tests::weights_of(*site.drafter);
  };
  std::vector<Weights> want(2);
  train::run_workers(
      2, [&](cluster::Comm& comm) { want[static_cast<size_t>(comm.rank())] = publish(comm); });
  for (const int64_t call : {1, 2, 3})
    EXPECT_TRUE(
        train::run_losing_one(3, call, train::Loss::kInCollective, [&](cluster::Comm& comm) {
          const Weights got = publish(comm);
          EXPECT_TRUE(tests::all_equal(got, want[static_cast<size_t>(comm.rank())]))
              << comm.rank() << ", collective " << call;
        }));
}

TEST(IdleTrainerTest, InvalidGradientSkipsAStepOnly) {
  IdleTrainOptions options = Site::small();
  options.slice_milliseconds = 1e-6;  // a part of a step
  Site site(5e-3, 5, options);
  site.poison();
  IdleStats stats;
  while (stats.skipped_steps == 0) {
    ASSERT_TRUE(site.trainer->try_slice());
    stats = site.trainer->take_stats();
  }
  EXPECT_EQ(stats.skipped_steps, 1);
  EXPECT_EQ(stats.steps, 0);
  EXPECT_TRUE(site.trainer->try_slice()) << "the next step begins";
  EXPECT_FALSE(site.trainer->is_off());
}

TEST(IdleTrainerTest, ErrorTurnsTrainingOffOnItsWorkerOnly) {
  std::vector<Weights> got(2);
  train::run_workers(2, [&](cluster::Comm& comm) {
    Site site;
    if (comm.rank() == 1) site.poison();
    if (comm.rank() == 1) {
      while (site.trainer->try_slice()) {
      }
      EXPECT_TRUE(site.trainer->is_off());
    } else {
      site.train(20);
    }
    const PublishReport report = site.trainer->publish(comm);
    EXPECT_TRUE(report.was_published);
    EXPECT_EQ(report.workers, 1);
    EXPECT_EQ(report.workers_off, 1);
    got[static_cast<size_t>(comm.rank())] = tests::weights_of(*site.drafter);
    EXPECT_EQ(site.trainer->try_slice(), comm.rank() == 0);
  });
  EXPECT_TRUE(tests::all_equal(got[0], got[1]));
}

TEST(IdleTrainerTest, ErrorInCollectingTurnsTrainingOff) {
  Site site;
  const int64_t sequences = site.trainer->buffer().sequences();
  const auto offer = [&](uint32_t sample, int32_t position, int64_t width) {
    const at::Tensor states = at::zeros({1, width}, at::kBFloat16);
    site.trainer->on_hidden_states(/*prompt_id=*/1000, sample, position, {states}, std::vector{1});
  };
  constexpr uint32_t kPrompt = rollout::HiddenStateObserver::kPrompt;
  const int64_t width = Site::config().hidden;
  ASSERT_TRUE(site.trainer->try_slice());
  offer(kPrompt, /*position=*/0, width);
  offer(kPrompt, /*position=*/1, width + 1);
  EXPECT_TRUE(site.trainer->is_off());
  EXPECT_FALSE(site.trainer->try_slice());
  offer(kPrompt, /*position=*/0, width);
  offer(/*sample=*/0, /*position=*/1, width);
  EXPECT_EQ(site.trainer->buffer().sequences(), sequences);
}

TEST(IdleTrainerTest, SliceEndsInTimeAndItsStepIsResumed) {
  const auto comm = train::solo();
  const tests::TickingClock clock;
  IdleTrainOptions options = Site::small();
  options.slice_milliseconds = 12;
  Site site(5e-3, 5, options, clock);
  int slices = 0;
  for (; site.trainer->optimizer_steps() < 3; ++slices) {
    ASSERT_TRUE(site.trainer->try_slice());
    site.trainer->pause();
  }
  const IdleStats stats = site.trainer->take_stats();
  EXPECT_GT(slices, 3);  // a step took several
  EXPECT_LE(stats.longest_slice, 0.02);
  EXPECT_EQ(stats.steps, site.trainer->optimizer_steps());
  EXPECT_GT(stats.used_seconds, 0.008 * slices);
  EXPECT_EQ(site.trainer->take_stats().steps, 0);
}

TEST(IdleTrainerTest, ACheckpointKeepsTheShareOfTheIdleTime) {
  const auto comm = train::solo();
  Site site;
  site.train(2);
  EXPECT_EQ(site.trainer->trained_share(), 0);
  site.trainer->add_idle(/*idle_seconds=*/10, /*trained_seconds=*/4);
  site.trainer->add_idle(6, 0);
  EXPECT_EQ(site.trainer->trained_share(), 0.25);
  const TestFolder folder;
  std::filesystem::create_directory(folder / "state");
  site.trainer->snapshot()(folder.path());
  write_file_atomic(folder / "state/spot.json", site.trainer->save());
  Site resumed;
  resumed.trainer->resume({.folder = folder.path()}, *comm);
  EXPECT_EQ(resumed.trainer->optimizer_steps(), site.trainer->optimizer_steps());
  EXPECT_EQ(resumed.trainer->trained_share(), 0.25);
  resumed.trainer->add_idle(16, 0);
  EXPECT_EQ(resumed.trainer->trained_share(), 0.125);
}

// A draft model whose training passes take a fixed time per token.
class TimedNetwork final : public drafter::EagleNetwork {
 public:
  static constexpr double kTokenSeconds = 0.0003;

  TimedNetwork(const model::PolicyModel& target, FakeClock& clock)
      : EagleNetwork(target, config_for(target.config())), clock_(clock) {}
  std::unique_ptr<drafter::DraftNetwork> copy() const override {
    auto copy = std::make_unique<TimedNetwork>(target(), clock_);
    copy->copy_weights(*this);
    return copy;
  }
  void head(const at::Tensor& read, at::Tensor& out) const override {
    clock_.advance(kTokenSeconds * static_cast<double>(read.size(0)));
    EagleNetwork::head(read, out);
  }

 private:
  FakeClock& clock_;
};

// The end of an RL step is also the end of an unfinished train step, which counts to this RL step.
TEST(IdleTrainerTest, TrainStepThatThePublishEndsCountsToItsStep) {
  const auto comm = train::solo();
  for (const bool has_gap : {false, true}) {
    const tests::TickingClock clock;
    IdleTrainOptions options = Site::small();
    options.slice_milliseconds = 1e-3;  // a part at a time
    Site site(5e-3, /*seed=*/5, options, clock);
    if (!has_gap) {
      ASSERT_TRUE(site.trainer->try_slice());
    }
    const IdleStep step = site.trainer->end_step(*comm, /*decode_seconds=*/has_gap ? 0.03 : 0);
    EXPECT_GT(step.publish.tokens, 0);
    EXPECT_EQ((has_gap ? step.gap : step.idle).tokens, step.publish.tokens);
    EXPECT_EQ((has_gap ? step.idle : step.gap).tokens, 0);
  }
}

// Two packs of at most half a slice are done in it; a third would end after it.
TEST(IdleTrainerTest, PartThatWouldEndAfterTheSliceIsNotStarted) {
  Site site;
  FakeClock clock;
  const auto network = std::make_shared<TimedNetwork>(*site.target, clock);
  network->initialize(3);
  DraftTrainOptions training;
  training.loss_positions = "all";  // every token of a pack counts
  const IdleTrainOptions options = Site::small();
  const double slice = options.slice_milliseconds / 1000;
  training.seed = 1;
  IdleTrainer trainer(network, training, options, /*is_warm=*/false, clock);
  site.roll_out(/*seed=*/5, trainer);
  int slices = 0;
  for (; trainer.optimizer_steps() < 5; ++slices) {
    const double start = clock.seconds();
    ASSERT_TRUE(trainer.try_slice());
    EXPECT_LE(clock.seconds() - start, slice) << "slice " << slices;
  }
  const IdleStats stats = trainer.take_stats();
  EXPECT_GT(stats.used_seconds, 0.6 * slice * slices);
  EXPECT_GT(stats.longest_slice, 0.7 * slice);  // of two packs
}

// FastRL pauses an engine that is paused already, and the run hangs (docs/paper_map.md).
TEST(IdleTrainerTest, SecondPauseHasNoEffect) {
  const TestFolder folder;
  Timeline timeline(folder / "timeline.json", /*rank=*/0);
  IdleTrainOptions options = Site::small();
  options.slice_milliseconds = 1e-3;  // a part at a time
  Site site(5e-3, 5, options);
  site.trainer->set_timeline(&timeline);
  site.trainer->pause();  // there is no unfinished step
  for (int slice = 0; slice < 2; ++slice) {
    ASSERT_TRUE(site.trainer->try_slice());
    for (int i = 0; i < 3; ++i) site.trainer->pause();
  }
  timeline.flush();
  int spans = 0;
  for (const auto& event : nlohmann::json::parse(read_file(folder / "timeline.json", 1 << 20)))
    spans += event.at("ph") == "X";
  EXPECT_EQ(spans, 2);
}

TEST(IdleTrainerTest, NothingIsTrainedWithoutSequences) {
  const auto comm = train::solo();
  Site site;
  site.trainer->begin_step(1);
  site.trainer->begin_step(2);
  EXPECT_FALSE(site.trainer->try_slice());
  EXPECT_FALSE(site.trainer->is_off());
  EXPECT_FALSE(site.trainer->publish(*comm).was_trained);
  EXPECT_EQ(site.trainer->measure(*comm).acceptance.drafts, 0);
}

TEST(IdleTrainerTest, IntervalTriggerTrainsInEveryNthStep) {
  const auto comm = train::solo();
  IdleTrainOptions options = Site::small();
  options.training_interval_steps = 3;
  options.gap_share = 0;
  options.publish_margin = 1;
  Site site(5e-3, 5, options);  // has begun step 0
  for (int64_t step = 0; step < 7; ++step) {
    if (step > 0) site.trainer->begin_step(step);
    const bool trains = step % 3 == 0;
    EXPECT_EQ(site.trainer->consolidate_below(), trains ? -1 : 0);
    if (step <= 1) {  // later steps have no sequences
      EXPECT_EQ(site.trainer->try_slice(), trains);
    }
    const IdleStep done = site.trainer->end_step(*comm, /*decode_seconds=*/0);
    EXPECT_EQ(done.used_version, step > 0 ? 1 : 0);
    EXPECT_EQ(done.idle.used_seconds > 0, step == 0);
    EXPECT_EQ(done.publish.was_published, step == 0);
    EXPECT_FALSE(site.trainer->try_slice());
  }
}

TEST(IdleTrainerTest, LoadedTrainerContinuesLikeTheSavedOne) {
  const auto comm = train::solo();
  Site site;
  site.train(8);
  site.trainer->publish(*comm);
  Site other(5e-3, 5);
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const model::TensorSource& source : site.trainer->optimizer_state())
    state.emplace_back(source.name, source.values());
  other.trainer->load(state, site.trainer->optimizer_steps(), site.trainer->version());
  EXPECT_TRUE(
      tests::all_equal(tests::weights_of(*other.drafter), tests::weights_of(*site.drafter)));
  EXPECT_EQ(other.trainer->version(), 1);
  EXPECT_EQ(other.trainer->optimizer_steps(), site.trainer->optimizer_steps());
  EXPECT_GE(other.trainer->optimizer_steps(), 8);
  state.pop_back();
  EXPECT_THROW(other.trainer->load(state, 8, 1), InputError);
}

}  // namespace
}  // namespace tlt::drafter_training
