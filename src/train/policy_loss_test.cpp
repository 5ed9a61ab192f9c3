// SPDX-License-Identifier: Apache-2.0
#include "train/policy_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/random.h"

namespace tlt::train {
namespace {

struct Minibatch {
  std::vector<TrainSample> samples;
  std::vector<std::vector<float>> logprobs, entropies;
};

Minibatch random_minibatch(uint64_t seed, bool weighted) {
  RandomStream random(seed, {});
  Minibatch batch;
  for (int i = 0; i < 5; ++i) {
    TrainSample& sample = batch.samples.emplace_back();
    const size_t count = 1 + random.below(9);
    sample.response_begin = 2;
    sample.tokens.assign(2 + count, 1);
    batch.logprobs.emplace_back();
    batch.entropies.emplace_back();
    for (size_t t = 0; t < count; ++t) {
      const double logprob = -3 * random.uniform();
      batch.logprobs.back().push_back(static_cast<float>(logprob));
      batch.entropies.back().push_back(static_cast<float>(random.uniform()));
      // Some tokens far off: every clip and clamp is reached.
      const double scale = random.below(6) == 0 ? 12 : 0.4;
      sample.rollout_logprobs.push_back(static_cast<float>(logprob + scale * random.normal()));
      sample.reference_logprobs.push_back(static_cast<float>(logprob + scale * random.normal()));
      sample.advantages.push_back(static_cast<float>(random.normal()));
      if (weighted) sample.weights.push_back(static_cast<float>(random.below(3)));
    }
  }
  if (weighted) {  // one counts fully, one not at all
    batch.samples[0].weights.assign(batch.samples[0].weights.size(), 1.F);
    batch.samples[2].weights.assign(batch.samples[2].weights.size(), 0.F);
  }
  return batch;
}

// The loss in a second, straightforward implementation, as described in tests/golden/README.md.
double plain_loss(const LossOptions& o, const Minibatch& batch) {
  double all = 0, weights = 0, sequences = 0;
  for (const TrainSample& sample : batch.samples) {
    double weight = 0;
    for (int64_t t = 0; t < sample.response_size(); ++t) weight += sample.weight(t);
    weights += weight;
    sequences += weight > 0;
  }
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& s = batch.samples[i];
    double sum = 0, weight = 0;
    for (size_t t = 0; t < s.advantages.size(); ++t) {
      const double lp = batch.logprobs[i][t], advantage = s.advantages[t];
      const double ratio = std::exp(std::clamp(lp - s.rollout_logprobs[t], -20.0, 20.0));
      double pg = std::max(-advantage * ratio, -advantage * std::clamp(ratio, 1 - o.clip_ratio_low,
                                                                       1 + o.clip_ratio_high));
      if (advantage < 0) pg = std::min(pg, -advantage * o.clip_ratio_c);
      const double d = lp - s.reference_logprobs[t], e = std::clamp(-d, -20.0, 20.0);
      const std::map<std::string, double> kl = {
          {"kl", d},
          {"abs", std::abs(d)},
          {"mse", d * d / 2},
          {"low_var_kl", std::clamp(std::exp(e) - e - 1, -10.0, 10.0)}};
      double loss = pg - o.entropy_coeff * batch.entropies[i][t];
      if (o.use_kl_loss) loss += o.kl_loss_coef * kl.at(o.kl_loss_type);
      sum += s.weight(static_cast<int64_t>(t)) * loss;
      weight += s.weight(static_cast<int64_t>(t));
    }
    if (weight == 0) continue;
    if (o.loss_agg_mode == "token-mean") all += sum / weights;
    if (o.loss_agg_mode == "seq-mean-token-sum") all += sum / sequences;
    if (o.loss_agg_mode == "seq-mean-token-mean") all += sum / weight / sequences;
    if (o.loss_agg_mode == "seq-mean-token-sum-norm") all += sum / o.loss_scale_factor;
  }
  return all;
}

struct Result {
  std::map<std::string, double> metrics;
  std::vector<std::vector<float>> d_logprobs, d_entropies;
};

// `piece`: response tokens per call.
Result run(TokenLoss& loss, const Minibatch& batch, size_t piece = 1000) {
  Result result;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const size_t count = batch.logprobs[i].size();
    auto &d_logprob = result.d_logprobs.emplace_back(count),
         &d_entropy = result.d_entropies.emplace_back(count);
    for (size_t at = 0; at < count; at += piece) {
      const size_t n = std::min(piece, count - at);
      loss.add(
          {batch.samples[i], static_cast<int64_t>(at), std::span(batch.logprobs[i]).subspan(at, n),
           std::span(batch.entropies[i]).subspan(at, n)},
          {std::span(d_logprob).subspan(at, n), std::span(d_entropy).subspan(at, n)});
    }
  }
  for (const auto& [name, value] : loss.metrics(loss.take_sums())) result.metrics[name] = value;
  return result;
}

std::vector<LossOptions> all_options() {
  std::vector<LossOptions> all;
  for (const char* mode :
       {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"})
    for (const char* kl : {"", "kl", "abs", "mse", "low_var_kl"}) {
      LossOptions& o = all.emplace_back();
      o.clip_ratio_high = 0.28;
      o.loss_agg_mode = mode;
      o.loss_scale_factor = 37;
      o.use_kl_loss = *kl != 0;
      if (o.use_kl_loss) o.kl_loss_type = kl;
      o.kl_loss_coef = 0.3;
      o.entropy_coeff = 0.1;
    }
  return all;
}

TEST(PolicyLossTest, LossMatchesTheSimpleOneInEveryMode) {
  for (const LossOptions& options : all_options())
    for (const bool weighted : {false, true}) {
      const Minibatch batch = random_minibatch(3, weighted);
      PolicyLoss loss(options, {options, batch.samples});
      const double want = plain_loss(options, batch);
      EXPECT_NEAR(run(loss, batch).metrics.at("actor/loss"), want, 1e-6 * std::abs(want))
          << options.loss_agg_mode << " " << options.kl_loss_type;
    }
}

TEST(PolicyLossTest, SlopesMatchDifferenceQuotients) {
  int flat = 0, steep = 0;
  for (const LossOptions& options : all_options())
    for (uint64_t seed = 1; seed < 4; ++seed) {
      Minibatch batch = random_minibatch(seed, seed == 2);
      PolicyLoss loss(options, {options, batch.samples});
      const Result result = run(loss, batch);
      for (size_t i = 0; i < batch.samples.size(); ++i)
        for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
          for (const bool of_entropy : {false, true}) {
            float& x = of_entropy ? batch.entropies[i][t] : batch.logprobs[i][t];
            const float kept = x;
            x = kept + 0x1p-12F;
            const double above = plain_loss(options, batch), high = x;
            x = kept - 0x1p-12F;
            const double below = plain_loss(options, batch), low = x;
            x = kept;
            const double want = (above - below) / (high - low);
            const double got = of_entropy ? result.d_entropies[i][t] : result.d_logprobs[i][t];
            EXPECT_NEAR(got, want, 1e-5 + 1e-4 * std::abs(want))
                << options.loss_agg_mode << " " << i << " " << t;
            (want == 0 ? flat : steep) += !of_entropy;
          }
        }
    }
  EXPECT_GT(flat, 20) << "no clip was reached";
  EXPECT_GT(steep, 200);
}

TEST(PolicyLossTest, PiecesAndPartsOnSeveralWorkersAddUp) {
  for (const LossOptions& options : all_options()) {
    const Minibatch batch = random_minibatch(5, true);
    PolicyLoss whole(options, {options, batch.samples}), pieces(options, {options, batch.samples});
    const Result want = run(whole, batch), got = run(pieces, batch, 2);
    EXPECT_EQ(got.d_logprobs, want.d_logprobs);
    EXPECT_EQ(got.metrics, want.metrics);

    // Two workers: each adds some of the samples, under the denominators of all.
    std::vector<double> sums(10);
    for (const size_t worker : {0, 1}) {
      PolicyLoss part(options, {options, batch.samples});
      std::vector<float> unused(100);
      for (size_t i = worker; i < batch.samples.size(); i += 2)
        part.add({batch.samples[i], 0, batch.logprobs[i], batch.entropies[i]}, {unused, unused});
      const std::vector<double> mine = part.take_sums();
      ASSERT_EQ(mine.size(), sums.size());
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += mine[k];
    }
    for (const auto& [name, value] : whole.metrics(sums))
      EXPECT_NEAR(value, want.metrics.at(name), 1e-12) << name;
  }
}

// As for gradients that are computed before the whole batch is known.
TEST(PolicyLossTest, DenominatorsMayBeKnownLater) {
  for (const LossOptions& options : all_options()) {
    const Minibatch batch = random_minibatch(9, true);
    PolicyLoss known(options, {options, batch.samples});
    const Result want = run(known, batch);
    PolicyLoss later(options, {/*tokens=*/1024, /*sequences=*/1});
    later.complete(batch.samples);
    const Result got = run(later, batch);
    for (const auto& [name, value] : want.metrics)
      EXPECT_NEAR(got.metrics.at(name), value, 1e-12 * std::abs(value)) << name;
    for (size_t i = 0; i < want.d_logprobs.size(); ++i)
      for (size_t t = 0; t < want.d_logprobs[i].size(); ++t)
        EXPECT_NEAR(got.d_logprobs[i][t] * later.gradient_scale(), want.d_logprobs[i][t],
                    1e-6 * std::abs(want.d_logprobs[i][t]));
  }
}

TEST(PolicyLossTest, TokenOfWeightZeroHasNoEffect) {
  Minibatch batch = random_minibatch(7, true);
  batch.samples[1].weights[0] = 0;
  PolicyLoss before({}, {{}, batch.samples});
  const Result want = run(before, batch);
  batch.logprobs[1][0] = batch.entropies[1][0] = NAN;
  PolicyLoss after({}, {{}, batch.samples});
  const Result got = run(after, batch);
  EXPECT_EQ(got.metrics, want.metrics);
  EXPECT_EQ(got.d_logprobs, want.d_logprobs);
}

TEST(PolicyLossTest, OnPolicyTheRatioIsOneAndNothingIsClipped) {
  Minibatch batch = random_minibatch(8, false);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    batch.samples[i].rollout_logprobs = batch.logprobs[i];
  PolicyLoss loss({}, {{}, batch.samples});
  const Result result = run(loss, batch);
  EXPECT_EQ(result.metrics.at("actor/pg_clipfrac"), 0);
  EXPECT_EQ(result.metrics.at("actor/pg_clipfrac_lower"), 0);
  EXPECT_EQ(result.metrics.at("actor/ppo_kl"), 0);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    for (size_t t = 0; t < result.d_logprobs[i].size(); ++t)
      EXPECT_EQ(result.d_logprobs[i][t], static_cast<float>(loss.token_weight(batch.samples[i]) *
                                                            -batch.samples[i].advantages[t]));
}

// ---- truncated importance weights (algorithm.rollout_correction)

LossOptions truncated(const std::string& rollout_is, const std::string& aggregation) {
  LossOptions o;
  o.rollout_correction = {.rollout_is = rollout_is,
                          .rollout_is_threshold = 1.5,
                          .bypass_mode = true,
                          .loss_type = "reinforce"};
  o.loss_agg_mode = aggregation;
  return o;
}

// The weight of each token, computed in a straightforward way.
std::vector<std::vector<double>> plain_weights(const RolloutCorrectionOptions& o,
                                               const Minibatch& batch) {
  std::vector<std::vector<double>> weights;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& s = batch.samples[i];
    std::vector<double> differences;
    double sum = 0;
    for (size_t t = 0; t < s.advantages.size(); ++t) {
      differences.push_back(static_cast<double>(batch.logprobs[i][t]) - s.rollout_logprobs[t]);
      sum += s.weight(static_cast<int64_t>(t)) * differences.back();
    }
    weights.emplace_back();
    for (const double d : differences)
      weights.back().push_back(
          o.rollout_is == "none"
              ? 1
              : std::exp(std::clamp(o.rollout_is == "token" ? d : sum, -20.0, 20.0)));
  }
  return weights;
}

// -A w lp with the weights as constants: they have no derivative.
double plain_reinforce(const LossOptions& o, const Minibatch& batch,
                       const std::vector<std::vector<double>>& weights) {
  double all = 0, total = 0, sequences = 0;
  for (const TrainSample& sample : batch.samples) {
    double weight = 0;
    for (int64_t t = 0; t < sample.response_size(); ++t) weight += sample.weight(t);
    total += weight;
    sequences += weight > 0;
  }
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    double sum = 0, weight = 0;
    for (size_t t = 0; t < weights[i].size(); ++t) {
      const double counts = batch.samples[i].weight(static_cast<int64_t>(t));
      sum -= counts * batch.samples[i].advantages[t] * batch.logprobs[i][t] *
             std::min(weights[i][t], o.rollout_correction.rollout_is_threshold);
      weight += counts;
    }
    if (weight > 0) all += o.loss_agg_mode == "token-mean" ? sum / total : sum / weight / sequences;
  }
  return all;
}

// Calls preview() for the whole sequence before its tokens are added.
Result run_with_preview(PolicyLoss& loss, const Minibatch& batch) {
  if (loss.wants_preview())
    for (size_t i = 0; i < batch.samples.size(); ++i)
      loss.preview(batch.samples[i], 0, batch.logprobs[i]);
  return run(loss, batch);
}

TEST(PolicyLossTest, TruncatedWeightsMatchTheSimpleOnes) {
  int cut = 0, whole = 0;
  for (const char* rollout_is : {"none", "token", "sequence"})
    for (const char* aggregation : {"token-mean", "seq-mean-token-mean"})
      for (uint64_t seed = 1; seed < 9; ++seed) {
        Minibatch batch = random_minibatch(seed, seed == 2);
        const LossOptions o = truncated(rollout_is, aggregation);
        const auto weights = plain_weights(o.rollout_correction, batch);
        PolicyLoss loss(o, {o, batch.samples});
        const Result result = run_with_preview(loss, batch);
        const double want = plain_reinforce(o, batch, weights);
        EXPECT_NEAR(result.metrics.at("actor/pg_loss"), want, 1e-9 + 1e-6 * std::abs(want))
            << rollout_is << " " << aggregation;
        for (size_t i = 0; i < batch.samples.size(); ++i)
          for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
            float& x = batch.logprobs[i][t];
            const float kept = x;
            x = kept + 0x1p-10F;
            const double above = plain_reinforce(o, batch, weights), high = x;
            x = kept - 0x1p-10F;
            const double below = plain_reinforce(o, batch, weights), low = x;
            x = kept;
            const double slope = (above - below) / (high - low);
            EXPECT_NEAR(result.d_logprobs[i][t], slope, 1e-6 + 1e-4 * std::abs(slope))
                << rollout_is << " " << aggregation << " " << i << " " << t;
            (weights[i][t] > 1.5 ? cut : whole) += 1;
          }
      }
  EXPECT_GT(cut, 50);
  EXPECT_GT(whole, 50);
}

TEST(PolicyLossTest, ImportanceWeightsOnPolicyAreExactlyOne) {
  Minibatch batch = random_minibatch(8, false);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    batch.samples[i].rollout_logprobs = batch.logprobs[i];
  LossOptions gpg;
  gpg.policy_loss.loss_mode = "gpg";
  for (const char* rollout_is : {"token", "sequence"}) {
    PolicyLoss loss(truncated(rollout_is, "token-mean"),
                    {truncated(rollout_is, "token-mean"), batch.samples}),
        plain(gpg, {gpg, batch.samples});
    const Result result = run_with_preview(loss, batch);
    EXPECT_EQ(result.d_logprobs, run(plain, batch).d_logprobs);
    EXPECT_NEAR(result.metrics.at("rollout_corr/rollout_is_mean"), 1, 1e-12);
    EXPECT_NEAR(result.metrics.at("rollout_corr/rollout_is_eff_sample_size"), 1, 1e-12);
    EXPECT_EQ(result.metrics.at("rollout_corr/rollout_is_ratio_fraction_high"), 0);
  }
}

TEST(PolicyLossTest, MetricsOfWeightsCoverAllTokens) {
  const Minibatch batch = random_minibatch(3, false);
  const LossOptions o = truncated("token", "seq-mean-token-mean");
  PolicyLoss loss(o, {o, batch.samples});
  const Result result = run_with_preview(loss, batch);
  double count = 0, sum = 0, high = 0, bounded = 0, squares = 0;
  for (const auto& weights : plain_weights(o.rollout_correction, batch))
    for (const double w : weights) {
      const double b = std::clamp(w, 1 / 1.5, 1.5);
      ++count;
      sum += w;
      high += w > 1.5;
      bounded += b;
      squares += b * b;
    }
  EXPECT_NEAR(result.metrics.at("rollout_corr/rollout_is_mean"), sum / count, 1e-9 * sum);
  EXPECT_NEAR(result.metrics.at("rollout_corr/rollout_is_ratio_fraction_high"), high / count,
              1e-12);
  // 1 / mean((w / mean w)^2), as verl has it.
  EXPECT_NEAR(result.metrics.at("rollout_corr/rollout_is_eff_sample_size"),
              1 / (squares / count / (bounded / count * bounded / count)), 1e-12);
}

TEST(PolicyLossTest, ClippedLossStaysWithoutBypassMode) {
  const Minibatch batch = random_minibatch(4, false);
  for (const auto& [bypass, type] : {std::pair(false, "reinforce"), {true, "ppo_clip"}}) {
    LossOptions o = truncated("token", "token-mean");
    o.rollout_correction.bypass_mode = bypass;
    o.rollout_correction.loss_type = type;
    PolicyLoss loss(o, {o, batch.samples}), plain({}, {{}, batch.samples});
    const Result result = run(loss, batch), want = run(plain, batch);
    EXPECT_EQ(result.d_logprobs, want.d_logprobs);
    EXPECT_EQ(result.metrics, want.metrics);
  }
}

TEST(PolicyLossTest, SupervisedLossIsTheWeightedMean) {
  const Minibatch batch = random_minibatch(9, true);
  double sum = 0, probability = 0, weights = 0;
  for (size_t i = 0; i < batch.samples.size(); ++i)
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
      sum -= batch.samples[i].weights[t] * batch.logprobs[i][t];
      probability += batch.samples[i].weights[t] * std::exp(batch.logprobs[i][t]);
      weights += batch.samples[i].weights[t];
    }
  SupervisedLoss loss(batch.samples);
  const Result result = run(loss, batch, 3);
  EXPECT_NEAR(result.metrics.at("train/loss"), sum / weights, 1e-12);
  EXPECT_NEAR(result.metrics.at("train/token_probability"), probability / weights, 1e-6);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
      EXPECT_EQ(result.d_logprobs[i][t],
                static_cast<float>(-batch.samples[i].weights[t] / weights));
      EXPECT_EQ(result.d_entropies[i][t], 0);
    }
}

TEST(PolicyLossTest, ListsOfAnotherLengthAreErrors) {
  const auto refuses = [](auto change) {
    Minibatch batch = random_minibatch(1, true);
    LossOptions options;
    options.use_kl_loss = true;
    PolicyLoss accepted(options, {options, batch.samples});
    change(batch.samples);
    EXPECT_THROW(Denominators(options, batch.samples), Error);
  };
  refuses([](auto& s) { s[0].advantages.pop_back(); });
  refuses([](auto& s) { s[1].rollout_logprobs.clear(); });
  refuses([](auto& s) { s[2].reference_logprobs.clear(); });
  refuses([](auto& s) { s[3].weights.push_back(1); });
  refuses([](auto& s) { s[0].response_begin = 0; });
  refuses([](auto& s) { s.clear(); });
}

TEST(PolicyLossTest, InvalidOptionsAreRejected) {
  const auto refuses = [](auto change) {
    LossOptions o;
    o.check();
    change(o);
    EXPECT_THROW(o.check(), InputError);
  };
  refuses([](LossOptions& o) { o.loss_agg_mode = "mean"; });
  refuses([](LossOptions& o) { o.loss_agg_mode = "seq-mean-token-sum-norm"; });
  refuses([](LossOptions& o) { o.kl_loss_type = "k9"; });
  refuses([](LossOptions& o) { o.clip_ratio_c = 1; });
  refuses([](LossOptions& o) { o.clip_ratio_low = 1.5; });
  refuses([](LossOptions& o) { o.entropy_coeff = -1; });
  refuses([](LossOptions& o) { o.rollout_correction.rollout_is = "geometric"; });
  refuses([](LossOptions& o) { o.rollout_correction.rollout_is_threshold = 0; });
  refuses([](LossOptions& o) { o.rollout_correction.loss_type = "ppo"; });
  refuses([](LossOptions& o) {
    o.rollout_correction = {.bypass_mode = true, .loss_type = "reinforce"};
    o.policy_loss.loss_mode = "cispo";
  });
}

}  // namespace
}  // namespace tlt::train
