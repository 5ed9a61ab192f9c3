// SPDX-License-Identifier: Apache-2.0
#include "model/draft_eagle3.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "model/draft_eagle3_memory.h"

namespace tlt::model {
namespace {

constexpr const char* kLayer = "midlayer.";

const Eagle3Config& checked(const Eagle3Config& config, const PolicyModel& target) {
  config.check_fits(target.config(), "drafter");
  return config;
}

}  // namespace

Eagle3Network::Eagle3Network(const PolicyModel& target, const Eagle3Config& config)
    : target_(target),
      config_(checked(config, target)),
      fc_(target.device(), config.layer.hidden, Eagle3Config::kCaptured * config.layer.hidden,
          target.type()),
      embedding_norm_(target.device().zeros({config.layer.hidden}, at::kFloat)),
      feature_norm_(target.device().zeros({config.layer.hidden}, at::kFloat)),
      last_norm_(target.device().zeros({config.layer.hidden}, at::kFloat)),
      layer_(config.layer, target.device(), target.type(), /*has_input_norm=*/false,
             /*input_columns=*/2 * config.layer.hidden),
      head_(target.device(), config.head_rows, config.layer.hidden, target.type()),
      target_tokens_(static_cast<size_t>(config.head_rows)),
      rope_(config.layer.rope, config.layer.head_size) {
  std::iota(target_tokens_.begin(), target_tokens_.end(), 0);
  ParameterList list(parameters_, type());
  fc_index_ = list.add_matrix("fc.weight", fc_);
  embedding_norm_index_ = list.add_vector("midlayer.input_layernorm.weight", embedding_norm_);
  feature_norm_index_ = list.add_vector("midlayer.hidden_norm.weight", feature_norm_);
  layer_.list_parameters(kLayer, list);
  last_norm_index_ = list.add_vector("norm.weight", last_norm_);
  head_index_ = list.add_matrix("lm_head.weight", head_);
}

kv::KvShape Eagle3Network::kv_shape() const {
  return {.layers = 1,
          .kv_heads = config_.layer.kv_heads,
          .head_size = config_.layer.head_size,
          .type = type()};
}

Gradients Eagle3Network::make_gradients() const {
  return model::make_gradients(device(), parameters_);
}

void Eagle3Network::initialize(uint64_t seed) {
  model::initialize(device(), parameters_, seed);
  const at::Tensor tokens = at::tensor(target_tokens_, at::kLong).to(device().torch());
  const Parameter& own = parameters_[static_cast<size_t>(head_index_)];
  const char* name = target_.config().tied ? "model.embed_tokens.weight" : "lm_head.weight";
  own.write(device(), find(target_.parameters(), name).read(device()).index_select(0, tokens));
}

void Eagle3Network::set_target_tokens(std::vector<int32_t> tokens) {
  TLT_CHECK_INPUT(std::ssize(tokens) == config_.head_rows, "the drafter's head has ",
                  config_.head_rows, " rows and is given ", tokens.size(), " tokens");
  const bool ascends =
      std::adjacent_find(tokens.begin(), tokens.end(), std::greater_equal<>()) == tokens.end();
  TLT_CHECK_INPUT(ascends && tokens.front() >= 0 && tokens.back() < config_.layer.vocabulary,
                  "the tokens of the drafter's head must ascend and be below vocab_size ",
                  config_.layer.vocabulary);
  target_tokens_ = std::move(tokens);
}

void Eagle3Network::project(const at::Tensor& captured, at::Tensor& features) const {
  ops::linear(device(), captured, fc_, features);
}

const at::Tensor& Eagle3Network::join(const ops::Batch& batch, const at::Tensor& features,
                                      Eagle3Activations& m) const {
  const int64_t rows = batch.rows(), size = config_.layer.hidden;
  TLT_CHECK(features.dim() == 2 && features.size(0) == rows && features.size(1) == size,
            "features ", features.sizes(), " for ", rows, " pairs of ", size);
  for (RowBuffer* buffer : {&m.embedding_, &m.normed_})
    buffer->resize(device(), rows, size, type());
  m.joined_.resize(device(), rows, 2 * size, type());
  const double epsilon = config_.layer.norm_epsilon;
  at::Tensor& normed = m.normed_.view();
  target_.embed(batch, m.tokens_, m.embedding_.view());
  ops::rms_norm(device(), m.embedding_.view(), embedding_norm_, epsilon, normed);
  m.joined_.view().narrow(1, 0, size).copy_(normed);
  ops::rms_norm(device(), features, feature_norm_, epsilon, normed);
  m.joined_.view().narrow(1, size, size).copy_(normed);
  return m.joined_.view();
}

const at::Tensor& Eagle3Network::forward(const ops::Batch& batch, const at::Tensor& features,
                                         kv::KvCache& cache, Eagle3Activations& a) const {
  cache.reserve_tree(batch.tree_rows);
  const int64_t rows = batch.rows(), size = config_.layer.hidden;
  // A copy, before next_ moves: it may be the features.
  a.features_.resize(device(), rows, size, type());
  a.features_.view().copy_(features);
  const at::Tensor& joined = join(batch, a.features_.view(), a);
  a.next_.resize(device(), rows, size, type());
  layer_.forward_from(device(), batch, rope_.reach(device(), batch), joined, a.features_.view(),
                      cache.layer(0), a.layer_, a.next_.view(), /*keep=*/false);
  return a.next_.view();
}

void Eagle3Network::logits(const at::Tensor& next, Eagle3Activations& a, at::Tensor& out) const {
  a.normed_.resize(device(), next.size(0), config_.layer.hidden, type());
  ops::rms_norm(device(), next, last_norm_, config_.layer.norm_epsilon, a.normed_.view());
  logits(a.normed_.view(), out);
}

void Eagle3Network::logits(const at::Tensor& normed, at::Tensor& out) const {
  TLT_CHECK(out.scalar_type() == at::kFloat, "logits are float32");
  ops::linear(device(), normed, head_, out);
}

// --- training ---

const at::Tensor& Eagle3Network::forward(Eagle3Tape& tape, const at::Tensor& captured) const {
  tape.sequences_.prepare_cache(device(), kv_shape());
  const ops::Batch& batch = tape.batch();
  const int64_t rows = batch.rows(), size = config_.layer.hidden;
  Eagle3Activations& a = tape.passed_;
  for (RowBuffer* buffer : {&a.features_, &a.next_, &tape.last_normed_})
    buffer->resize(device(), rows, size, type());
  tape.captured_ = captured;
  project(captured, a.features_.view());
  const at::Tensor& joined = join(batch, a.features_.view(), a);
  layer_.forward_from(device(), batch, rope_.reach(device(), batch), joined, a.features_.view(),
                      tape.sequences_.cache().layer(0), a.layer_, a.next_.view(), /*keep=*/true);
  ops::rms_norm(device(), a.next_.view(), last_norm_, config_.layer.norm_epsilon,
                tape.last_normed_.view());
  return tape.last_normed_.view();
}

void Eagle3Network::logits_backward(const at::Tensor& normed, const at::Tensor& d_logits,
                                    at::Tensor& d_normed, Gradients& gradients) const {
  const at::Tensor d = d_logits.to(type());
  ops::linear_backward_input(device(), d, head_, d_normed);
  ops::linear_backward_weight(device(), d, normed, gradient(gradients, head_index_));
}

void Eagle3Network::backward(Eagle3Tape& tape, const at::Tensor& d_normed,
                             Gradients& gradients) const {
  const ops::Batch& batch = tape.batch();
  const int64_t rows = batch.rows(), size = config_.layer.hidden;
  const double epsilon = config_.layer.norm_epsilon;
  Eagle3Activations& a = tape.passed_;
  for (RowBuffer* buffer : {&tape.d_stream_, &tape.d_normed_, &tape.d_embedding_})
    buffer->resize(device(), rows, size, type());
  tape.d_joined_.resize(device(), rows, 2 * size, type());
  at::Tensor& d = tape.d_stream_.view();
  d.zero_();
  tape.d_embedding_.view().zero_();
  ops::rms_norm_backward(device(), d_normed, a.next_.view(), last_norm_, epsilon, d,
                         gradient(gradients, last_norm_index_));
  layer_.backward_from(device(), batch, rope_.reach(device(), batch), a.joined_.view(),
                       tape.sequences_.cache().layer(0), a.layer_, tape.scratch_, d,
                       tape.d_joined_.view(), /*accumulate=*/false, gradients.tensors);

  at::Tensor& half = tape.d_normed_.view();
  half.copy_(tape.d_joined_.view().narrow(1, size, size));
  ops::rms_norm_backward(device(), half, a.features_.view(), feature_norm_, epsilon, d,
                         gradient(gradients, feature_norm_index_));
  half.copy_(tape.d_joined_.view().narrow(1, 0, size));
  ops::rms_norm_backward(device(), half, a.embedding_.view(), embedding_norm_, epsilon,
                         tape.d_embedding_.view(), gradient(gradients, embedding_norm_index_));
  ops::linear_backward_weight(device(), d, tape.captured_, gradient(gradients, fc_index_));
}

}  // namespace tlt::model
