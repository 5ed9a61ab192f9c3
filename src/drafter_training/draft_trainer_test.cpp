// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "cluster/launch.h"
#include "drafter_training/hidden_store.h"
#include "model/tape.h"
#include "tests/support/golden_draft.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_eagle3.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter_training {
namespace {

std::map<std::string, double> metrics_of(const DraftTrainStats& stats) {
  return {stats.metrics.begin(), stats.metrics.end()};
}

std::vector<DraftSample> made_up_samples(const model::ModelConfig& config) {
  return golden_draft_samples(read_draft_golden("qwen2_tied"), config);
}

DraftTrainOptions small_packs() {
  DraftTrainOptions options;
  options.max_tokens = 20;  // the golden samples make three packs
  options.optim.lr = 1e-2;
  return options;
}

TEST(DraftTrainerTest, LossAndNormMatchPyTorchForAnyPacking) {
  const auto comm = train::solo();
  for (const char* name : {"qwen2_tied", "qwen2_untied", "llama_tied"}) {
    const auto golden = read_draft_golden(name);
    const GoldenDrafter drafter(name);
    const auto samples = golden_draft_samples(golden, drafter.target->config());
    for (const auto& setting : golden.at("settings"))
      for (const int64_t max_tokens : {5, 18, 30, 1000}) {
        DraftTrainOptions options;
        options.max_tokens = max_tokens;
        options.loss_positions = setting.at("positions");
        options.hidden_weight = setting.at("hidden_weight");
        options.logits_weight = setting.at("logits_weight");
        options.optim.lr = 0;  // the weights do not change
        DraftTrainer trainer(drafter.network, options, *comm, 1);
        const auto got = metrics_of(trainer.step(samples));
        for (const char* key :
             {"loss", "vloss", "ploss", "top1_accuracy", "expected_acceptance", "grad_norm"}) {
          const double want = setting.at(key);
          EXPECT_NEAR(got.at(std::string("drafter/") + key), want, 1e-4 * std::abs(want) + 1e-6)
              << name << " " << key << " packs of " << max_tokens;
        }
        EXPECT_EQ(trainer.measure(samples).rows, setting.at("rows").get<double>());
      }
  }
}

TEST(DraftTrainerTest, WorkersChangeNoBitOfTheWeights) {
  std::vector<at::Tensor> want;
  double loss = 0;
  for (const int workers : {1, 2, 3}) {
    std::vector<std::vector<at::Tensor>> got(static_cast<size_t>(workers));
    std::vector<double> losses(static_cast<size_t>(workers));
    train::run_workers(workers, [&](cluster::Comm& comm) {
      const GoldenDrafter drafter("qwen2_tied");
      DraftTrainer trainer(drafter.network, small_packs(), comm, 4);
      DraftTrainStats stats;
      for (int step = 0; step < 3; ++step)
        stats = trainer.step(made_up_samples(drafter.target->config()));
      EXPECT_EQ(stats.packs, 3);
      got[static_cast<size_t>(comm.rank())] = tests::weights_of(drafter.network);
      losses[static_cast<size_t>(comm.rank())] = metrics_of(stats).at("drafter/loss");
    });
    if (workers == 1) want = got[0], loss = losses[0];
    for (size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_TRUE(tests::all_equal(got[rank], want)) << rank << " of " << workers;
      EXPECT_NEAR(losses[rank], loss, 1e-12 * loss);
    }
  }
  EXPECT_FALSE(tests::all_equal(want, tests::weights_of(GoldenDrafter("qwen2_tied").network)))
      << "nothing learned";
}

TEST(DraftTrainerTest, ChunkSizeAndThreadsChangeNoBitOfTheWeights) {
  const auto comm = train::solo();
  std::vector<at::Tensor> want;
  for (const int64_t logits_bytes : {int64_t{1} << 25, int64_t{1}})
    for (const int threads : {1, 2}) {
      const GoldenDrafter drafter("qwen2_untied", threads);
      DraftTrainer trainer(drafter.network, small_packs(), *comm, 2, logits_bytes);
      for (int step = 0; step < 2; ++step) trainer.step(made_up_samples(drafter.target->config()));
      if (want.empty()) want = tests::weights_of(drafter.network);
      EXPECT_TRUE(tests::all_equal(tests::weights_of(drafter.network), want))
          << logits_bytes << " " << threads;
    }
}

// Weights, master weights and moments after two steps, each with its optimizer's part cut after
// `elements` parameters and the last third left to finish(). `parts`: of the last step.
std::vector<at::Tensor> learned_in_parts(int64_t elements, int64_t& parts, double& norm) {
  const auto comm = train::solo();
  model::ModelConfig config = tests::tiny_config(model::Family::kQwen2);
  config.hidden = 192;  // tensors of several chunks of the norm, and of several panels of rows
  config.intermediate = 528;
  config.heads = 12;
  const auto target = tests::make_tiny_model(config, at::kFloat);
  drafter::EagleNetwork network(*target, drafter::EagleNetwork::config_for(config));
  network.initialize(3);
  DraftTrainer trainer(network, small_packs(), *comm, 2);
  const auto samples = golden_draft_samples(read_draft_golden("qwen2_tied"), config);
  const int64_t most = 60;  // then finish() does the rest
  for (int step = 0; step < 2; ++step) {
    trainer.begin(samples);
    while (trainer.run_pack() > 0) {
    }
    for (parts = 0; parts < most && trainer.try_update(elements); ++parts) {
    }
    norm = metrics_of(trainer.finish()).at("drafter/grad_norm");
    EXPECT_FALSE(trainer.is_updating());
  }
  std::vector<at::Tensor> all = tests::weights_of(network);
  for (const auto& [name, tensor] : trainer.optimizer().state()) all.push_back(tensor);
  return all;
}

TEST(DraftTrainerTest, OptimizerStepInPartsEqualsAWholeOne) {
  int64_t parts = 0;
  double norm = 0, want_norm = 0;
  const auto want = learned_in_parts(std::numeric_limits<int64_t>::max(), parts, want_norm);
  for (const int64_t elements : {1, 10'000, 100'000}) {
    EXPECT_TRUE(tests::all_equal(learned_in_parts(elements, parts, norm), want)) << elements;
    EXPECT_EQ(norm, want_norm) << elements;
    EXPECT_GT(parts, 10) << elements;
  }
}

TEST(DraftTrainerTest, InvalidGradientSkipsTheStep) {
  const auto comm = train::solo();
  std::vector<at::Tensor> want;
  for (const bool has_fault : {false, true}) {
    const GoldenDrafter drafter("qwen2_tied");
    DraftTrainOptions options = small_packs();
    DraftTrainer trainer(drafter.network, options, *comm, 2);
    const auto samples = made_up_samples(drafter.target->config());
    if (has_fault) {
      auto broken = made_up_samples(drafter.target->config());
      for (DraftSample& sample : broken) {
        const at::Tensor states = sample.states() * INFINITY;
        sample.states = [states] { return states; };
      }
      const DraftTrainStats stats = trainer.step(broken);
      EXPECT_THAT(stats.fault, testing::HasSubstr("is not finite or above 4e6"));
      EXPECT_EQ(trainer.optimizer().skipped_in_row(), 1);
    }
    EXPECT_EQ(trainer.step(samples).fault, "");
    EXPECT_EQ(trainer.optimizer().skipped_in_row(), 0);
    EXPECT_EQ(trainer.optimizer().steps(), 1);
    if (!has_fault) want = tests::weights_of(drafter.network);
    EXPECT_TRUE(tests::all_equal(tests::weights_of(drafter.network), want)) << has_fault;
  }
}

TEST(DraftTrainerTest, UnfinishedStepHasNoEffect) {
  const auto comm = train::solo();
  std::vector<at::Tensor> want;
  for (const bool leaves : {false, true}) {
    const GoldenDrafter drafter("qwen2_tied");
    DraftTrainer trainer(drafter.network, small_packs(), *comm, 2);
    const auto samples = made_up_samples(drafter.target->config());
    if (leaves) {
      trainer.begin({samples.front()});
      trainer.run_pack();
    }
    trainer.step(samples);
    if (!leaves) want = tests::weights_of(drafter.network);
    EXPECT_TRUE(tests::all_equal(tests::weights_of(drafter.network), want));
  }
}

// The sample with unused tokens and states after it.
DraftSample padded(const DraftSample& sample, int64_t pairs) {
  DraftSample out = sample;
  out.padding = static_cast<int32_t>(pairs - sample.pairs());
  out.tokens.resize(static_cast<size_t>(pairs) + 1);
  const at::Tensor states = sample.states();
  out.states = [states, fill = out.padding] {
    return at::cat({states, at::full({fill, states.size(1)}, 7.0, states.options())});
  };
  return out;
}

TEST(DraftTrainerTest, PaddingAndPackingGiveTheSameWeights) {
  const auto comm = train::solo();
  std::map<std::string, double> want;
  for (const bool pads : {false, true}) {
    const GoldenDrafter drafter("qwen2_tied");
    DraftTrainOptions options;
    DraftTrainer trainer(drafter.network, options, *comm, 2);
    std::vector<DraftSample> samples = made_up_samples(drafter.target->config());
    if (pads)
      for (DraftSample& sample : samples) sample = padded(sample, 40);
    const DraftTrainStats stats = trainer.step(samples);
    if (!pads) want = metrics_of(stats);
    for (const auto& [name, value] : metrics_of(stats))
      EXPECT_NEAR(value, want.at(name), 1e-5 * std::abs(want.at(name))) << name;
    EXPECT_EQ(stats.tokens, pads ? 40 * std::ssize(samples) : stats.tokens);
  }
}

TEST(DraftTrainerTest, StatesAreLearnedAndTheTargetIsUnchanged) {
  const auto comm = train::solo();
  const GoldenDrafter drafter("qwen2_tied");
  // Sequences of the target: its states, and the tokens it would choose.
  std::vector<DraftSample> samples;
  for (uint32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> tokens = {static_cast<int32_t>(10 + i), static_cast<int32_t>(90 + 7 * i)};
    at::Tensor states;
    for (int step = 0; step < 24; ++step) {
      model::Tape tape(*drafter.target, false);
      tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
      states = drafter.target->forward(tape).clone();
      at::Tensor logits = at::empty({states.size(0), 320}, at::kFloat);
      drafter.target->logits(states, logits);
      tokens.push_back(static_cast<int32_t>(logits[-1].argmax().item<int64_t>()));
    }
    tokens.pop_back();
    samples.push_back(make_sample(tokens, states, 2, i));
  }
  const std::string before = target_digest(*drafter.target);
  DraftTrainOptions options;
  options.optim.lr = 3e-3;
  DraftTrainer trainer(drafter.network, options, *comm, 120);
  const auto start = trainer.measure(samples);
  for (int step = 0; step < 120; ++step) trainer.step(samples);
  const auto end = trainer.measure(samples);
  EXPECT_LT(start.top[0] / start.rows, 0.2);
  EXPECT_GT(end.top[0] / end.rows, 0.6);
  EXPECT_GT(end.top[2], end.top[0]);
  EXPECT_LT(end.logits, 0.7 * start.logits);
  EXPECT_EQ(target_digest(*drafter.target), before);
}

DraftTrainOptions ttt_options(int64_t passes) {
  DraftTrainOptions options;
  options.passes = passes;
  options.max_tokens = 50;
  options.optim.lr = 1e-2;
  return options;
}

// The loss of all passes, with states computed pair by pair as in drafting.
double slow_loss(const Eagle3Drafter& drafter, const std::vector<DraftSample>& samples,
                 const DraftTrainOptions& options) {
  const drafter::DraftNetwork& network = drafter.network;
  std::vector<double> sums(static_cast<size_t>(options.passes)), counts(sums.size());
  for (const DraftSample& sample : samples)
    for (int64_t pass = 0; pass < options.passes; ++pass)
      for (int64_t pair = std::max(pass, sample.first_pair(options.positions()));
           pair < sample.pairs(); ++pair) {
        kv::KvCache cache(network.device(), network.kv_shape(), /*pages=*/4);
        const std::vector<ops::PageId> pages = {0, 1, 2, 3};
        drafter::DraftActivations activations(network, 1);
        at::Tensor next;
        for (int64_t i = 0; i <= pair; ++i) {
          ops::Batch batch;
          batch.add(&sample.tokens[static_cast<size_t>(i) + 1], 1, static_cast<int32_t>(i),
                    pages.data());
          const at::Tensor shown =
              feature_part(sample.states(), network).narrow(0, i, 1).contiguous();
          const at::Tensor features =
              i <= pair - pass ? network.features(shown, activations).clone() : next;
          next = network.forward(batch, features, cache, activations).clone();
        }
        at::Tensor drafted = at::empty({1, network.head_rows()}, at::kFloat),
                   wanted = at::empty({1, network.config().vocabulary}, at::kFloat);
        network.logits(next, activations, drafted);
        drafter.target->logits(
            final_part(sample.states(), network).narrow(0, pair + 1, 1).contiguous(), wanted);
        ++counts[static_cast<size_t>(pass)];
        if (wanted.argmax().item<int64_t>() >= network.head_rows()) continue;
        const at::Tensor p = wanted.narrow(1, 0, network.head_rows()).softmax(-1);
        sums[static_cast<size_t>(pass)] -= (p * drafted.log_softmax(-1)).sum().item<double>();
      }
  double loss = 0;
  for (size_t k = 0; k < sums.size(); ++k)
    loss += std::pow(options.pass_decay, k) * sums[k] / counts[k];
  return loss;
}

TEST(DraftTrainerTest, LossOfLaterPassesEqualsDrafting) {
  const auto comm = train::solo();
  const Eagle3Drafter drafter;
  const auto samples = drafter.samples(3, 20);
  DraftTrainOptions options = ttt_options(4);
  options.optim.lr = 0;
  const double want = slow_loss(drafter, samples, options);
  for (const int64_t max_tokens : {25, 1000}) {
    options.max_tokens = max_tokens;
    DraftTrainer trainer(drafter.network, options, *comm, 1);
    EXPECT_NEAR(metrics_of(trainer.step(samples)).at("drafter/loss"), want, 1e-4 * want)
        << "packs of " << max_tokens;
  }
}

TEST(DraftTrainerTest, WorkersAndThreadsChangeNoBitOfATttStep) {
  std::vector<at::Tensor> want;
  for (const int workers : {1, 2})
    train::run_workers(workers, [&](cluster::Comm& comm) {
      const Eagle3Drafter drafter(/*threads=*/workers);
      DraftTrainer trainer(drafter.network, ttt_options(3), comm, 3);
      for (int step = 0; step < 2; ++step) trainer.step(drafter.samples(4, 10));
      if (workers == 1) want = tests::weights_of(drafter.network);
      EXPECT_TRUE(tests::all_equal(tests::weights_of(drafter.network), want))
          << comm.rank() << " of " << workers;
    });
}

// EAGLE-3, and EAGLE with HASS's aligned contexts.
TEST(DraftTrainerTest, TttPassesImproveLaterDraftPositions) {
  const auto comm = train::solo();
  const Eagle3Drafter eagle3;
  const auto samples = eagle3.samples(6, 24);
  drafter::EagleNetwork eagle(*eagle3.target, drafter::EagleNetwork::config_for(eagle3.config()));
  eagle.initialize(/*seed=*/4);
  for (const drafter::DraftNetwork* network :
       {static_cast<const drafter::DraftNetwork*>(&eagle3.network),
        static_cast<const drafter::DraftNetwork*>(&eagle)}) {
    DraftTrainer trainer(*network, ttt_options(4), *comm, 60);
    const auto start = trainer.measure(samples);
    std::map<std::string, double> first, last;
    for (int step = 0; step < 60; ++step) {
      last = metrics_of(trainer.step(samples));
      if (step == 0) first = last;
    }
    const auto end = trainer.measure(samples);
    EXPECT_GT(end.top[0] / end.rows, 0.5) << network->algorithm();
    EXPECT_GT(end.top[0], start.top[0]) << network->algorithm();
    EXPECT_LT(last.at("drafter/loss"), 0.7 * first.at("drafter/loss")) << network->algorithm();
    EXPECT_GT(last.at("drafter/top1_accuracy_pos_4"), 0.5) << network->algorithm();
  }
}

TEST(DraftTrainerTest, SamplesWithoutPositionsThatCountAreRejected) {
  const auto comm = train::solo();
  const GoldenDrafter drafter("llama_tied");
  DraftTrainOptions options;
  DraftTrainer trainer(drafter.network, options, *comm, 1);
  std::vector<DraftSample> prompts = made_up_samples(drafter.target->config());
  prompts.resize(1);
  prompts[0].response_begin = static_cast<int32_t>(prompts[0].tokens.size()) + 1;
  EXPECT_THROW(trainer.step(prompts), InputError) << "nothing counts";
}

}  // namespace
}  // namespace tlt::drafter_training
