// SPDX-License-Identifier: Apache-2.0
#include "train/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "train/covariance.h"

namespace tlt::train {
namespace {

constexpr double kMaxLogRatio = 20.0;  // verl's clamps against overflow
constexpr double kMaxSequenceLogRatio = 10.0;

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_true(const std::vector<bool>& values) {
  return std::find(values.begin(), values.end(), true) != values.end();
}

}  // namespace

void RolloutCorrectionOptions::check() const {
  TLT_CHECK_INPUT(is_one_of(rollout_is, {"none", "token", "sequence"}),
                  "algorithm.rollout_correction.rollout_is is '", rollout_is,
                  "'; use none, token or sequence");
  TLT_CHECK_INPUT(rollout_is_threshold > 0 && std::isfinite(rollout_is_threshold),
                  "algorithm.rollout_correction.rollout_is_threshold is ", rollout_is_threshold,
                  "; use a number above 0");
}

void PolicyLossOptions::check() const {
  TLT_CHECK_INPUT(
      is_one_of(loss_mode, {"vanilla", "gspo", "cispo", "gpg", "sapo", "geo_mean", "clip_cov",
                            "kl_cov", "reinforce"}),
      "actor.policy_loss.loss_mode is '", loss_mode,
      "'; use vanilla, gspo, cispo, gpg, sapo, geo_mean, clip_cov, kl_cov or reinforce");
}

void DistillationOptions::check() const {
  TLT_CHECK_INPUT(is_one_of(loss_mode, {"k1", "k3", "reverse_kl", "forward_kl"}),
                  "distillation.loss_mode is '", loss_mode,
                  "'; use k1, k3, reverse_kl or forward_kl");
  TLT_CHECK_INPUT(top_k >= 0, "distillation.top_k is ", top_k,
                  "; use a number from 1, or 0 for every token");
  TLT_CHECK_INPUT(top_k == 0 || has_exact_mode(), "distillation.top_k has no meaning with ",
                  "distillation.loss_mode=", loss_mode,
                  ", which uses the sampled tokens only; set reverse_kl or forward_kl, or leave "
                  "top_k out");
  TLT_CHECK_INPUT(
      !is_remote() || !has_exact_mode(), "distillation.loss_mode=", loss_mode,
      " needs the teacher's whole distribution, and a server (distillation.teacher=", teacher,
      ") gives the logprobs of the tokens only; set k1 or k3, or give the "
      "teacher's folder");
  TLT_CHECK_INPUT(std::isfinite(coef) && coef > 0, "distillation.coef is ", coef,
                  "; use a number above 0, or leave distillation.teacher out");
  TLT_CHECK_INPUT(use_task_rewards || is_on(),
                  "distillation.use_task_rewards=false leaves nothing to train on without "
                  "distillation.teacher; set that, or leave this out");
}

void LossOptions::check() const {
  rollout_correction.check();
  distillation.check();
  dpo.check();
  policy_loss.check();
  const std::string& loss = policy_loss.loss_mode;
  TLT_CHECK_INPUT(clip_ratio_low >= 0 && clip_ratio_low <= 1, "actor.clip_ratio_low is ",
                  clip_ratio_low, "; use a number from 0 to 1");
  TLT_CHECK_INPUT(clip_ratio_high >= 0, "actor.clip_ratio_high is ", clip_ratio_high,
                  "; use a number from 0");
  TLT_CHECK_INPUT(clip_ratio_c > 1, "actor.clip_ratio_c is ", clip_ratio_c,
                  "; use a number above 1");
  TLT_CHECK_INPUT(
      is_one_of(loss_agg_mode, {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                "seq-mean-token-sum-norm"}),
      "actor.loss_agg_mode is '", loss_agg_mode,
      "'; use token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm");
  TLT_CHECK_INPUT(
      !is_one_of(loss, {"gspo", "geo_mean", "sapo"}) || loss_agg_mode == "seq-mean-token-mean",
      "actor.policy_loss.loss_mode=", loss,
      " is a mean over sequences; set actor.loss_agg_mode=seq-mean-token-mean");
  parse_kl_type(kl_loss_type, "actor.kl_loss_type");
  TLT_CHECK_INPUT(kl_loss_coef >= 0, "actor.kl_loss_coef is ", kl_loss_coef,
                  "; use a number from 0");
  TLT_CHECK_INPUT(entropy_coeff >= 0, "actor.entropy_coeff is ", entropy_coeff,
                  "; use a number from 0");
}

PolicyLoss::PolicyLoss(const LossOptions& options, const Denominators& denominators)
    : options_(options), denominators_(denominators), aggregation_(options, denominators) {
  options.check();
  const std::string& loss = options.policy_loss.loss_mode;
  mode_ = loss == "reinforce"  ? Mode::kReinforce
          : loss == "gspo"     ? Mode::kGspo
          : loss == "geo_mean" ? Mode::kGeoMean
          : loss == "sapo"     ? Mode::kSapo
          : loss == "cispo"    ? Mode::kCispo
          : loss == "clip_cov" ? Mode::kClipCov
          : loss == "kl_cov"   ? Mode::kKlCov
          : loss == "gpg"      ? Mode::kGpg
                               : Mode::kVanilla;
  is_of_sequence_ = options.rollout_correction.rollout_is == "sequence";
  if (options.use_kl_loss) kl_type_ = parse_kl_type(options.kl_loss_type, "actor.kl_loss_type");
}

void PolicyLoss::complete(std::span<const TrainSample> batch) {
  const Denominators denominators(options_, batch);
  token_scale_ = denominators_.tokens / denominators.tokens;
  gradient_scale_ = aggregation_.scale_to(denominators);
}

void PolicyLoss::see_batch(std::span<const TrainSample> batch,
                           std::span<const std::vector<float>> logprobs, int64_t steps) {
  std::vector<std::vector<bool>> selected = select_tokens(options_, batch, logprobs, steps);
  selected_of_.clear();
  for (size_t i = 0; i < batch.size(); ++i) selected_of_[&batch[i]] = std::move(selected[i]);
}

bool PolicyLoss::learns_from(const TrainSample& sample) const {
  if (options_.entropy_coeff > 0 || options_.distillation.is_exact()) return true;
  // The penalty of a selected token does not depend on its advantage.
  if (mode_ == Mode::kKlCov && has_true(selected_of_.at(&sample))) return true;
  if (kl_type_ && options_.kl_loss_coef > 0) return true;
  return std::ranges::any_of(sample.advantages, [](float a) { return a != 0; });
}

void PolicyLoss::preview(const TrainSample& sample, int64_t first,
                         std::span<const float> logprobs) {
  if (first == 0) sequence_of_[&sample] = {};
  Sequence& sequence = sequence_of_.at(&sample);
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const auto at = static_cast<size_t>(first) + i;
    const double weight = sample.weight(static_cast<int64_t>(at));
    if (weight == 0) continue;
    const Token token{.logprob = logprobs[i],
                      .rollout = sample.rollout_logprobs[at],
                      .advantage = sample.advantages[at],
                      .mean_weight = 0,
                      .is_selected = false};
    sequence.difference += weight * (mode_ == Mode::kGeoMean ? bounded_difference(token)
                                                             : token.logprob - token.rollout);
    sequence.advantage += weight * token.advantage;
    sequence.weight += weight;
  }
}

PolicyLoss::Term PolicyLoss::policy_term(const TrainSample& sample, const Token& token) {
  switch (mode_) {
    case Mode::kVanilla:
      return vanilla_term(token);
    case Mode::kGspo:
      return gspo_term(sample, token);
    case Mode::kGeoMean:
      return geo_mean_term(sample, token);
    case Mode::kSapo:
      return sapo_term(token);
    case Mode::kCispo:
      return cispo_term(token);
    case Mode::kClipCov:
      return clip_cov_term(token);
    case Mode::kKlCov:
      return kl_cov_term(token);
    case Mode::kReinforce:
      return reinforce_term(sample, token);
    case Mode::kGpg:
      break;
  }
  return {-token.advantage * token.logprob, -token.advantage};
}

PolicyLoss::Term PolicyLoss::vanilla_term(const Token& token) {
  const double difference = token.logprob - token.rollout;
  const double log_ratio = std::clamp(difference, -kMaxLogRatio, kMaxLogRatio);
  const double ratio = std::exp(log_ratio);
  const double ratio_slope = std::abs(difference) <= kMaxLogRatio ? ratio : 0;
  const double plain = -token.advantage * ratio;
  const double bounded = -token.advantage * std::clamp(ratio, 1 - options_.clip_ratio_low,
                                                       1 + options_.clip_ratio_high);
  const double lowest = -token.advantage * options_.clip_ratio_c;

  sums_.ppo_kl -= token.mean_weight * log_ratio;
  Term term = {plain, -token.advantage * ratio_slope};
  if (bounded > plain) {  // only if the clamp is active
    sums_.clipped += token.mean_weight;
    term = {bounded, 0};
  }
  if (token.advantage < 0 && term.value > lowest) {
    sums_.clipped_lower += token.mean_weight;
    term = {lowest, 0};
  }
  return term;
}

// Every token has its sequence's ratio, and its own share of that ratio's derivative: the mean over
// the sequence's tokens adds them up.
PolicyLoss::Term PolicyLoss::gspo_term(const TrainSample& sample, const Token& token) {
  const Sequence& sequence = sequence_of_.at(&sample);
  const double mean = sequence.difference / sequence.weight;
  const double ratio = std::exp(std::min(mean, kMaxSequenceLogRatio));
  const double ratio_slope = mean <= kMaxSequenceLogRatio ? ratio : 0;
  const double plain = -token.advantage * ratio;
  const double bounded = -token.advantage * std::clamp(ratio, 1 - options_.clip_ratio_low,
                                                       1 + options_.clip_ratio_high);
  sums_.ppo_kl -= token.mean_weight * (token.logprob - token.rollout);
  if (bounded <= plain) return {plain, -token.advantage * ratio_slope};
  sums_.clipped += token.mean_weight;
  return {bounded, 0};
}

// d, bounded on the side where the objective would grow without bound.
double PolicyLoss::bounded_difference(const Token& token) const {
  const double difference = token.logprob - token.rollout;
  if (token.advantage == 0) return 0;
  return token.advantage > 0 ? std::min(difference, options_.clip_ratio_high)
                             : std::max(difference, -options_.clip_ratio_low);
}

// As for gspo, every token has its own share of the derivative of its sequence's ratio.
PolicyLoss::Term PolicyLoss::geo_mean_term(const TrainSample& sample, const Token& token) {
  const Sequence& sequence = sequence_of_.at(&sample);
  const double ratio = std::exp(sequence.difference / sequence.weight);
  const double value = -sequence.advantage / sequence.weight * ratio;
  const double difference = token.logprob - token.rollout;
  sums_.ppo_kl -= token.mean_weight * difference;
  // verl counts the tokens outside the bounds, also on the side where they are not bounded.
  if (difference < -options_.clip_ratio_low || difference > options_.clip_ratio_high) {
    if (token.advantage > 0) sums_.clipped += token.mean_weight;
    if (token.advantage < 0) sums_.clipped_lower += token.mean_weight;
  }
  return {value, bounded_difference(token) == difference ? value : 0};
}

PolicyLoss::Term PolicyLoss::sapo_term(const Token& token) {
  const double difference = token.logprob - token.rollout;
  const double log_ratio = std::clamp(difference, -kMaxLogRatio, kMaxLogRatio);
  const double ratio = std::exp(log_ratio);
  const double tau = token.advantage > 0 ? options_.tau_pos : options_.tau_neg;
  const double gate = 1 / (1 + std::exp(-tau * (ratio - 1)));
  sums_.ppo_kl -= token.mean_weight * log_ratio;
  const double slope = std::abs(difference) <= kMaxLogRatio ? 4 * gate * (1 - gate) * ratio : 0;
  return {-token.advantage * 4 / tau * gate, -token.advantage * slope};
}

PolicyLoss::Term PolicyLoss::clip_cov_term(const Token& token) {
  const double difference = token.logprob - token.rollout, ratio = std::exp(difference);
  const double plain = -token.advantage * ratio;
  const double bounded = -token.advantage * std::clamp(ratio, 1 - options_.clip_ratio_low,
                                                       1 + options_.clip_ratio_high);
  sums_.ppo_kl -= token.mean_weight * difference;
  if (token.is_selected) {
    sums_.clipped += token.mean_weight;
    return {};
  }
  return bounded > plain ? Term{bounded, 0} : Term{plain, plain};
}

PolicyLoss::Term PolicyLoss::kl_cov_term(const Token& token) {
  const double difference = token.logprob - token.rollout;
  const double plain = -token.advantage * std::exp(difference);
  sums_.ppo_kl += token.mean_weight * std::abs(difference);
  if (!token.is_selected) return {plain, plain};
  const double weight = options_.policy_loss.ppo_kl_coef;
  const double sign = difference > 0 ? 1 : difference < 0 ? -1 : 0;
  return {plain + weight * std::abs(difference), plain + weight * sign};
}

PolicyLoss::Term PolicyLoss::cispo_term(const Token& token) {
  const double log_ratio = std::clamp(token.logprob - token.rollout, -kMaxLogRatio, kMaxLogRatio);
  const double ratio = std::exp(log_ratio);
  const double weight =
      std::clamp(ratio, 1 - options_.clip_ratio_low, 1 + options_.clip_ratio_high);
  sums_.ppo_kl -= token.mean_weight * log_ratio;
  if (weight != ratio) sums_.clipped += token.mean_weight;
  return {-token.advantage * weight * token.logprob, -token.advantage * weight};
}

PolicyLoss::Term PolicyLoss::reinforce_term(const TrainSample& sample, const Token& token) {
  const RolloutCorrectionOptions& correction = options_.rollout_correction;
  const double difference = token.logprob - token.rollout;
  sums_.ppo_kl -= token.mean_weight * difference;
  if (!options_.has_importance_weights())
    return {-token.advantage * token.logprob, -token.advantage};
  const double most = correction.rollout_is_threshold;
  const double log_weight = is_of_sequence_ ? sequence_of_.at(&sample).difference : difference;
  const double whole = std::exp(std::clamp(log_weight, -kMaxLogRatio, kMaxLogRatio));
  const double weight = std::min(whole, most), bounded = std::max(weight, std::min(1 / most, most));
  sums_.weight += token.mean_weight * whole;
  sums_.truncated += whole > most ? token.mean_weight : 0;
  sums_.bounded += token.mean_weight * bounded;
  sums_.bounded_square += token.mean_weight * bounded * bounded;
  return {-token.advantage * weight * token.logprob, -token.advantage * weight};
}

void PolicyLoss::add(const ResponseTokens& tokens, const TokenDerivatives& out) {
  const TrainSample& sample = tokens.sample;
  const int64_t first = tokens.first;
  const std::span<const float> logprobs = tokens.logprobs, entropies = tokens.entropies;
  const std::span<float> d_logprob = out.d_logprob, d_entropy = out.d_entropy;
  const double token_share = token_weight(sample);
  const std::vector<bool>* const selected = wants_batch() ? &selected_of_.at(&sample) : nullptr;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const auto at = static_cast<size_t>(first) + i;
    const double weight = sample.weight(static_cast<int64_t>(at)), share = weight * token_share;
    d_logprob[i] = d_entropy[i] = 0;
    if (!tokens.teacher_kl.empty()) out.d_teacher_kl[i] = 0;
    if (weight == 0) continue;
    const Term pg = policy_term(sample, {.logprob = logprobs[i],
                                         .rollout = sample.rollout_logprobs[at],
                                         .advantage = sample.advantages[at],
                                         .mean_weight = weight / denominators_.tokens,
                                         .is_selected = selected && (*selected)[at]});
    KlEstimate kl;
    if (kl_type_) kl = estimate_kl(*kl_type_, logprobs[i], sample.reference_logprobs[at]);
    sums_.pg_loss += share * pg.value;
    sums_.kl_loss += share * kl.value;
    sums_.entropy += share * entropies[i];
    if (!tokens.teacher_kl.empty()) {
      sums_.teacher_loss += share * tokens.teacher_kl[i];
      sums_.teacher_kl += weight / denominators_.tokens * tokens.teacher_kl[i];
      out.d_teacher_kl[i] = static_cast<float>(share * options_.distillation.coef);
    }
    d_logprob[i] = static_cast<float>(share * (pg.slope + options_.kl_loss_coef * kl.slope));
    d_entropy[i] = static_cast<float>(-share * options_.entropy_coeff);
  }
}

std::vector<double> PolicyLoss::take_sums() {
  const Sums sums = std::exchange(sums_, {});
  return {sums.pg_loss,       sums.kl_loss,        sums.entropy,      sums.clipped,
          sums.clipped_lower, sums.ppo_kl,         sums.weight,       sums.truncated,
          sums.bounded,       sums.bounded_square, sums.teacher_loss, sums.teacher_kl};
}

std::vector<std::pair<std::string, double>> PolicyLoss::metrics(
    std::span<const double> sums) const {
  TLT_CHECK(sums.size() == 12);
  const double pg = gradient_scale_ * sums[0], kl = gradient_scale_ * sums[1],
               entropy = gradient_scale_ * sums[2];
  const bool is_distilled = options_.distillation.is_exact();
  const double loss = pg - options_.entropy_coeff * entropy +
                      (options_.use_kl_loss ? options_.kl_loss_coef * kl : 0) +
                      (is_distilled ? options_.distillation.coef * gradient_scale_ * sums[10] : 0);
  std::vector<std::pair<std::string, double>> metrics = {
      {"actor/loss", loss},
      {"actor/pg_loss", pg},
      {"actor/entropy", entropy},
      {"actor/pg_clipfrac", token_scale_ * sums[3]},
      {"actor/pg_clipfrac_lower", token_scale_ * sums[4]},
      {"actor/ppo_kl", token_scale_ * sums[5]}};
  if (options_.use_kl_loss) {
    metrics.emplace_back("actor/kl_loss", kl);
    metrics.emplace_back("actor/kl_coef", options_.kl_loss_coef);
  }
  if (is_distilled) {
    metrics.emplace_back("distillation/loss", gradient_scale_ * sums[10]);
    metrics.emplace_back("distillation/kl", token_scale_ * sums[11]);
  }
  if (options_.has_importance_weights()) {
    metrics.emplace_back("rollout_corr/rollout_is_mean", token_scale_ * sums[6]);
    metrics.emplace_back("rollout_corr/rollout_is_ratio_fraction_high", token_scale_ * sums[7]);
    metrics.emplace_back("rollout_corr/rollout_is_eff_sample_size",
                         token_scale_ * sums[8] * sums[8] / sums[9]);
  }
  return metrics;
}

SupervisedLoss::SupervisedLoss(std::span<const TrainSample> batch,
                               const DistillationOptions& distillation)
    : distillation_(distillation), total_weight_(Denominators(batch).tokens) {}

void SupervisedLoss::add(const ResponseTokens& tokens, const TokenDerivatives& out) {
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const double share =
        tokens.sample.weight(tokens.first + static_cast<int64_t>(i)) / total_weight_;
    if (share != 0) {
      loss_ -= share * tokens.logprobs[i];
      probability_ += share * std::exp(static_cast<double>(tokens.logprobs[i]));
    }
    out.d_logprob[i] = static_cast<float>(-share);
    out.d_entropy[i] = 0;
    if (tokens.teacher_kl.empty()) continue;
    if (share != 0) teacher_kl_ += share * tokens.teacher_kl[i];
    out.d_teacher_kl[i] = static_cast<float>(share * distillation_.coef);
  }
}

std::vector<std::pair<std::string, double>> SupervisedLoss::metrics(
    std::span<const double> sums) const {
  TLT_CHECK(sums.size() == 3);
  std::vector<std::pair<std::string, double>> metrics = {{"train/loss", sums[0]},
                                                         {"train/token_probability", sums[1]}};
  if (distillation_.is_exact()) metrics.emplace_back("distillation/kl", sums[2]);
  return metrics;
}

}  // namespace tlt::train
