// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/acceptance_probe.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "cluster/launch.h"
#include "drafter/eagle/draft_tape.h"
#include "drafter_training/draft_trainer.h"
#include "tests/support/golden_draft.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_eagle3.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kSteps = 5;

// The larger Q, K and V are, the more the result depends on which positions a draft
// token attends to.
struct SharpDrafter : GoldenDrafter {
  explicit SharpDrafter(double scale) : GoldenDrafter("qwen2_tied") {
    network.initialize(/*seed=*/7);
    for (const model::Parameter& parameter : network.parameters())
      if (parameter.name().find("_proj.weight") != std::string::npos)
        parameter.write(network.device(), parameter.read(network.device()) * scale);
  }
};

// The draft model's states for tokens and features, recomputed from the first token: the reference.
at::Tensor states_of(const drafter::DraftNetwork& network, const std::vector<int32_t>& tokens,
                     const at::Tensor& features) {
  drafter::DraftTape tape;
  tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
  return network.forward(tape, features).clone();
}

int32_t best_token(const model::PolicyModel& target, const at::Tensor& state) {
  at::Tensor logits = at::empty({1, target.config().vocabulary}, at::kFloat);
  target.logits(state.reshape({1, -1}), logits);
  return static_cast<int32_t>(logits.argmax().item<int64_t>());
}

// A sequence in which the draft model is often right: four of five tokens and states are its own.
DraftSample drafter_like_sample(const GoldenDrafter& drafter, int64_t size, uint32_t id) {
  const int64_t hidden = drafter.target->config().hidden;
  std::vector<int32_t> tokens = {static_cast<int32_t>(id), 5};
  at::Tensor states = wave({1, hidden}, 0.61, id, 1.5);
  for (int64_t i = 2; i <= size; ++i) {
    const std::vector<int32_t> seen(tokens.begin() + 1, tokens.end());
    at::Tensor next = states_of(drafter.network, seen, states).narrow(0, i - 2, 1);
    const auto number = static_cast<uint32_t>(i);
    const bool other_token = uniform(id, {.position = number}) < 0.15;
    const int32_t token =
        other_token ? static_cast<int32_t>(7 * i % 300) : best_token(*drafter.target, next);
    if (uniform(id, {.sample = 1, .position = number}) < 0.15)
      next = wave({1, hidden}, 0.3, static_cast<double>(i), 1.5);
    tokens.push_back(token);
    states = at::cat({states, next});
  }
  tokens.pop_back();
  return make_sample(tokens, states, 3, id);
}

int64_t slow_accepted_tokens(const GoldenDrafter& drafter, const DraftSample& sample,
                             int64_t pair) {
  std::vector<int32_t> tokens(sample.tokens.begin() + 1, sample.tokens.begin() + pair + 2);
  at::Tensor features = sample.states().narrow(0, 0, pair + 1);
  for (int64_t right = 0; right < kSteps; ++right) {
    const at::Tensor state =
        states_of(drafter.network, tokens, features).narrow(0, std::ssize(tokens) - 1, 1);
    const int32_t drafted_token = best_token(*drafter.target, state);
    const int64_t place = pair + 2 + right;
    if (place >= std::ssize(sample.tokens) ||
        sample.tokens[static_cast<size_t>(place)] != drafted_token)
      return right;
    tokens.push_back(drafted_token);
    features = at::cat({features, state});
  }
  return kSteps;
}

Acceptance slow_acceptance(const GoldenDrafter& drafter, std::span<const DraftSample> samples) {
  Acceptance slow;
  slow.accepted.resize(kSteps);
  for (const DraftSample& sample : samples) {
    // `last` is the last committed token.
    for (int64_t last = sample.response_begin; last + 1 < std::ssize(sample.tokens);) {
      const int64_t right = slow_accepted_tokens(drafter, sample, last - 1);
      const int64_t committed = std::min(right + 1, std::ssize(sample.tokens) - 1 - last);
      slow.drafts += 1;
      slow.tokens += static_cast<double>(committed);
      for (int64_t k = 0; k < right; ++k) slow.accepted[static_cast<size_t>(k)] += 1;
      last += committed;
    }
  }
  return slow;
}

TEST(AcceptanceProbeTest, EqualsRecomputingEveryDraftToken) {
  for (const double scale : {1.0, 2.0, 3.0}) {
    const SharpDrafter drafter(scale);
    std::vector<DraftSample> samples;
    for (const int64_t size : {2, 3, 17, 50, 60, 61})
      samples.push_back(drafter_like_sample(drafter, size, static_cast<uint32_t>(size)));
    const Acceptance want = slow_acceptance(drafter, samples);
    ASSERT_GT(want.accepted[kSteps - 1], 0) << "no chain is fully accepted: the test is too weak";
    ASSERT_LT(want.accepted[kSteps - 1], want.drafts);
    for (const int workers : {1, 2, 3})
      train::run_workers(workers, [&](cluster::Comm& comm) {
        const SharpDrafter own(scale);
        const Acceptance got = AcceptanceProbe(own.network, kSteps).measure(samples, comm);
        EXPECT_EQ(got.drafts, want.drafts) << workers << " workers, scale " << scale;
        EXPECT_EQ(got.tokens, want.tokens) << workers << " workers, scale " << scale;
        EXPECT_EQ(got.accepted, want.accepted) << workers << " workers, scale " << scale;
      });
  }
}

// Recomputes from the first pair to the last draft token, row by row.
int64_t slow_accepted_tokens(const Eagle3Drafter& drafter, const DraftSample& sample,
                             int64_t pair) {
  const drafter::DraftNetwork& network = drafter.network;
  kv::KvCache cache(network.device(), network.kv_shape(), /*pages=*/8);
  const std::vector<ops::PageId> pages = {0, 1, 2, 3, 4, 5, 6, 7};
  drafter::DraftActivations activations(network, 1);
  at::Tensor next;
  for (int64_t i = 0; i < pair + kSteps; ++i) {
    const at::Tensor shown = feature_part(sample.states(), network);
    const at::Tensor features =
        i <= pair ? network.features(shown.narrow(0, i, 1).contiguous(), activations).clone()
                  : next;
    ops::Batch batch;
    batch.add(&sample.tokens[static_cast<size_t>(i) + 1], 1, static_cast<int32_t>(i), pages.data());
    next = network.forward(batch, features, cache, activations).clone();
    if (i < pair) continue;
    at::Tensor logits = at::empty({1, network.head_rows()}, at::kFloat);
    network.logits(next, activations, logits);
    const int32_t drafted_token = network.token_of(logits.argmax().item<int64_t>());
    const int64_t place = i + 2;
    if (place >= std::ssize(sample.tokens) ||
        sample.tokens[static_cast<size_t>(place)] != drafted_token)
      return i - pair;
  }
  return kSteps;
}

TEST(AcceptanceProbeTest, Eagle3DraftsWithItsOwnHead) {
  const Eagle3Drafter drafter;
  const auto samples = drafter.samples(4, 30);
  const auto comm = train::solo();
  DraftTrainOptions options;
  options.passes = 3;
  options.optim.lr = 1e-2;
  DraftTrainer trainer(drafter.network, options, *comm, 30);
  for (int step = 0; step < 30; ++step) trainer.step(samples);
  double drafts = 0, tokens = 0, right = 0;
  for (const DraftSample& sample : samples)
    for (int64_t last = sample.response_begin; last + 1 < std::ssize(sample.tokens);) {
      const int64_t accepted = slow_accepted_tokens(drafter, sample, last - 1);
      const int64_t committed = std::min(accepted + 1, std::ssize(sample.tokens) - 1 - last);
      drafts += 1;
      tokens += static_cast<double>(committed);
      right += static_cast<double>(accepted);
      last += committed;
    }
  ASSERT_GT(right, drafts) << "nothing was learned: the test is too weak";
  const Acceptance got = AcceptanceProbe(drafter.network, kSteps).measure(samples, *comm);
  EXPECT_EQ(got.drafts, drafts);
  EXPECT_EQ(got.tokens, tokens);
  EXPECT_EQ(std::accumulate(got.accepted.begin(), got.accepted.end(), 0.0), right);
}

}  // namespace
}  // namespace tlt::drafter_training
