// FastRL's acceptance rule (docs/paper_map.md) does not keep the tokens of non-speculative
// decoding, but must keep their distribution. Chi-square tests against the target's own
// probabilities; they also detect thresholds below 1, which change the distribution.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ops/sampling.h"
#include "rollout/engine.h"
#include "tests/support/dense_model.h"
#include "tests/support/kept_probabilities.h"
#include "tests/support/plain_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt {
namespace {

using model::Family;
using tests::random_tensor;

// Standard deviations by which the statistic exceeds its mean; cells with an expected count below
// five are counted together.
template <class Key>
double chi_square(const std::map<Key, double>& probabilities, const std::map<Key, int64_t>& counts,
                  double total) {
  double statistic = 0, rest = total, rest_count = total;
  int64_t cells = 0;
  const auto add = [&](double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (const auto& [key, probability] : probabilities) {
    const double expected = probability * total;
    if (expected < 5) continue;
    const auto found = counts.find(key);
    const double count = found == counts.end() ? 0 : static_cast<double>(found->second);
    add(expected, count);
    rest -= expected;
    rest_count -= count;
  }
  if (rest >= 5) add(rest, rest_count);
  const double freedom = static_cast<double>(cells - 1);
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

constexpr double kPlausible = 4.5;

// One node, many samples: tokens by FastRL's rule with random draft tokens.
double deviation_of_one_node(const ops::SamplingRule& rule, const ops::TargetOnlyRule& target_only,
                             uint32_t trial) {
  constexpr int64_t kVocabulary = 23, kDraws = 100'000;
  const at::Tensor logits = random_tensor({1, kVocabulary}, at::kFloat, trial).mul(2);
  RandomStream random(9, {.prompt = trial});
  std::vector<int32_t> draft_tokens;
  for (int32_t token = 0; token < kVocabulary; ++token) draft_tokens.push_back(token);
  random.shuffle(draft_tokens);
  draft_tokens.resize(trial % 8);
  std::vector<ops::SampleRow> rows;
  for (int64_t i = 0; i < kDraws; ++i)
    rows.push_back({.row = 0,
                    .rule = rule,
                    .uniform = random.uniform(),
                    .target_only = &target_only,
                    .draft_tokens = draft_tokens,
                    .rest_uniform = random.uniform()});
  std::vector<ops::Sampled> sampled(rows.size());
  ops::sample_rows(Device::cpu(2), logits, kVocabulary, rows, sampled);
  std::map<int32_t, int64_t> counts;
  for (const ops::Sampled& one : sampled) ++counts[one.token];
  return chi_square(tests::kept_probabilities(logits[0], rule), counts, kDraws);
}

const std::vector<ops::SamplingRule> kRules = {{.temperature = 1},
                                               {.temperature = 0.6, .top_k = 9},
                                               {.temperature = 1.3, .top_p = 0.9},
                                               {.temperature = 1, .min_p = 0.05}};

TEST(TargetOnlyKeepsProbabilities, AtEveryNode) {
  for (const ops::SamplingRule& rule : kRules)
    for (uint32_t trial = 0; trial < 10; ++trial)
      EXPECT_LT(std::abs(deviation_of_one_node(rule, {}, trial)), kPlausible) << trial;
}

TEST(TargetOnlyKeepsProbabilities, ThresholdsBelowOneDoNot) {
  for (const ops::SamplingRule& rule : kRules) {
    EXPECT_GT(deviation_of_one_node(rule, {.threshold_acc = 0.8}, 7), 20);
    EXPECT_GT(deviation_of_one_node(rule, {.threshold_single = 0.05}, 7), 20);
  }
}

// Random draft tokens in trees of any shape, from the lower half of the vocabulary: a rule that
// favours draft tokens favours those. If the drafter got the uniforms, it would draft by them.
class RandomDrafter final : public tests::PlainDrafter {
 public:
  explicit RandomDrafter(int32_t vocabulary) : vocabulary_(vocabulary) {}
  std::string_view kind() const override { return "random"; }
  void propose(std::span<const drafter::DraftRequest> requests) override {
    for (const drafter::DraftRequest& request : requests) {
      drafter::DraftTree& tree = *request.tree;
      for (int tries = 0; tries < 12 && tree.size() + 1 < request.strategy.verify; ++tries) {
        const auto parent =
            static_cast<int32_t>(random_.below(static_cast<uint64_t>(tree.size()) + 1)) - 1;
        const int32_t depth = parent < 0 ? 0 : tree[parent].depth;
        const drafter::SharedUniforms draws = request.draws.after(depth);
        const double number = draws.empty() ? random_.uniform() : draws.numbers.front();
        const auto token = static_cast<int32_t>(number * vocabulary_ / 2);
        if (depth < request.strategy.depth && tree.find_child(parent, token) == tree.kNone)
          tree.add(parent, token, static_cast<float>(random_.uniform()));
      }
      tree.arrange();
    }
  }

 private:
  const int32_t vocabulary_;
  RandomStream random_{77, {}};
};

// Whole responses: with a small vocabulary, all sequences of a few tokens.
double deviation_of_responses(const ops::TargetOnlyRule& rule, double top_p) {
  constexpr int64_t kResponses = 20'000;
  model::ModelConfig config = tests::tiny_config(Family::kQwen2);
  config.vocabulary = 6;
  config.eos_tokens = {1};
  const auto model = tests::make_tiny_model(config, at::kFloat);
  rollout::SamplingOptions sampling;
  sampling.max_new_tokens = 4;
  sampling.top_p = top_p;
  rollout::Group group = {.prompt_id = 0,
                          .tokens = {3, 2, 5},
                          .samples = kResponses,
                          .sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
                          .seed = 21};
  rollout::EngineOptions options;
  options.max_running = 64;
  using Tokens = std::vector<int32_t>;
  std::map<Tokens, double> probabilities;
  const tests::DenseModel dense(*model);
  std::map<Tokens, std::map<int32_t, double>> next_token;  // its probabilities after a prefix
  const auto probability = [&](const rollout::Response& response) {
    double product = 1;
    Tokens prefix = group.tokens;
    for (const int32_t token : response.tokens) {
      std::map<int32_t, double>& next = next_token[prefix];
      if (next.empty()) next = tests::kept_probabilities(dense.logits(prefix)[-1], sampling.rule());
      product *= next.at(token);
      prefix.push_back(token);
    }
    return product;
  };
  rollout::Engine plain(*model, options);
  for (const auto& [place, response] : tests::run(plain, {group}))
    probabilities[response.tokens] = probability(response);
  rollout::Speculation speculation(std::make_unique<RandomDrafter>(6), {3, 3, 12}, 6);
  speculation.set_target_only(rule);
  rollout::Engine engine(*model, options, nullptr, nullptr, &speculation);
  std::map<Tokens, int64_t> counts;
  for (const auto& [place, response] : tests::run(engine, {group})) {
    ++counts[response.tokens];
    probabilities[response.tokens] = probability(response);
  }
  EXPECT_GT(speculation.stats().accepted_tokens, kResponses / 5);
  return chi_square(probabilities, counts, kResponses);
}

TEST(TargetOnlyKeepsProbabilities, OfWholeResponses) {
  EXPECT_LT(std::abs(deviation_of_responses({}, 1)), kPlausible);
  EXPECT_LT(std::abs(deviation_of_responses({}, 0.9)), kPlausible);
  EXPECT_GT(deviation_of_responses({.threshold_acc = 0.5}, 1), 20);
}

}  // namespace
}  // namespace tlt
