// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/draft_network.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "drafter/eagle/draft_activations.h"
#include "drafter/eagle/draft_tape.h"
#include "ops/device_batch.h"

namespace tlt::drafter {

DraftNetwork::DraftNetwork(const model::PolicyModel& target, const model::ModelConfig& config,
                           int64_t input_columns)
    : target_(target),
      config_(config),
      layer_(config, target.device(), target.type(), /*has_input_norm=*/false, input_columns),
      rope_(config.rope, config.head_size) {}

kv::KvShape DraftNetwork::kv_shape() const {
  return {
      .layers = 1, .kv_heads = config_.kv_heads, .head_size = config_.head_size, .type = type()};
}

model::Gradients DraftNetwork::make_gradients() const {
  return model::make_gradients(device(), parameters_);
}

const std::vector<int64_t>& DraftNetwork::auxiliary_layers() const {
  static const std::vector<int64_t> none;
  return none;
}

int64_t DraftNetwork::feature_columns() const {
  return config_.hidden * std::max<int64_t>(1, std::ssize(auxiliary_layers()));
}

const std::vector<int32_t>& DraftNetwork::head_tokens() const {
  static const std::vector<int32_t> all;
  return all;
}

int64_t DraftNetwork::head_rows() const {
  return head_tokens().empty() ? config_.vocabulary : std::ssize(head_tokens());
}

void DraftNetwork::copy_weights(const DraftNetwork& from) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].write(device(), from.parameters_[i].read(device()));
  hot_tokens_ = from.hot_tokens_;
}

// --- drafting ---

DraftActivations::DraftActivations(const DraftNetwork& network, int64_t max_rows) {
  const int64_t size = network.config().hidden;
  pass_.embedding.resize(network.device(), max_rows, size, network.type());
  pass_.joined.resize(network.device(), max_rows, 2 * size, network.type());
  pass_.stream.resize(network.device(), max_rows, size, network.type());
  pass_.next.resize(network.device(), max_rows, size, network.type());
}

const at::Tensor& DraftNetwork::features(const at::Tensor& states, DraftActivations& a) const {
  return project(states, a.projected_);
}

const at::Tensor& DraftNetwork::forward(const ops::Batch& batch, const at::Tensor& features,
                                        kv::KvCache& cache, DraftActivations& a) const {
  cache.reserve_tree(batch.tree_rows);
  std::optional<ops::DeviceBatch> on_device;
  if (!device().is_cpu()) on_device.emplace(batch, device().torch());
  DraftPass& pass = a.pass_;
  enter(batch, features, pass);  // before next is resized: it may be the features
  pass.next.resize(device(), batch.rows(), config_.hidden, type());
  layer_.forward_from({device(), batch, rope_.reach(device(), batch), cache.layer(0),
                       on_device ? &*on_device : nullptr},
                      {.input = input(pass), .x = pass.stream.view()}, pass.layer, pass.next.view(),
                      /*keep=*/false);
  return pass.next.view();
}

void DraftNetwork::logits(const at::Tensor& next, DraftActivations& a, at::Tensor& out) const {
  head(read(next, a.read_), out);
}

// --- training ---

const at::Tensor& DraftNetwork::forward(DraftTape& tape, const at::Tensor& states) const {
  tape.sequences_.prepare_cache(device(), kv_shape());
  tape.passes_ = 0;
  tape.states_ = states;
  return run_pass(tape, project(states, tape.projected_));
}

const at::Tensor& DraftNetwork::run_ttt_pass(DraftTape& tape) const {
  TLT_CHECK(tape.passes_ > 0, "call forward() first");
  const int64_t rows = tape.batch().rows();
  tape.drafted_.resize(device(), rows, config_.hidden, type());
  at::Tensor& features = tape.drafted_.view();
  features.narrow(0, 0, 1).zero_();
  features.narrow(0, 1, rows - 1)
      .copy_(tape.pass(tape.passes_ - 1).next.view().narrow(0, 0, rows - 1));
  return run_pass(tape, features);
}

const at::Tensor& DraftNetwork::run_pass(DraftTape& tape, const at::Tensor& features) const {
  const ops::Batch& batch = tape.batch();
  DraftPass& pass = tape.pass(tape.passes_);
  enter(batch, features, pass);
  pass.next.resize(device(), batch.rows(), config_.hidden, type());
  layer_.project(device(), input(pass), pass.layer, /*keep=*/true);
  tape.attention_.forward(
      layer_, {device(), batch, rope_.reach(device(), batch), tape.sequences_.cache().layer(0)},
      tape.layers(tape.passes_));
  layer_.finish(device(), pass.stream.view(), pass.layer, pass.next.view());
  ++tape.passes_;
  pass.out = &read(pass.next.view(), pass.read);
  return *pass.out;
}

void DraftNetwork::backward(DraftTape& tape, const at::Tensor& d_read, model::Gradients& gradients,
                            at::Tensor* d_features) const {
  TLT_CHECK(tape.passes_ == 1, tape.passes_, " passes");
  backward(tape, 0, d_read, gradients, d_features);
}

void DraftNetwork::backward_pass(DraftTape& tape, int64_t pass, const at::Tensor& d_read,
                                 model::Gradients& gradients) const {
  TLT_CHECK(pass >= 0 && pass < tape.passes_, "pass ", pass, " of ", tape.passes_);
  backward(tape, pass, d_read, gradients, nullptr);
}

void DraftNetwork::backward(DraftTape& tape, int64_t index, const at::Tensor& d_read,
                            model::Gradients& gradients, at::Tensor* d_features) const {
  const int64_t rows = tape.batch().rows();
  DraftPass& pass = tape.pass(index);
  DraftScratch& s = tape.scratch_;
  s.d_stream.resize(device(), rows, config_.hidden, type());
  at::Tensor& d = s.d_stream.view();
  index + 1 < tape.passes_ ? d.copy_(s.d_next.view()) : d.zero_();
  read_backward(d_read, pass.next.view(), d, gradients);
  layer_backward(tape, index, d, gradients);

  const bool projects = index == 0 && !auxiliary_layers().empty();
  if ((projects || index > 0) && !d_features) {
    s.d_features.resize(device(), rows, config_.hidden, type());
    d_features = &s.d_features.view();
  }
  enter_backward(pass, s, d, gradients, d_features);
  if (projects) project_backward(tape.states_, *d_features, gradients);
  if (index == 0) return;
  s.d_next.resize(device(), rows, config_.hidden, type());
  s.d_next.view().narrow(0, rows - 1, 1).zero_();
  s.d_next.view().narrow(0, 0, rows - 1).copy_(d_features->narrow(0, 1, rows - 1));
}

void DraftNetwork::layer_backward(DraftTape& tape, int64_t index, at::Tensor& d,
                                  model::Gradients& gradients) const {
  const ops::Batch& batch = tape.batch();
  DraftPass& pass = tape.pass(index);
  DraftScratch& s = tape.scratch_;
  const at::Tensor& angles = rope_.reach(device(), batch);
  const ops::KvLayer cache = tape.sequences_.cache().layer(0);
  const bool reads_stream = &input(pass) == &pass.stream.view();
  s.d_input.resize(device(), batch.rows(), 2 * config_.hidden, type());
  at::Tensor& d_input = reads_stream ? d : s.d_input.view();
  const model::LayerRows rows{device(), batch, angles, cache};
  const model::LayerBackward backward{pass.layer, s.layer, gradients};
  const model::InputGradient input_gradient{d_input, /*accumulate=*/reads_stream};
  if (tape.passes_ == 1)
    return layer_.backward_from(rows, input(pass), backward, d, input_gradient);
  layer_.finish_backward(device(), backward, d);
  tape.attention_.backward(layer_, rows, tape.layers(index),
                           {s.layer.d_attended.view(), s.layer.d_qkv.view(), gradients.tensors});
  layer_.project_backward(device(), input(pass), backward, input_gradient);
}

}  // namespace tlt::drafter
