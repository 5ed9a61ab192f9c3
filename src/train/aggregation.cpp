// SPDX-License-Identifier: Apache-2.0
#include "train/aggregation.h"

#include "base/check.h"

namespace tlt::train {
namespace {

// The weight of all tokens of a sample; throws Error if its weights are not one per response token.
double check_and_weigh(const TrainSample& sample) {
  const int64_t tokens = sample.response_size();
  TLT_CHECK(sample.response_begin >= 1 && tokens >= 0, "sample ", sample.id, ": response_begin ",
            sample.response_begin, " of ", sample.tokens.size(), " tokens");
  TLT_CHECK(sample.weights.empty() || std::ssize(sample.weights) == tokens, "sample ", sample.id,
            ": ", sample.weights.size(), " weights for ", tokens, " tokens");
  double total = 0;
  for (int64_t i = 0; i < tokens; ++i) total += sample.weight(i);
  return total;
}

}  // namespace

Denominators::Denominators(std::span<const TrainSample> batch) {
  for (const TrainSample& sample : batch) {
    const double weight = check_and_weigh(sample);
    tokens += weight;
    sequences += weight > 0;
  }
  TLT_CHECK(tokens > 0, "a mini-batch of ", batch.size(), " samples without a token that counts");
}

Denominators::Denominators(const LossOptions& options, std::span<const TrainSample> batch)
    : Denominators(batch) {
  for (const TrainSample& sample : batch) {
    const auto size = static_cast<size_t>(sample.response_size());
    TLT_CHECK(sample.rollout_logprobs.size() == size && sample.advantages.size() == size, "sample ",
              sample.id);
    TLT_CHECK(!options.use_kl_loss || sample.reference_logprobs.size() == size, "sample ",
              sample.id, " has no reference");
  }
}

Aggregation::Aggregation(const LossOptions& options, const Denominators& denominators)
    : scale_factor_(options.loss_scale_factor), denominators_(denominators) {
  const std::string& mode = options.loss_agg_mode;
  mode_ = mode == "token-mean"            ? Mode::kTokenMean
          : mode == "seq-mean-token-sum"  ? Mode::kTokenSum
          : mode == "seq-mean-token-mean" ? Mode::kSequenceMean
                                          : Mode::kScaledSum;
}

double Aggregation::scale_to(const Denominators& whole) const {
  if (mode_ == Mode::kScaledSum) return 1;
  return mode_ == Mode::kTokenMean ? denominators_.tokens / whole.tokens
                                   : denominators_.sequences / whole.sequences;
}

double Aggregation::token_weight(const TrainSample& sample) const {
  switch (mode_) {
    case Mode::kTokenMean:
      return 1 / denominators_.tokens;
    case Mode::kTokenSum:
      return 1 / denominators_.sequences;
    case Mode::kScaledSum:
      return 1 / scale_factor_;
    case Mode::kSequenceMean:
      break;
  }
  double weight = 0;
  for (int64_t i = 0; i < sample.response_size(); ++i) weight += sample.weight(i);
  return weight > 0 ? 1 / (denominators_.sequences * weight) : 0;
}

}  // namespace tlt::train
