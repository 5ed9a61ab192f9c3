// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/draft_eagle3.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "drafter/eagle/draft_tape.h"

namespace tlt::drafter {
namespace {

constexpr const char* kMiddleLayer = "midlayer.";

const Eagle3Config& checked(const Eagle3Config& config, const model::PolicyModel& target) {
  config.check_fits(target.config(), "drafter");
  return config;
}

}  // namespace

Eagle3Network::Eagle3Network(const model::PolicyModel& target, const Eagle3Config& config)
    : DraftNetwork(target, checked(config, target).layer,
                   /*input_columns=*/2 * config.layer.hidden),
      eagle3_config_(config),
      fc_(target.device(), config_.hidden, Eagle3Config::kCaptured * config_.hidden, target.type()),
      embedding_norm_(target.device().zeros({config_.hidden}, at::kFloat)),
      feature_norm_(target.device().zeros({config_.hidden}, at::kFloat)),
      last_norm_(target.device().zeros({config_.hidden}, at::kFloat)),
      head_(target.device(), config.head_rows, config_.hidden, target.type()),
      head_tokens_(static_cast<size_t>(config.head_rows)) {
  std::iota(head_tokens_.begin(), head_tokens_.end(), 0);
  model::ParameterList list(parameters_, type());
  fc_index_ = list.add_matrix("fc.weight", fc_);
  embedding_norm_index_ = list.add_vector("midlayer.input_layernorm.weight", embedding_norm_);
  feature_norm_index_ = list.add_vector("midlayer.hidden_norm.weight", feature_norm_);
  layer_.list_parameters(kMiddleLayer, list);
  last_norm_index_ = list.add_vector("norm.weight", last_norm_);
  head_index_ = list.add_matrix("lm_head.weight", head_);
}

void Eagle3Network::initialize(uint64_t seed) {
  model::initialize(device(), parameters_, seed);
  const at::Tensor tokens = at::tensor(head_tokens_, at::kLong).to(device().torch());
  const model::Parameter& own = parameters_[static_cast<size_t>(head_index_)];
  const char* name = target_.config().tied ? "model.embed_tokens.weight" : "lm_head.weight";
  own.write(device(),
            model::find(target_.parameters(), name).read(device()).index_select(0, tokens));
}

std::unique_ptr<DraftNetwork> Eagle3Network::copy() const {
  auto copy = std::make_unique<Eagle3Network>(target_, eagle3_config_);
  copy->copy_weights(*this);
  copy->head_tokens_ = head_tokens_;
  return copy;
}

void Eagle3Network::set_head_tokens(std::vector<int32_t> tokens) {
  TLT_CHECK_INPUT(std::ssize(tokens) == eagle3_config_.head_rows, "the draft model's LM head has ",
                  eagle3_config_.head_rows, " rows, but there are ", tokens.size(), " tokens");
  const bool ascends =
      std::adjacent_find(tokens.begin(), tokens.end(), std::greater_equal<>()) == tokens.end();
  TLT_CHECK_INPUT(ascends && tokens.front() >= 0 && tokens.back() < config_.vocabulary,
                  "the tokens of the draft model's LM head must ascend and be below vocab_size ",
                  config_.vocabulary);
  head_tokens_ = std::move(tokens);
}

const at::Tensor& Eagle3Network::project(const at::Tensor& states, model::RowBuffer& out) const {
  out.resize(device(), states.size(0), config_.hidden, type());
  ops::linear(device(), states, fc_, out.view());
  return out.view();
}

void Eagle3Network::project_backward(const at::Tensor& states, const at::Tensor& d_features,
                                     model::Gradients& gradients) const {
  ops::linear_backward_weight(device(), d_features, states, gradient(gradients, fc_index_));
}

void Eagle3Network::enter(const ops::Batch& batch, const at::Tensor& features,
                          DraftPass& pass) const {
  const int64_t rows = batch.rows(), size = config_.hidden;
  TLT_CHECK(features.dim() == 2 && features.size(0) == rows && features.size(1) == size,
            "features ", features.sizes(), " for ", rows, " pairs of ", size);
  for (model::RowBuffer* buffer : {&pass.stream, &pass.embedding, &pass.normed})
    buffer->resize(device(), rows, size, type());
  pass.joined.resize(device(), rows, 2 * size, type());
  ops::put_columns(device(), features, pass.stream.view(), 0);
  target_.embed(batch, pass.embedding.view());
  at::Tensor& normed = pass.normed.view();
  const double epsilon = config_.norm_epsilon;
  ops::rms_norm(device(), pass.embedding.view(), embedding_norm_, epsilon, normed);
  ops::put_columns(device(), normed, pass.joined.view(), 0);
  ops::rms_norm(device(), pass.stream.view(), feature_norm_, epsilon, normed);
  ops::put_columns(device(), normed, pass.joined.view(), size);
}

const at::Tensor& Eagle3Network::input(DraftPass& pass) const { return pass.joined.view(); }

void Eagle3Network::enter_backward(DraftPass& pass, DraftScratch& s, at::Tensor& d_stream,
                                   model::Gradients& gradients, at::Tensor* d_features) const {
  const int64_t rows = d_stream.size(0), size = config_.hidden;
  const double epsilon = config_.norm_epsilon;
  for (model::RowBuffer* buffer : {&s.d_half, &s.d_embedding})
    buffer->resize(device(), rows, size, type());
  s.d_embedding.view().zero_();
  at::Tensor& half = s.d_half.view();
  half.copy_(s.d_input.view().narrow(1, size, size));
  ops::rms_norm_backward(device(), {.dy = half,
                                    .x = pass.stream.view(),
                                    .weight = feature_norm_,
                                    .epsilon = epsilon,
                                    .dx = d_stream,
                                    .dweight = gradient(gradients, feature_norm_index_)});
  half.copy_(s.d_input.view().narrow(1, 0, size));
  ops::rms_norm_backward(device(), {.dy = half,
                                    .x = pass.embedding.view(),
                                    .weight = embedding_norm_,
                                    .epsilon = epsilon,
                                    .dx = s.d_embedding.view(),
                                    .dweight = gradient(gradients, embedding_norm_index_)});
  if (d_features) d_features->copy_(d_stream);
}

const at::Tensor& Eagle3Network::read(const at::Tensor& next, model::RowBuffer& out) const {
  out.resize(device(), next.size(0), config_.hidden, type());
  ops::rms_norm(device(), next, last_norm_, config_.norm_epsilon, out.view());
  return out.view();
}

void Eagle3Network::read_backward(const at::Tensor& d_read, const at::Tensor& next,
                                  at::Tensor& d_next, model::Gradients& gradients) const {
  ops::rms_norm_backward(device(), {.dy = d_read,
                                    .x = next,
                                    .weight = last_norm_,
                                    .epsilon = config_.norm_epsilon,
                                    .dx = d_next,
                                    .dweight = gradient(gradients, last_norm_index_)});
}

void Eagle3Network::head(const at::Tensor& read, at::Tensor& out) const {
  TLT_CHECK(out.scalar_type() == at::kFloat, "logits are float32");
  ops::linear(device(), read, head_, out);
}

void Eagle3Network::head_backward(const at::Tensor& read, const at::Tensor& d_logits,
                                  at::Tensor& d_read, model::Gradients& gradients) const {
  const at::Tensor d = d_logits.to(type());
  ops::linear_backward_input(device(), d, head_, d_read);
  ops::linear_backward_weight(device(), d, read, gradient(gradients, head_index_));
}

}  // namespace tlt::drafter
