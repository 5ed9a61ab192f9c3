// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/golden_batch.h"
#include "tests/support/losing_comm.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "train/checkpoint.h"

namespace tlt::train {
namespace {

std::map<std::string, double> metrics_of(const TrainStats& stats) {
  return {stats.metrics.begin(), stats.metrics.end()};
}

TrainerOptions small_packs() {
  TrainerOptions options;
  options.max_tokens = 40;  // the golden samples make five packs
  options.optim.lr = 1e-3;
  return options;
}

TEST(TrainerTest, LossAndNormMatchGoldensForAnyPacking) {
  const auto comm = solo();
  for (const std::string& name : kGoldenModels) {
    const auto golden = read_golden(name);
    const auto model = golden_model(name);
    for (const auto& setting : golden.at("settings"))
      for (const int64_t max_tokens : {1, 40, 1000}) {
        const std::string batch = setting.at("batch");
        TrainerOptions options = small_packs();
        options.max_tokens = max_tokens;
        options.loss = golden_options(setting);
        options.optim.lr = 0;  // the weights do not change
        Trainer trainer(
            *model, options, *comm,
            {.total_steps = 1, .temperature = golden.at("batches").at(batch).at("temperature")});
        const auto samples = golden_samples(golden, batch);
        const auto got = metrics_of(trainer.update(samples, LossKind::kPolicy));
        for (const char* key : {"loss", "pg_loss", "entropy", "ppo_kl", "grad_norm", "pg_clipfrac",
                                "pg_clipfrac_lower"}) {
          const double want = setting.at(key);
          EXPECT_NEAR(got.at(std::string("actor/") + key), want, 1e-4 * std::abs(want) + 1e-5)
              << name << " " << setting.at("name") << " " << key << " packs of " << max_tokens;
        }
        if (options.loss.use_kl_loss) {
          const double want = setting.at("kl_loss");
          EXPECT_NEAR(got.at("actor/kl_loss"), want, 1e-4 * std::abs(want) + 1e-5)
              << name << " " << setting.at("name");
        }
      }
  }
}

TEST(TrainerTest, WorkersChangeNoBitOfTheWeights) {
  const auto golden = read_golden("qwen2_tied");
  const auto samples = golden_samples(golden, "t10");
  std::vector<at::Tensor> want;
  std::vector<double> norms;
  for (const int workers : {1, 2, 3, 7}) {
    std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
    std::vector<double> norm(static_cast<size_t>(workers));
    run_workers(workers, [&](cluster::Comm& comm) {
      const auto model = golden_model("qwen2_tied");
      Trainer trainer(*model, small_packs(), comm, {.total_steps = 10});
      TrainStats stats;
      for (int step = 0; step < 3; ++step)
        stats = trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
      got[static_cast<size_t>(comm.rank())] = tests::weights_of(*model);
      norm[static_cast<size_t>(comm.rank())] = metrics_of(stats).at("actor/grad_norm");
    });
    if (workers == 1) want = got[0], norms = norm;
    for (size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_TRUE(tests::all_equal(got[rank], want)) << rank << " of " << workers;
      EXPECT_EQ(norm[rank], norms[0]) << rank << " of " << workers;
    }
  }
  EXPECT_FALSE(tests::all_equal(want, tests::weights_of(*golden_model("qwen2_tied"))))
      << "nothing was learned";
}

// The covariances of these losses are those of the mini-batch, whoever computes its packs.
TEST(TrainerTest, WorkersAndPacksChangeNoBitWithCovariances) {
  const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (const char* mode : {"clip_cov", "kl_cov"}) {
    TrainerOptions options = small_packs();
    options.loss.policy_loss = {.loss_mode = mode};
    if (options.loss.policy_loss.loss_mode == "clip_cov") {
      options.loss.policy_loss.clip_cov_ratio = 0.05;
      options.loss.policy_loss.clip_cov_lb = 0.1;
    } else {
      options.loss.policy_loss.kl_cov_ratio = 0.2;
    }
    std::vector<at::Tensor> want;
    for (const int workers : {1, 3}) {
      std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
      run_workers(workers, [&](cluster::Comm& comm) {
        const auto model = golden_model("qwen2_tied");
        Trainer trainer(*model, options, comm, {.total_steps = 10});
        for (int step = 0; step < 2; ++step)
          trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
        got[static_cast<size_t>(comm.rank())] = tests::weights_of(*model);
      });
      if (workers == 1) want = got[0];
      for (const auto& weights : got) EXPECT_TRUE(tests::all_equal(weights, want)) << mode;
    }
    EXPECT_FALSE(tests::all_equal(want, tests::weights_of(*golden_model("qwen2_tied")))) << mode;
  }
}

// Whichever collective fails, the others compute the optimizer step again, and all of them or none
// have taken it. After a section they continue with what the lost worker has computed.
TEST(TrainerTest, WorkerLostAtAnyCollectiveChangesNoBitOfTheWeights) {
  const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  const auto learn = [&](cluster::Comm& comm) {
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, small_packs(), comm, {.total_steps = 10});
    for (int step = 0; step < 2; ++step)
      trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
    return tests::weights_of(*model);
  };
  const std::vector<at::Tensor> want = learn(*solo());
  for (const Loss loss : {Loss::kInCollective, Loss::kAfterSection}) {
    int losses = 0;
    for (int64_t call = 1;; ++call, ++losses) {
      const bool has_lost = run_losing_one(3, call, loss, [&](cluster::Comm& comm) {
        EXPECT_TRUE(tests::all_equal(learn(comm), want)) << comm.rank() << ", collective " << call;
      });
      if (!has_lost) break;
    }
    EXPECT_GT(losses, 10);
  }
}

// Three updates of two optimizer steps each; the second step of the second update has an advantage
// whose gradient is too large.
struct SkippingRun {
  std::vector<at::Tensor> weights;
  std::vector<int64_t> skipped, in_row, steps;  // by update
  std::string fault;

  SkippingRun(cluster::Comm& comm, bool has_fault) {
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, small_packs(), comm, {.total_steps = 10});
    for (int update = 0; update < 3; ++update) {
      auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
      const size_t half = samples.size() / 2;
      if (update == 1 && has_fault) std::ranges::fill(samples[half].advantages, 1e30F);
      // Without the fault the second mini-batch is left out: the same result.
      const auto taken = std::span(samples).first(update == 1 && !has_fault ? half : half * 2);
      const TrainStats stats = trainer.update(taken, LossKind::kPolicy, static_cast<int64_t>(half));
      skipped.push_back(stats.skipped_steps);
      in_row.push_back(trainer.optimizer().skipped_in_row());
      steps.push_back(trainer.optimizer().steps());
      if (!stats.fault.empty()) fault = stats.fault;
      EXPECT_EQ(std::isnan(metrics_of(stats).at("actor/grad_norm")), stats.skipped_steps > 0);
    }
    weights = tests::weights_of(*model);
    for (const auto& [name, tensor] : trainer.optimizer().state()) weights.push_back(tensor);
  }
};

TEST(TrainerTest, InvalidGradientSkipsTheStepOnAllWorkers) {
  const auto comm = solo();
  const SkippingRun want(*comm, /*has_fault=*/false);
  EXPECT_EQ(want.fault, "");
  for (const int workers : {1, 2, 3})
    run_workers(workers, [&](cluster::Comm& workers_comm) {
      const SkippingRun got(workers_comm, /*has_fault=*/true);
      EXPECT_EQ(got.skipped, (std::vector<int64_t>{0, 1, 0})) << workers;
      EXPECT_EQ(got.in_row, (std::vector<int64_t>{0, 1, 0})) << workers;
      EXPECT_EQ(got.steps, (std::vector<int64_t>{2, 3, 5})) << workers;
      EXPECT_THAT(got.fault, testing::HasSubstr("is not finite or above 4e6")) << workers;
      EXPECT_TRUE(tests::all_equal(got.weights, want.weights)) << workers;
    });
}

TEST(TrainerTest, TooManySkippedStepsEndTheUpdate) {
  const auto comm = solo();
  const auto model = golden_model("qwen2_tied");
  Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (TrainSample& sample : samples) std::ranges::fill(sample.advantages, 1e30F);
  trainer.optimizer().restore_skipped_in_row(7);
  trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/2);
  EXPECT_EQ(trainer.optimizer().skipped_in_row(), 8) << "one step was tried";
  trainer.optimizer().restore_skipped_in_row(kMaxSkippedSteps - 1);
  const TrainStats stats = trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/2);
  EXPECT_EQ(stats.skipped_steps, 2);
  EXPECT_EQ(trainer.optimizer().steps(), 0);
}

// What is trained of a policy, by which optimizer.
enum class Training { kAdamW, kMuon, kAdapter };

std::string name_of(Training training) {
  return training == Training::kAdamW ? "AdamW" : training == Training::kMuon ? "Muon" : "Adapter";
}

struct Pupil {
  Pupil(cluster::Comm& comm, at::ScalarType type, Training training, bool is_shared)
      : model(model::load_policy(kGolden + "models/qwen2_tied", Device::cpu(1), type)),
        adapter(training == Training::kAdapter
                    ? std::make_unique<LoraAdapter>(
                          *model, LoraConfig{.rank = 3, .alpha = 6, .targets = {"all-linear"}}, 1)
                    : nullptr),
        trainer(*model, options_of(training, is_shared), comm,
                {.total_steps = 10, .adapter = adapter.get()}) {}

  static TrainerOptions options_of(Training training, bool is_shared) {
    TrainerOptions options = small_packs();
    if (training == Training::kMuon) options.optim.optimizer = "Muon";
    options.optim.lr = 1e-2;
    options.use_distributed_optimizer = is_shared;
    return options;
  }
  void learn(int updates) {
    const auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
    for (int i = 0; i < updates; ++i)
      stats = trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
  }
  void resume(const std::string& folder, int64_t steps) {
    load_checkpoint(*find_latest(folder), trainer.optimizer(), steps);
    if (adapter) adapter->merge();
  }

  const std::unique_ptr<model::PolicyModel> model;
  const std::unique_ptr<LoraAdapter> adapter;
  Trainer trainer;
  TrainStats stats;
};

class SharedOptimizerTest : public testing::TestWithParam<std::tuple<at::ScalarType, Training>> {
 protected:
  Pupil pupil(cluster::Comm& comm, bool is_shared) const {
    return {comm, std::get<0>(GetParam()), std::get<1>(GetParam()), is_shared};
  }
};

TEST_P(SharedOptimizerTest, ChangesNoBitOfWeightsAndMetrics) {
  const auto comm = solo();
  Pupil whole = pupil(*comm, false);
  const auto start = tests::weights_of(*whole.model);
  whole.learn(3);
  const auto want = tests::weights_of(*whole.model);
  EXPECT_FALSE(tests::all_equal(want, start)) << "nothing was learned";
  for (const int workers : {1, 2, 3, 5})
    run_workers(workers, [&](cluster::Comm& workers_comm) {
      Pupil shared = pupil(workers_comm, true);
      shared.learn(3);
      EXPECT_TRUE(tests::all_equal(tests::weights_of(*shared.model), want))
          << workers_comm.rank() << " of " << workers;
      EXPECT_EQ(metrics_of(shared.stats).at("actor/grad_norm"),
                metrics_of(whole.stats).at("actor/grad_norm"));
    });
}

// Connections break in any collective: the section begins again, and weights are changed once.
TEST_P(SharedOptimizerTest, BrokenConnectionsChangeNoBit) {
  constexpr int kWorkers = 3;
  const auto comm = solo();
  Pupil whole = pupil(*comm, false);
  whole.learn(1);
  const auto want = tests::weights_of(*whole.model);
  bool has_broken = true;
  int64_t breaks = 0;
  for (int64_t call = 1; has_broken; call += call < 20 ? 1 : 37, ++breaks) {
    SharedDesk before(kWorkers), after(kWorkers);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kWorkers; ++rank)
      threads.emplace_back([&, rank] {
        ThreadComm first(before, rank), second(after, rank);
        LosingComm breaking(first, &second, call);
        Pupil shared = pupil(breaking, true);
        shared.learn(1);
        EXPECT_TRUE(tests::all_equal(tests::weights_of(*shared.model), want))
            << rank << ", collective " << call;
        if (rank == 0) has_broken = breaking.has_lost();
      });
    threads.clear();  // joins
  }
  EXPECT_GE(breaks, 20);
}

// Saved by some workers, with the state shared or not, and loaded by others.
TEST_P(SharedOptimizerTest, CheckpointLoadsOnAnyNumberOfWorkers) {
  const auto comm = solo();
  Pupil whole = pupil(*comm, false);
  whole.learn(2);
  const auto want = tests::weights_of(*whole.model);
  const std::pair<int, bool> crews[] = {{1, false}, {2, false}, {1, true}, {2, true}, {3, true}};
  for (const auto& [savers, saver_shares] : crews) {
    const TestFolder folder;
    int64_t steps = 0;
    run_workers(savers, [&, shares = saver_shares](cluster::Comm& workers) {
      Pupil saver = pupil(workers, shares);
      saver.learn(1);
      auto snapshot = saver.trainer.optimizer().snapshot();
      if (workers.rank() != 0) return;
      steps = saver.trainer.optimizer().steps();
      CheckpointWriter writer(folder.path(), 0);
      writer.save(1, {.optimizer = std::move(snapshot), .texts = {{kLoopText, "{}"}}, .files = {}});
      writer.drain();
    });
    for (const auto& [loaders, loader_shares] : crews)
      run_workers(loaders, [&, shares = loader_shares](cluster::Comm& workers) {
        Pupil loader = pupil(workers, shares);
        loader.resume(folder.path(), steps);
        loader.learn(1);
        EXPECT_TRUE(tests::all_equal(tests::weights_of(*loader.model), want))
            << workers.rank() << " of " << workers.size();
      });
  }
}

TEST_P(SharedOptimizerTest, DifferentSettingsOfWorkersAreRejected) {
  run_workers(2, [&](cluster::Comm& comm) {
    EXPECT_NE(thrown_message<InputError>([&] {
                pupil(comm, comm.rank() == 0);
              }).find("use_distributed_optimizer is true on 1 of 2 workers"),
              std::string::npos);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, SharedOptimizerTest,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(Training::kAdamW, Training::kMuon,
                                                          Training::kAdapter)),
                         [](const auto& setting) {
                           return c10::toString(std::get<0>(setting.param)) +
                                  name_of(std::get<1>(setting.param));
                         });

TEST(TrainerTest, RecomputeAndThreadsChangeNoBitOfTheWeights) {
  const auto comm = solo();
  const auto samples = golden_samples(read_golden("qwen3_tied_head32"), "t10");
  std::vector<at::Tensor> want;
  for (const bool recompute : {false, true})
    for (const int threads : {1, 2}) {
      const auto model = golden_model("qwen3_tied_head32", threads);
      TrainerOptions options = small_packs();
      options.recompute = recompute;
      Trainer trainer(*model, options, *comm, {.total_steps = 2});
      for (int step = 0; step < 2; ++step) trainer.update(samples, LossKind::kPolicy);
      if (want.empty()) want = tests::weights_of(*model);
      EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), want)) << recompute << " " << threads;
    }
}

TEST(TrainerTest, MinibatchesAndEpochsAreOptimizerStepsInOrder) {
  const auto comm = solo();
  const auto samples = golden_samples(read_golden("llama_tied"), "t10");
  const auto model = golden_model("llama_tied"), by_hand = golden_model("llama_tied");
  TrainerOptions options = small_packs();
  options.ppo_epochs = 2;
  Trainer trainer(*model, options, *comm, {.total_steps = 10});
  const TrainStats stats = trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);
  EXPECT_EQ(trainer.optimizer().steps(), 4);
  int64_t tokens = 0;
  for (const TrainSample& sample : samples) tokens += std::ssize(sample.tokens);
  EXPECT_EQ(stats.tokens, 2 * tokens);

  options.ppo_epochs = 1;
  Trainer plain(*by_hand, options, *comm, {.total_steps = 10});
  double loss = 0;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& part : {std::span(samples).first(4), std::span(samples).subspan(4)})
      loss += metrics_of(plain.update(part, LossKind::kPolicy)).at("actor/loss") / 4;
  EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), tests::weights_of(*by_hand)));
  EXPECT_NEAR(metrics_of(stats).at("actor/loss"), loss, 1e-12);
}

// Whenever a worker stops an update: it continues with the optimizer step in which it was stopped,
// also by another number of workers that have the weights.
TEST(TrainerTest, AbandonedUpdateContinuesBitForBit) {
  const auto alone = solo();
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  // The rollouts have measured the first one.
  std::ranges::fill(samples[0].advantages, 0.0F);
  samples[0].rollout_entropies.assign(samples[0].advantages.size(), 1.0F);
  for (const char* mode : {"vanilla", "kl_cov"}) {
    TrainerOptions options = small_packs();
    options.ppo_epochs = 2;
    options.loss.policy_loss.loss_mode = mode;
    if (options.loss.policy_loss.loss_mode == "kl_cov") options.loss.policy_loss.kl_cov_ratio = 0.2;
    const auto whole_model = golden_model("qwen2_tied");
    Trainer whole(*whole_model, options, *alone, {.total_steps = 10});
    const TrainStats want = whole.update(samples, LossKind::kPolicy, /*samples_per_step=*/2);
    std::set<int64_t> stopped_at;
    for (int calls = 0;; calls += 3) {
      TrainStats done;
      std::vector<std::pair<std::string, at::Tensor>> state;
      std::mutex mutex;
      run_workers(2, [&](cluster::Comm& comm) {
        const auto model = golden_model("qwen2_tied");
        Trainer trainer(*model, options, comm, {.total_steps = 10});
        int left = comm.rank() == 1 ? calls : 1'000'000;
        trainer.set_should_stop([&] { return --left < 0; });
        const TrainStats stats = trainer.update(samples, LossKind::kPolicy, 2);
        const std::lock_guard lock(mutex);
        if (comm.rank() != 0) return;
        done = stats;
        for (const auto& [name, tensor] : trainer.optimizer().state())
          state.emplace_back(name, tensor.clone());
      });
      if (!done.is_abandoned) break;
      stopped_at.insert(done.steps);
      const auto model = golden_model("qwen2_tied");
      Trainer trainer(*model, options, *alone, {.total_steps = 10});
      trainer.optimizer().load(state, done.steps);
      const TrainStats stats = trainer.update(samples, LossKind::kPolicy, 2, done);
      EXPECT_FALSE(stats.is_abandoned);
      EXPECT_EQ(metrics_of(stats), metrics_of(want)) << mode << " " << calls;
      EXPECT_EQ(stats.tokens, want.tokens) << mode << " " << calls;
      EXPECT_TRUE(tests::all_equal(tests::weights_of(*model), tests::weights_of(*whole_model)))
          << mode << " " << calls;
    }
    EXPECT_GT(std::ssize(stopped_at), 2) << "of " << want.steps << " optimizer steps";
  }
}

TEST(TrainerTest, SamplesWithoutAdvantageAreOnlyMeasured) {
  const auto comm = solo();
  auto samples = golden_samples(read_golden("llama_tied"), "t10");
  for (size_t i = 0; i < samples.size(); i += 2) std::ranges::fill(samples[i].advantages, 0.0f);
  // An entropy term too small to move a weight sends every sample through the backward pass.
  std::map<std::string, double> metrics[2];
  std::vector<at::Tensor> weights[2];
  for (const bool all_learn : {false, true}) {
    const auto model = golden_model("llama_tied");
    TrainerOptions options = small_packs();
    options.optim.lr = 1e-4;
    options.loss.entropy_coeff = all_learn ? 1e-30 : 0;
    Trainer trainer(*model, options, *comm, {.total_steps = 1});
    metrics[all_learn] = metrics_of(trainer.update(samples, LossKind::kPolicy));
    weights[all_learn] = tests::weights_of(*model);
  }
  for (const auto& [name, value] : metrics[true])
    EXPECT_NEAR(metrics[false].at(name), value, 1e-5 * std::abs(value) + 1e-12) << name;
  for (size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_TRUE(at::allclose(weights[0][i], weights[1][i], 1e-3, 2e-6)) << i;
}

TEST(TrainerTest, DifferenceIsThatBeforeTheFirstStep) {
  const auto comm = solo();
  const auto model = golden_model("llama_tied");
  auto samples = golden_samples(read_golden("llama_tied"), "t10");
  const auto logprobs = score_samples(*model, samples, {.max_tokens = 40}, *comm);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].rollout_logprobs = logprobs[i];
  Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
  const TrainStats same = trainer.update(samples, LossKind::kPolicy, 2);
  EXPECT_EQ(same.logprob_difference, 0);
  EXPECT_EQ(same.probability_difference, 0);
  const TrainStats moved = trainer.update(samples, LossKind::kPolicy, 2);
  EXPECT_GT(moved.logprob_difference, 0);
  EXPECT_GT(moved.probability_difference, 0);
  for (TrainSample& sample : samples) sample.rollout_logprobs.clear();
  EXPECT_TRUE(std::isnan(trainer.update(samples, LossKind::kSupervised).logprob_difference));
}

// The golden samples in groups of two.
std::vector<TrainSample> grouped_samples() {
  std::vector<TrainSample> samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (size_t i = 0; i < samples.size(); ++i) samples[i].group = static_cast<int64_t>(i / 2);
  return samples;
}

struct Updated {
  std::vector<at::Tensor> weights;
  std::map<std::string, double> metrics;
};

// An update by this number of workers. `before` is called on each of them before it.
Updated update(int workers, const LossOptions& loss,
               const std::function<void(Trainer&, const cluster::Comm&)>& before,
               const std::vector<TrainSample>& samples = grouped_samples()) {
  Updated updated;
  run_workers(workers, [&](cluster::Comm& comm) {
    const auto model = golden_model("qwen2_tied");
    TrainerOptions options = small_packs();
    options.loss = loss;
    Trainer trainer(*model, options, comm, {.total_steps = 10});
    if (before) before(trainer, comm);
    const auto metrics = metrics_of(trainer.update(samples, LossKind::kPolicy));
    if (comm.rank() == 0) updated = {tests::weights_of(*model), metrics};
  });
  return updated;
}

void expect_equal(const Updated& got, const Updated& want, const std::string& what) {
  EXPECT_TRUE(tests::all_equal(got.weights, want.weights)) << what;
  EXPECT_EQ(got.metrics, want.metrics) << what;
}

std::vector<LossOptions> losses() {
  std::vector<LossOptions> losses(4);
  losses[1].loss_agg_mode = "seq-mean-token-mean";
  losses[2].loss_agg_mode = "seq-mean-token-sum-norm", losses[2].loss_scale_factor = 7;
  losses[3].use_kl_loss = true, losses[3].kl_loss_coef = 0.3, losses[3].entropy_coeff = 0.1;
  return losses;
}

// Goes this number of layers through the group's packs.
void compute_layers(Trainer& trainer, std::span<const TrainSample> group, int64_t layers) {
  while (layers > 0 && trainer.compute_early(group)) --layers;
}

constexpr int64_t kAllLayers = 1000;
// No pack in progress, one in its forward pass, and one in its backward pass: two layers.
constexpr int64_t kBegunLayers[] = {0, 1, 3};

TEST(TrainerTest, EarlyGradientsChangeNoBit) {
  const std::vector<TrainSample> samples = grouped_samples();
  const auto groups = groups_of(samples);
  ASSERT_EQ(groups.size(), 3u);
  const PackPlan first(groups[0], std::vector<bool>(groups[0].size(), true),
                       small_packs().max_tokens);
  EXPECT_GT(first.packs().size(), 1u) << "a group has several packs";
  for (const LossOptions& loss : losses()) {
    const Updated want = update(1, loss, [](Trainer&, const cluster::Comm&) {});
    for (const int workers : {1, 2, 3}) {
      const Updated none = update(workers, loss, [](Trainer&, const cluster::Comm&) {});
      expect_equal(none, want, loss.loss_agg_mode + " without");
      for (const int64_t begun : kBegunLayers) {
        const Updated got = update(workers, loss, [&](Trainer& trainer, const cluster::Comm& comm) {
          // Each worker has some groups, of which the last is only begun, and one is left.
          for (size_t i = static_cast<size_t>(comm.rank()); i + 1 < groups.size();
               i += static_cast<size_t>(comm.size()))
            compute_layers(trainer, groups[i], i + 2 < groups.size() ? kAllLayers : begun);
        });
        expect_equal(got, want, loss.loss_agg_mode + " with");
      }
    }
  }
}

// Records what a forward pass computes, in the samples.
class Recorder final : public TokenLoss {
 public:
  explicit Recorder(std::vector<TrainSample>& samples) : samples_(samples) {}
  bool learns_from(const TrainSample&) const override { return false; }
  void add(const ResponseTokens& tokens, const TokenDerivatives&) override {
    TrainSample& sample = samples_.at(static_cast<size_t>(tokens.sample.id));
    const auto at = static_cast<std::ptrdiff_t>(tokens.first);
    sample.rollout_entropies.resize(sample.rollout_logprobs.size());
    std::ranges::copy(tokens.logprobs, sample.rollout_logprobs.begin() + at);
    std::ranges::copy(tokens.entropies, sample.rollout_entropies.begin() + at);
  }
  std::vector<double> take_sums() override { return {}; }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double>) const override {
    return {};
  }

 private:
  std::vector<TrainSample>& samples_;
};

// The grouped samples as if the model had rolled them out. The second group has equal scores, and so
// has a sample of the first one.
std::vector<TrainSample> rolled_out_samples() {
  std::vector<TrainSample> samples = grouped_samples();
  for (const size_t i : {1, 2, 3}) std::ranges::fill(samples[i].advantages, 0.0F);
  const auto model = golden_model("qwen2_tied");
  model::Tape tape(*model, /*recompute=*/false);
  const std::vector<TrainSample> asked = samples;
  const PackPlan plan(asked, std::vector<bool>(asked.size()), /*max_tokens=*/1000);
  Recorder recorder(samples);
  HeadLoss head(*model, /*temperature=*/1);
  for (const PlannedPack& pack : plan.packs()) {
    const std::vector<PackedSample> packed = plan.load(pack, tape);
    head.measure(model->forward(tape), packed, recorder,
                 [](const TrainSample&, int64_t, std::span<const float>) {});
  }
  return samples;
}

// The same, of which a forward pass has to measure those without a gradient.
std::vector<TrainSample> without_entropies(std::vector<TrainSample> samples) {
  for (TrainSample& sample : samples) sample.rollout_entropies.clear();
  return samples;
}

TEST(TrainerTest, WhatTheRolloutsMeasuredNeedsNoForwardPass) {
  const std::vector<TrainSample> samples = rolled_out_samples();
  std::vector<LossOptions> all = losses();
  all.pop_back();  // with KL and entropy every response has a gradient
  for (const char* mode : {"gspo", "cispo", "sapo", "clip_cov"}) {
    all.emplace_back(losses()[1]).policy_loss.loss_mode = mode;
    all.back().clip_ratio_high = 0;  // the ratio of the rollouts' policy is at its bound
  }
  for (const LossOptions& loss : all) {
    const std::string& mode = loss.policy_loss.loss_mode;
    const Updated want = update(1, loss, nullptr, without_entropies(samples));
    expect_equal(update(1, loss, nullptr, samples), want, mode);
    for (const int workers : {2, 3})
      for (const int64_t layers : {int64_t{0}, kBegunLayers[2], kAllLayers}) {
        const auto early = [&](Trainer& trainer, const cluster::Comm& comm) {
          if (!loss.policy_loss.uses_covariance())
            compute_layers(trainer, groups_of(samples)[static_cast<size_t>(comm.rank())], layers);
        };
        expect_equal(update(workers, loss, early, samples), want, mode);
      }
    std::vector<TrainSample> changed = samples;
    changed[2].rollout_entropies[0] += 1;
    const Updated other = update(1, loss, nullptr, changed);
    EXPECT_NE(other.metrics.at("actor/entropy"), want.metrics.at("actor/entropy")) << mode;
    changed = samples;
    changed[0].rollout_entropies[0] += 1;  // it has a gradient
    expect_equal(update(1, loss, nullptr, changed), want, mode);
  }
}

// Later optimizer steps have other weights than the rollouts.
TEST(TrainerTest, OnlyTheFirstStepOfAnUpdateHasTheWeightsOfTheRollouts) {
  const std::vector<TrainSample> samples = rolled_out_samples();
  const auto comm = solo();
  std::vector<Updated> updated;
  std::vector<int64_t> packs;
  for (const auto& batch : {samples, without_entropies(samples)}) {
    const auto model = golden_model("qwen2_tied");
    TrainerOptions options = small_packs();
    options.ppo_epochs = 2;
    Trainer trainer(*model, options, *comm, {.total_steps = 10});
    const TrainStats stats = trainer.update(batch, LossKind::kPolicy, /*samples_per_step=*/2);
    updated.push_back({tests::weights_of(*model), metrics_of(stats)});
    packs.push_back(stats.packs);
  }
  expect_equal(updated[0], updated[1], "two epochs of three mini-batches");
  EXPECT_EQ(packs[0], packs[1] - 1) << "the second sample is alone in its pack";
}

// An engine's fault shows even in a step without a gradient.
TEST(TrainerTest, AResponseIsComparedWithTheRolloutsIfNoneHasAGradient) {
  std::vector<TrainSample> samples = rolled_out_samples();
  for (TrainSample& sample : samples) std::ranges::fill(sample.advantages, 0.0F);
  const auto difference = [](std::span<const TrainSample> batch) {
    const auto comm = solo();
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
    return trainer.update(batch, LossKind::kPolicy).logprob_difference;
  };
  EXPECT_EQ(difference(samples), 0);
  for (TrainSample& sample : samples) sample.rollout_logprobs[0] -= 1;
  EXPECT_EQ(difference(samples), 1);
}

// All workers wait for this comparison: a long response is not compared to its end.
TEST(TrainerTest, ComparesTheBeginningOfAResponse) {
  TrainSample sample;
  sample.tokens.assign(303, 5);
  sample.response_begin = 3;
  sample.advantages.assign(300, 0.0F);
  sample.rollout_entropies.assign(300, 1.0F);
  sample.rollout_logprobs =
      score_samples(*golden_model("qwen2_tied"), {&sample, 1}, {.max_tokens = 400}, *solo())
          .front();
  const auto difference = [&](size_t at) {
    TrainSample changed = sample;
    changed.rollout_logprobs[at] -= 1;
    const auto comm = solo();
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
    return trainer.update({&changed, 1}, LossKind::kPolicy).logprob_difference;
  };
  EXPECT_NEAR(difference(255), 1, 1e-6);
  EXPECT_EQ(difference(256), 0);
}

TEST(TrainerTest, FalseEarlyGradientsAreComputedAgain) {
  const Updated want = update(2, {}, [](Trainer&, const cluster::Comm&) {});
  for (const int64_t layers : {kBegunLayers[1], kBegunLayers[2], kAllLayers}) {
    // The first `workers` of two compute the second group of these samples.
    const auto early = [&](const std::vector<TrainSample>& samples, int workers) {
      return update(2, {}, [&](Trainer& trainer, const cluster::Comm& comm) {
        if (comm.rank() < workers) compute_layers(trainer, groups_of(samples)[1], layers);
      });
    };
    expect_equal(early(grouped_samples(), 2), want, "a pack of two workers");
    std::vector<TrainSample> unscored = grouped_samples();
    unscored[3].advantages[0] += 1;
    expect_equal(early(unscored, 1), want, "before the last score");
    std::vector<TrainSample> other = grouped_samples();
    other[2].group = other[3].group = 99;
    expect_equal(early(other, 1), want, "a group that is not in the batch");
  }
}

// The golden model, after a step of training if `is_trained`.
std::unique_ptr<model::PolicyModel> golden_or_trained(bool is_trained) {
  auto model = golden_model("qwen2_tied");
  const auto comm = solo();
  Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
  if (is_trained) trainer.update(grouped_samples(), LossKind::kPolicy);
  return model;
}

// Each worker computes the gradients of its own rollouts early, and the update has none left.
TEST(TrainerTest, EarlyGradientsDoNotHideOtherWeights) {
  for (const bool is_other : {false, true}) {
    std::vector<TrainSample> samples = grouped_samples();
    samples.resize(4);
    for (const bool is_second : {false, true}) {
      const auto model = golden_or_trained(is_other && is_second);
      const auto logprobs = score_samples(*model, samples, {.max_tokens = 40}, *solo());
      const size_t first = is_second ? 2 : 0;
      for (size_t i = first; i < first + 2; ++i) samples[i].rollout_logprobs = logprobs[i];
    }
    run_workers(2, [&](cluster::Comm& comm) {
      const auto model = golden_or_trained(is_other && comm.rank() == 1);
      Trainer trainer(*model, small_packs(), comm, {.total_steps = 10});
      compute_layers(trainer, groups_of(samples)[static_cast<size_t>(comm.rank())], kAllLayers);
      const TrainStats stats = trainer.update(samples, LossKind::kPolicy);
      EXPECT_EQ(stats.logprob_difference > 0, is_other) << stats.logprob_difference;
    });
  }
}

TEST(TrainerTest, EarlyGradientsBelongToTheirOptimizerStep) {
  const std::vector<TrainSample> samples = grouped_samples();
  const auto groups = groups_of(samples);
  std::vector<at::Tensor> weights[2];
  for (const bool is_early : {false, true}) {
    const auto comm = solo();
    const auto model = golden_model("qwen2_tied");
    Trainer trainer(*model, small_packs(), *comm, {.total_steps = 10});
    if (is_early) compute_layers(trainer, groups[0], kAllLayers);
    trainer.update(samples, LossKind::kPolicy, /*samples_per_step=*/4);  // mini-batches
    trainer.update(samples, LossKind::kPolicy);
    weights[is_early] = tests::weights_of(*model);
  }
  EXPECT_TRUE(tests::all_equal(weights[0], weights[1]));
}

TEST(TrainerTest, ScoresMatchGoldenLogprobsOnEveryWorker) {
  const auto golden = read_golden("qwen3_tied_head32");
  const auto samples = golden_samples(golden, "t07");
  std::vector<std::vector<float>> first;
  for (const int workers : {1, 2, 3})
    run_workers(workers, [&](cluster::Comm& comm) {
      const auto got = score_samples(*golden_model("qwen3_tied_head32"), samples,
                                     {.temperature = 0.7, .max_tokens = 40}, comm);
      if (comm.size() == 1) first = got;
      EXPECT_EQ(got, first) << comm.rank() << " of " << comm.size();
    });
  for (size_t i = 0; i < samples.size(); ++i)
    for (size_t t = 0; t < first[i].size(); ++t)
      EXPECT_NEAR(first[i][t], golden["batches"]["t07"]["logprobs"][i][t].get<double>(), 1e-4)
          << i << " " << t;
}

TEST(TrainerTest, KnownLogprobsAreNotComputedAgain) {
  const std::vector<TrainSample> samples = grouped_samples();
  const auto model = golden_model("qwen2_tied");
  const auto want = score_samples(*model, samples, {.max_tokens = 40}, *solo());
  for (const int workers : {1, 2, 3})
    run_workers(workers, [&](cluster::Comm& comm) {
      // The last worker knows the second group; the values tell whose these are.
      std::vector<std::vector<float>> known(samples.size());
      if (comm.rank() + 1 == comm.size())
        for (const size_t i : {2, 3}) known[i].assign(want[i].size(), -9);
      const auto got = score_samples(*model, samples, {.max_tokens = 40, .known = known}, comm);
      for (size_t i = 0; i < samples.size(); ++i)
        EXPECT_EQ(got[i], i == 2 || i == 3 ? std::vector<float>(want[i].size(), -9) : want[i])
            << i << " of worker " << comm.rank() << " of " << comm.size();
    });
}

TEST(TrainerTest, LogprobsOfALostWorkerAreComputedAgain) {
  const std::vector<TrainSample> samples = grouped_samples();
  const auto model = golden_model("qwen2_tied");
  const auto want = score_samples(*model, samples, {.max_tokens = 40}, *solo());
  for (const Loss loss : {Loss::kInCollective, Loss::kAfterSection})
    for (const int64_t call : {1, 2})
      EXPECT_TRUE(run_losing_one(3, call, loss, [&](cluster::Comm& comm) {
        const auto copy = golden_model("qwen2_tied");
        EXPECT_EQ(score_samples(*copy, samples, {.max_tokens = 40}, comm), want) << call;
      }));
}

TEST(TrainerTest, DemonstrationsAreLearned) {
  const auto comm = solo();
  auto samples = golden_samples(read_golden("qwen2_tied"), "t10");
  for (TrainSample& sample : samples) sample.advantages.clear(), sample.rollout_logprobs.clear();
  for (const char* optimizer : {"AdamW", "Muon"}) {
    const auto model = golden_model("qwen2_tied");
    TrainerOptions options = small_packs();
    options.optim.optimizer = optimizer;
    options.optim.lr = 3e-3;
    Trainer trainer(*model, options, *comm, {.total_steps = 30});
    const auto loss = [&] {
      return metrics_of(trainer.update(samples, LossKind::kSupervised)).at("train/loss");
    };
    const double before = loss();
    double after = before;
    for (int step = 0; step < 15; ++step) after = loss();
    EXPECT_LT(after, 0.5 * before) << optimizer;
  }
}

}  // namespace
}  // namespace tlt::train
