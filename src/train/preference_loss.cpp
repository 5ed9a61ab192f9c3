// SPDX-License-Identifier: Apache-2.0
#include "train/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tlt::train {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// -log logistic(x), without overflow.
double minus_log_logistic(double x) {
  return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// A loss of d, and its derivative.
struct Term {
  double value, slope;
};

Term sigmoid_term(double x, const DpoOptions& options) {
  const double e = options.label_smoothing;
  return {(1 - e) * minus_log_logistic(x) + e * minus_log_logistic(-x),
          options.beta * (e * logistic(x) - (1 - e) * logistic(-x))};
}

Term robust_term(double x, const DpoOptions& options) {
  const double e = options.label_smoothing, scale = 1 / (1 - 2 * e);
  return {scale * ((1 - e) * minus_log_logistic(x) - e * minus_log_logistic(-x)),
          -scale * options.beta * (e * logistic(x) + (1 - e) * logistic(-x))};
}

// NaN is not beyond the hinge: a pair with NaN logprobs has a gradient, which skips the step.
Term hinge_term(double x, const DpoOptions& options) {
  return x >= 1 ? Term{0, 0} : Term{1 - x, -options.beta};
}

double log_ratio(const ResponseLogprob& response) { return response.sum - response.reference; }

PairLoss ipo_loss(const DpoOptions& options, const ResponseLogprob& chosen,
                  const ResponseLogprob& rejected) {
  const double d = log_ratio(chosen) / chosen.tokens - log_ratio(rejected) / rejected.tokens;
  const double distance = d - 1 / (2 * options.beta);
  return {distance * distance, 2 * distance / chosen.tokens, -2 * distance / rejected.tokens};
}

}  // namespace

void DpoOptions::check() const {
  TLT_CHECK_INPUT(std::isfinite(beta) && beta > 0, "dpo.beta is ", beta, "; use a number above 0");
  TLT_CHECK_INPUT(
      loss_type == "sigmoid" || loss_type == "robust" || loss_type == "hinge" || loss_type == "ipo",
      "dpo.loss_type is '", loss_type, "'; use sigmoid, robust, hinge or ipo");
  TLT_CHECK_INPUT(label_smoothing >= 0 && label_smoothing < 0.5, "dpo.label_smoothing is ",
                  label_smoothing, "; use a number from 0 to below 0.5");
  TLT_CHECK_INPUT(label_smoothing == 0 || loss_type == "sigmoid" || loss_type == "robust",
                  "dpo.label_smoothing has no meaning with dpo.loss_type=", loss_type,
                  "; set it to 0, or loss_type to sigmoid or robust");
}

ResponseLogprob response_logprob(const TrainSample& sample, std::span<const float> logprobs) {
  TLT_CHECK(std::ssize(logprobs) == sample.response_size(), "sample ", sample.id, ": ",
            logprobs.size(), " logprobs for ", sample.response_size(), " tokens");
  ResponseLogprob response{.sum = 0, .tokens = 0, .reference = sample.reference_sum};
  for (int64_t i = 0; i < sample.response_size(); ++i) {
    const double weight = sample.weight(i);
    if (weight == 0) continue;  // its logprob may be anything
    response.sum += weight * logprobs[static_cast<size_t>(i)];
    response.tokens += weight;
  }
  return response;
}

PairLoss pair_loss(const DpoOptions& options, const ResponseLogprob& chosen,
                   const ResponseLogprob& rejected) {
  if (options.loss_type == "ipo") return ipo_loss(options, chosen, rejected);
  const double x = options.beta * (log_ratio(chosen) - log_ratio(rejected));
  const Term term = options.loss_type == "robust"  ? robust_term(x, options)
                    : options.loss_type == "hinge" ? hinge_term(x, options)
                                                   : sigmoid_term(x, options);
  return {term.value, term.slope, -term.slope};
}

void PreferenceMeans::add(const ResponseLogprob& chosen, const ResponseLogprob& rejected) {
  const double chosen_reward = options_.beta * log_ratio(chosen),
               rejected_reward = options_.beta * log_ratio(rejected);
  pairs_ += 1;
  loss_ += pair_loss(options_, chosen, rejected).loss;
  accurate_ += chosen_reward > rejected_reward ? 1 : 0;
  chosen_reward_ += chosen_reward;
  rejected_reward_ += rejected_reward;
  chosen_logprob_ += chosen.sum;
  rejected_logprob_ += rejected.sum;
}

std::vector<std::pair<std::string, double>> PreferenceMeans::metrics() const {
  TLT_CHECK(pairs_ > 0);
  return {{"loss", loss_ / pairs_},
          {"rewards/chosen", chosen_reward_ / pairs_},
          {"rewards/rejected", rejected_reward_ / pairs_},
          {"rewards/accuracies", accurate_ / pairs_},
          {"rewards/margins", (chosen_reward_ - rejected_reward_) / pairs_},
          {"logps/chosen", chosen_logprob_ / pairs_},
          {"logps/rejected", rejected_logprob_ / pairs_}};
}

PreferenceLoss::PreferenceLoss(const DpoOptions& options, std::span<const TrainSample> batch)
    : options_((options.check(), options)), batch_(batch), means_(options) {
  TLT_CHECK(!batch.empty() && batch.size() % 2 == 0, batch.size(), " samples are not pairs");
}

void PreferenceLoss::see_batch(std::span<const TrainSample> batch,
                               std::span<const std::vector<float>> logprobs, int64_t /*steps*/) {
  TLT_CHECK(batch.data() == batch_.data() && logprobs.size() == batch_.size());
  const double pairs = static_cast<double>(batch.size()) / 2;
  for (size_t i = 0; i < batch.size(); i += 2) {
    const ResponseLogprob chosen = response_logprob(batch[i], logprobs[i]),
                          rejected = response_logprob(batch[i + 1], logprobs[i + 1]);
    TLT_CHECK(chosen.tokens > 0 && rejected.tokens > 0, "pair of sample ", batch[i].id,
              ": a response without a token that counts");
    const PairLoss loss = pair_loss(options_, chosen, rejected);
    slopes_.push_back(loss.d_chosen / pairs);
    slopes_.push_back(loss.d_rejected / pairs);
    means_.add(chosen, rejected);
  }
}

double PreferenceLoss::slope_of(const TrainSample& sample) const {
  return slopes_.at(static_cast<size_t>(&sample - batch_.data()));
}

void PreferenceLoss::add(const ResponseTokens& tokens, const TokenDerivatives& out) {
  const double slope = slope_of(tokens.sample);
  for (size_t i = 0; i < tokens.logprobs.size(); ++i) {
    const double weight = tokens.sample.weight(tokens.first + static_cast<int64_t>(i));
    tokens_ += weight;
    out.d_logprob[i] = static_cast<float>(weight == 0 ? 0 : weight * slope);
    out.d_entropy[i] = 0;
  }
}

std::vector<std::pair<std::string, double>> PreferenceLoss::metrics(
    std::span<const double> sums) const {
  TLT_CHECK(sums.size() == 1);
  std::vector<std::pair<std::string, double>> metrics = means_.metrics();
  metrics.front().first = "train/loss";
  metrics.emplace_back("train/response_tokens", sums[0]);
  return metrics;
}

}  // namespace tlt::train
