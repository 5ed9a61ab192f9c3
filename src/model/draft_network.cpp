// SPDX-License-Identifier: Apache-2.0
#include "model/draft_network.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "model/draft_activations.h"
#include "model/draft_config.h"
#include "model/draft_tape.h"

namespace tlt::model {
namespace {

constexpr const char* kLayer = "layers.0.";

const ModelConfig& checked(const ModelConfig& config, const PolicyModel& target) {
  check_fits_target(config, target.config(), "drafter");
  return config;
}

}  // namespace

ModelConfig DraftNetwork::config_for(const ModelConfig& target, Family family) {
  ModelConfig config = target;
  config.family = family;
  config.layers = 1;
  config.tied = false;
  config.attention_bias = family == Family::kQwen2;
  config.source = draft_config_json(config, target.source);
  return config;
}

DraftNetwork::DraftNetwork(const PolicyModel& target, const ModelConfig& config)
    : target_(target),
      config_(checked(config, target)),
      fc_(target.device(), config.hidden, 2 * config.hidden, target.type()),
      layer_(config, target.device(), target.type(), /*has_input_norm=*/false),
      rope_(config.rope, config.head_size) {
  ParameterList list(parameters_, type());
  fc_index_ = list.add_matrix("fc.weight", fc_);
  layer_.list_parameters(kLayer, list);
}

kv::KvShape DraftNetwork::kv_shape() const {
  return {
      .layers = 1, .kv_heads = config_.kv_heads, .head_size = config_.head_size, .type = type()};
}

Gradients DraftNetwork::make_gradients() const {
  return model::make_gradients(device(), parameters_);
}

void DraftNetwork::initialize(uint64_t seed) { model::initialize(device(), parameters_, seed); }

void DraftNetwork::initialize_from_target(uint64_t seed) {
  TLT_CHECK_INPUT(config_.family == target_.config().family,
                  "the drafter's layer is of another family than the target's and cannot start "
                  "from it; give the drafter the target's family, or start from random weights");
  initialize(seed);
  // FC = [random, identity]: an embedding's few hundredths beside a normed h_t of about one.
  const int64_t size = config_.hidden;
  const Parameter& fc = parameters_[static_cast<size_t>(fc_index_)];
  at::Tensor values = fc.read(device());
  values.narrow(1, size, size).copy_(at::eye(size, values.options()));
  fc.write(device(), values);

  const std::string last = "model.layers." + std::to_string(target_.config().layers - 1) + ".";
  for (const Parameter& parameter : parameters_) {
    if (!parameter.name().starts_with(kLayer)) continue;
    const std::string name = last + parameter.name().substr(std::string_view(kLayer).size());
    const Parameter& source = find(target_.parameters(), name);
    TLT_CHECK_INPUT(source.shape() == parameter.shape(), "the drafter's ", parameter.name(), " is ",
                    at::IntArrayRef(parameter.shape()), " and the target's ", name, " ",
                    at::IntArrayRef(source.shape()),
                    "; give the drafter the target's sizes, or start from random weights");
    parameter.write(device(), source.read(device()));
  }
}

void DraftNetwork::join(const ops::Batch& batch, const at::Tensor& features, at::Tensor& tokens,
                        RowBuffer& joined) const {
  const int64_t rows = batch.rows(), size = config_.hidden;
  TLT_CHECK(features.dim() == 2 && features.size(0) == rows && features.size(1) == size,
            "features ", features.sizes(), " for ", rows, " pairs of ", size);
  joined.resize(device(), rows, 2 * size, type());
  at::Tensor embeddings = joined.view().narrow(1, 0, size);
  joined.view().narrow(1, size, size).copy_(features);
  target_.embed(batch, tokens, embeddings);
}

DraftActivations::DraftActivations(const DraftNetwork& network, int64_t max_rows) {
  const int64_t size = network.config().hidden;
  joined_.resize(network.device(), max_rows, 2 * size, network.type());
  stream_.resize(network.device(), max_rows, size, network.type());
}

const at::Tensor& DraftNetwork::forward(const ops::Batch& batch, const at::Tensor& features,
                                        kv::KvCache& cache, DraftActivations& a) const {
  cache.reserve_tree(batch.tree_rows);
  join(batch, features, a.tokens_, a.joined_);  // before stream_ moves: it may be the features
  a.stream_.resize(device(), batch.rows(), config_.hidden, type());
  at::Tensor& x = a.stream_.view();
  ops::linear(device(), a.joined_.view(), fc_, x);
  layer_.forward(device(), batch, rope_.reach(device(), batch), x, cache.layer(0), a.layer_, x,
                 /*keep=*/false);
  return x;
}

// --- training ---

const at::Tensor& DraftNetwork::forward(DraftTape& tape, const at::Tensor& features) const {
  tape.sequences_.prepare_cache(device(), kv_shape());
  const ops::Batch& batch = tape.batch();
  join(batch, features, tape.tokens_, tape.joined_);
  tape.stream_.resize(device(), batch.rows(), config_.hidden, type());
  tape.next_.resize(device(), batch.rows(), config_.hidden, type());
  ops::linear(device(), tape.joined_.view(), fc_, tape.stream_.view());
  layer_.forward(device(), batch, rope_.reach(device(), batch), tape.stream_.view(),
                 tape.sequences_.cache().layer(0), tape.layer_, tape.next_.view(), /*keep=*/true);
  return tape.next_.view();
}

void DraftNetwork::backward(DraftTape& tape, const at::Tensor& d_out, Gradients& gradients,
                            at::Tensor* d_features) const {
  const ops::Batch& batch = tape.batch();
  const int64_t rows = batch.rows(), size = config_.hidden;
  tape.d_stream_.resize(device(), rows, size, type());
  at::Tensor& d = tape.d_stream_.view();
  d.copy_(d_out);
  layer_.backward(device(), batch, rope_.reach(device(), batch), tape.stream_.view(),
                  tape.sequences_.cache().layer(0), tape.layer_, tape.scratch_, d,
                  gradients.tensors);
  ops::linear_backward_weight(device(), d, tape.joined_.view(),
                              gradients.tensors[static_cast<size_t>(fc_index_)]);
  if (!d_features) return;
  tape.d_joined_.resize(device(), rows, 2 * size, type());
  ops::linear_backward_input(device(), d, fc_, tape.d_joined_.view());
  d_features->copy_(tape.d_joined_.view().narrow(1, size, size));
}

}  // namespace tlt::model
