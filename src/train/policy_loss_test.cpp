// SPDX-License-Identifier: Apache-2.0
#include "train/policy_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

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
// The difference quotient of plain() by x.
template <class Plain>
double slope_by(float& x, float step, const Plain& plain) {
  const float kept = x;
  x = kept + step;
  const double above = plain(), high = x;
  x = kept - step;
  const double below = plain(), low = x;
  x = kept;
  return (above - below) / (high - low);
}

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
            const double want = slope_by(of_entropy ? batch.entropies[i][t] : batch.logprobs[i][t],
                                         0x1p-12F, [&] { return plain_loss(options, batch); });
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
    std::vector<double> sums(12);
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
  o.rollout_correction = {.rollout_is = rollout_is, .rollout_is_threshold = 1.5};
  o.policy_loss.loss_mode = "reinforce";
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
            const double slope = slope_by(batch.logprobs[i][t], 0x1p-10F,
                                          [&] { return plain_reinforce(o, batch, weights); });
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

TEST(PolicyLossTest, ImportanceWeightsAreOnlyThoseOfReinforce) {
  const Minibatch batch = random_minibatch(4, false);
  LossOptions o = truncated("token", "token-mean");
  o.policy_loss.loss_mode = "vanilla";
  PolicyLoss loss(o, {o, batch.samples}), plain({}, {{}, batch.samples});
  const Result result = run(loss, batch), want = run(plain, batch);
  EXPECT_EQ(result.d_logprobs, want.d_logprobs);
  EXPECT_EQ(result.metrics, want.metrics);
}

// ---- sapo, geo_mean, clip_cov, kl_cov: written out as in tests/golden/README.md

struct CovarianceChoice {
  size_t sample, token;
  double covariance;
};

std::vector<CovarianceChoice> plain_covariances(const Minibatch& batch) {
  double weight = 0, advantage = 0, logprob = 0;
  for (size_t i = 0; i < batch.samples.size(); ++i)
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
      const double w = batch.samples[i].weight(static_cast<int64_t>(t));
      weight += w;
      advantage += w * batch.samples[i].advantages[t];
      logprob += w * batch.logprobs[i][t];
    }
  std::vector<CovarianceChoice> found;
  for (size_t i = 0; i < batch.samples.size(); ++i)
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t)
      if (batch.samples[i].weight(static_cast<int64_t>(t)) > 0)
        found.push_back({i, t,
                         (batch.samples[i].advantages[t] - advantage / weight) *
                             (batch.logprobs[i][t] - logprob / weight)});
  return found;
}

using Choice = std::set<std::pair<size_t, size_t>>;  // of (sample, token)

// With clip_cov_ratio 1: every token between the bounds that is not clipped.
Choice plain_choice(const LossOptions& o, const Minibatch& batch) {
  std::vector<CovarianceChoice> all = plain_covariances(batch);
  Choice choice;
  if (o.policy_loss.loss_mode == "kl_cov") {
    std::ranges::sort(all, std::ranges::greater(), &CovarianceChoice::covariance);
    const auto share = static_cast<size_t>(
        std::floor(o.policy_loss.kl_cov_ratio * static_cast<double>(all.size())));
    for (size_t i = 0; i < std::max<size_t>(share, 1); ++i)
      choice.emplace(all[i].sample, all[i].token);
  }
  if (o.policy_loss.loss_mode == "clip_cov")
    for (const auto& [i, t, covariance] : all) {
      const double a = batch.samples[i].advantages[t],
                   r = std::exp(double{batch.logprobs[i][t]} -
                                batch.samples[i].rollout_logprobs[t]);
      const double clipped = std::clamp(r, 1 - o.clip_ratio_low, 1 + o.clip_ratio_high);
      if (covariance > o.policy_loss.clip_cov_lb && covariance < o.policy_loss.clip_cov_ub &&
          -a * clipped <= -a * r)
        choice.emplace(i, t);
    }
  return choice;
}

double plain_term(const LossOptions& o, double advantage, double d, bool is_chosen) {
  const std::string& mode = o.policy_loss.loss_mode;
  const double r = std::exp(mode == "sapo" ? std::clamp(d, -20.0, 20.0) : d);
  if (mode == "sapo") {
    const double tau = advantage > 0 ? o.tau_pos : o.tau_neg;
    return -advantage * (4 / tau) / (1 + std::exp(-tau * (r - 1)));
  }
  if (mode == "kl_cov")
    return -advantage * r + (is_chosen ? o.policy_loss.ppo_kl_coef * std::abs(d) : 0);
  if (is_chosen) return 0;
  return std::max(-advantage * r,
                  -advantage * std::clamp(r, 1 - o.clip_ratio_low, 1 + o.clip_ratio_high));
}

// -(mean A) (product of the bounded ratios)^(1 / tokens), of one response; weights are 0 or 1.
double plain_geo_mean(const LossOptions& o, const TrainSample& s, const std::vector<float>& lps) {
  double product = 1, advantage = 0, count = 0;
  for (size_t t = 0; t < lps.size(); ++t) {
    if (s.weight(static_cast<int64_t>(t)) == 0) continue;
    const double ratio = std::exp(double{lps[t]} - s.rollout_logprobs[t]);
    product *= s.advantages[t] > 0   ? std::min(ratio, std::exp(o.clip_ratio_high))
               : s.advantages[t] < 0 ? std::max(ratio, std::exp(-o.clip_ratio_low))
                                     : 1;
    advantage += s.advantages[t];
    ++count;
  }
  return count > 0 ? -advantage / count * std::pow(product, 1 / count) : 0;
}

double plain_loss_with(const LossOptions& o, const Minibatch& batch, const Choice& choice) {
  double token_sum = 0, tokens = 0, of_sequences = 0, sequences = 0;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& s = batch.samples[i];
    double sum = 0, weight = 0;
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
      const double w = s.weight(static_cast<int64_t>(t));
      const double d = double{batch.logprobs[i][t]} - s.rollout_logprobs[t];
      sum += w * plain_term(o, s.advantages[t], d, choice.contains({i, t}));
      weight += w;
    }
    if (weight == 0) continue;
    token_sum += sum;
    tokens += weight;
    ++sequences;
    of_sequences += o.policy_loss.loss_mode == "geo_mean" ? plain_geo_mean(o, s, batch.logprobs[i])
                                                          : sum / weight;
  }
  return o.loss_agg_mode == "token-mean" ? token_sum / tokens : of_sequences / sequences;
}

LossOptions loss_named(const std::string& mode) {
  LossOptions o;
  o.policy_loss.loss_mode = mode;
  o.clip_ratio_high = 0.28;
  if (mode == "sapo" || mode == "geo_mean") o.loss_agg_mode = "seq-mean-token-mean";
  if (mode == "sapo") o.tau_pos = 1.5, o.tau_neg = 0.7;
  if (mode == "clip_cov")
    o.policy_loss = {.loss_mode = mode, .clip_cov_ratio = 1, .clip_cov_lb = 0.1, .clip_cov_ub = 1};
  if (mode == "kl_cov")
    o.policy_loss = {.loss_mode = mode, .kl_cov_ratio = 0.3, .ppo_kl_coef = 0.4};
  return o;
}

// Weights of 0 and 1; GRPO's advantages are those of whole responses. `most`: of |lp - rollout|,
// since not every loss is bounded, and a huge one leaves no digits for difference quotients.
Minibatch bounded_minibatch(uint64_t seed, float most) {
  Minibatch batch = random_minibatch(seed, seed % 3 == 0);
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    TrainSample& sample = batch.samples[i];
    for (float& weight : sample.weights) weight = weight > 0 ? 1 : 0;
    if (seed % 2 == 0) std::ranges::fill(sample.advantages, sample.advantages[0]);
    for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
      const float lp = batch.logprobs[i][t];
      sample.rollout_logprobs[t] = std::clamp(sample.rollout_logprobs[t], lp - most, lp + most);
    }
  }
  return batch;
}

// Whether a loss has a kink there, where a difference quotient is no derivative.
bool is_near_kink(double d) {
  return std::ranges::any_of(
      std::array{-20.0, std::log(0.8), -0.2, 0.0, std::log(1.28), 0.28, 20.0},
      [&](double edge) { return std::abs(d - edge) < 0x1p-10; });
}

TEST(PolicyLossTest, LossesWithAChoiceMatchTheSimpleOnes) {
  std::map<std::string, int> flat, steep;
  for (const std::string mode : {"sapo", "geo_mean", "clip_cov", "kl_cov"})
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      const LossOptions o = loss_named(mode);
      Minibatch batch = bounded_minibatch(seed, mode == "sapo" ? 40 : 2);
      const Choice choice = plain_choice(o, batch);
      PolicyLoss loss(o, {o, batch.samples});
      if (loss.wants_batch()) loss.see_batch(batch.samples, batch.logprobs, 0);
      const Result result = run_with_preview(loss, batch);
      const double want = plain_loss_with(o, batch, choice);
      ASSERT_NEAR(result.metrics.at("actor/pg_loss"), want, 1e-9 + 1e-6 * std::abs(want))
          << mode << " " << seed;
      for (size_t i = 0; i < batch.samples.size() && seed < 20; ++i)
        for (size_t t = 0; t < batch.logprobs[i].size(); ++t) {
          const TrainSample& sample = batch.samples[i];
          if (sample.weight(static_cast<int64_t>(t)) == 0 ||
              is_near_kink(double{batch.logprobs[i][t]} - sample.rollout_logprobs[t]))
            continue;
          const double slope = slope_by(batch.logprobs[i][t], 0x1p-12F,
                                        [&] { return plain_loss_with(o, batch, choice); });
          ASSERT_NEAR(result.d_logprobs[i][t], slope, 1e-5 + 1e-4 * std::abs(slope))
              << mode << " " << seed << " " << i << " " << t;
          ++(slope == 0 ? flat : steep)[mode];
        }
    }
  for (const char* mode : {"geo_mean", "clip_cov"}) EXPECT_GT(flat[mode], 20) << mode;
  for (const char* mode : {"sapo", "geo_mean", "clip_cov", "kl_cov"})
    EXPECT_GT(steep[mode], 100) << mode;
}

// At the rollout's weights every one of these is the policy gradient of its advantages.
TEST(PolicyLossTest, LossesOnPolicyHaveThePolicyGradient) {
  Minibatch batch = bounded_minibatch(2, 2);
  for (size_t i = 0; i < batch.samples.size(); ++i)
    batch.samples[i].rollout_logprobs = batch.logprobs[i];
  for (const std::string mode : {"sapo", "geo_mean", "kl_cov"}) {
    const LossOptions o = loss_named(mode);
    PolicyLoss loss(o, {o, batch.samples});
    if (loss.wants_batch()) loss.see_batch(batch.samples, batch.logprobs, 0);
    const Result result = run_with_preview(loss, batch);
    for (size_t i = 0; i < batch.samples.size(); ++i)
      for (size_t t = 0; t < result.d_logprobs[i].size(); ++t) {
        const double want = loss.token_weight(batch.samples[i]) * -batch.samples[i].advantages[t];
        EXPECT_NEAR(result.d_logprobs[i][t], want, 1e-6 * std::abs(want)) << mode;
      }
  }
}

TEST(PolicyLossTest, SampleWithAPenaltyIsLearnedFrom) {
  Minibatch batch = bounded_minibatch(2, 2);
  const LossOptions o = loss_named("kl_cov");
  for (TrainSample& sample : batch.samples) std::ranges::fill(sample.advantages, 0.F);
  batch.samples[0].advantages[0] = -1;
  PolicyLoss loss(o, {o, batch.samples});
  loss.see_batch(batch.samples, batch.logprobs, 0);
  const Choice choice = plain_choice(o, batch);
  int without_advantage = 0;
  for (size_t i = 1; i < batch.samples.size(); ++i) {
    const bool is_chosen = std::ranges::any_of(choice, [&](auto at) { return at.first == i; });
    EXPECT_EQ(loss.learns_from(batch.samples[i]), is_chosen) << i;
    without_advantage += is_chosen;
  }
  EXPECT_GT(without_advantage, 0);
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
  SupervisedLoss loss(batch.samples, DistillationOptions());
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
  refuses([](LossOptions& o) { o.kl_loss_type = "k9"; });
  refuses([](LossOptions& o) { o.clip_ratio_c = 1; });
  refuses([](LossOptions& o) { o.clip_ratio_low = 1.5; });
  refuses([](LossOptions& o) { o.entropy_coeff = -1; });
  refuses([](LossOptions& o) { o.rollout_correction.rollout_is = "geometric"; });
  refuses([](LossOptions& o) { o.rollout_correction.rollout_is_threshold = 0; });
  refuses([](LossOptions& o) { o.policy_loss.loss_mode = "clip-cov"; });
  refuses([](LossOptions& o) { o.policy_loss.loss_mode = "geo_mean"; });  // token-mean
  refuses([](LossOptions& o) { o.policy_loss.loss_mode = "sapo"; });
}

}  // namespace
}  // namespace tlt::train
