// SPDX-License-Identifier: Apache-2.0
#include "rollout/token_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/random.h"

namespace tlt::rollout {
namespace {

// Of logits at a time: 110 rows of a vocabulary of 152,000.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;

double number_of(const Sequence& sequence) {
  const Group& request = sequence.group->request;
  return uniform(request.seed, {.step = request.rl_step,
                                .prompt = request.prompt_id,
                                .sample = sequence.sample,
                                .position = static_cast<uint32_t>(sequence.tokens.size())});
}

}  // namespace

TokenSampler::TokenSampler(const model::PolicyModel& model, int64_t max_rows) : model_(model) {
  const int64_t vocabulary = model.config().vocabulary;
  const int64_t bound = kLogitsBytes / (vocabulary * static_cast<int64_t>(sizeof(float)));
  const int64_t rows = std::clamp<int64_t>(bound, 1, max_rows);
  hidden_ = model.device().empty({rows, model.config().hidden}, model.type());
  logits_ = model.device().empty({rows, vocabulary}, at::kFloat);
}

std::span<const ops::Sampled> TokenSampler::sample(const at::Tensor& hidden,
                                                   std::span<const Draw> draws) {
  sampled_.resize(draws.size());
  const size_t rows = static_cast<size_t>(logits_.size(0));
  for (size_t first = 0; first < draws.size(); first += rows) {
    const size_t count = std::min(rows, draws.size() - first);
    sample_some(hidden, draws.subspan(first, count), std::span(sampled_).subspan(first, count));
  }
  return sampled_;
}

// A row that several tokens are drawn from (a prompt's last one) goes through the head once for
// each: one row more a response, and no second way to sample.
void TokenSampler::sample_some(const at::Tensor& hidden, std::span<const Draw> draws,
                               std::span<ops::Sampled> sampled) {
  rows_.clear();
  rules_.clear();
  uniforms_.clear();
  for (const Draw& draw : draws) {
    rows_.push_back(draw.row);
    rules_.push_back(draw.sequence->group->rule);
    uniforms_.push_back(number_of(*draw.sequence));
  }
  const int64_t count = std::ssize(draws);
  const at::Tensor rows =
      at::from_blob(rows_.data(), {count}, at::kLong).to(model_.device().torch());
  at::Tensor gathered = hidden_.narrow(0, 0, count);
  at::Tensor logits = logits_.narrow(0, 0, count);
  at::index_select_out(gathered, hidden, 0, rows);
  model_.logits(gathered, logits);
  ops::sample_rows(model_.device(), logits, model_.config().vocabulary, rules_, uniforms_, sampled);
}

}  // namespace tlt::rollout
