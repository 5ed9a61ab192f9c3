// SPDX-License-Identifier: Apache-2.0
#include "model/policy_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "model/activations.h"
#include "model/rope.h"
#include "model/tape.h"

namespace tlt::model {

std::vector<int64_t> Parameter::shape() const {
  return matrix ? std::vector<int64_t>{matrix->rows(), matrix->columns()} : tensor->sizes().vec();
}

at::Tensor Parameter::read(const Device& device) const {
  return matrix ? matrix->values(device).to(at::kFloat) : tensor->to(at::kFloat).clone();
}

void Gradients::zero() {
  for (at::Tensor& tensor : tensors) tensor.zero_();
}

PolicyModel::PolicyModel(const ModelConfig& config, const Device& device, at::ScalarType type)
    : config_(config),
      device_(device),
      type_(type),
      final_norm_(device.zeros({config.hidden}, at::kFloat)) {
  TLT_CHECK_INPUT(type == at::kFloat || type == at::kBFloat16, "dtype ", c10::toString(type),
                  " is not supported; use float32 or bfloat16");
  config.check("model");
  if (config.tied) {
    embedding_ = ops::Weight(device, config.vocabulary, config.hidden, type);
  } else {
    embedding_table_ = device.zeros({config.vocabulary, config.hidden}, type);
    head_ = ops::Weight(device, config.vocabulary, config.hidden, type);
  }
  for (int64_t i = 0; i < config.layers; ++i) layers_.emplace_back(config, device, type);
  list_parameters();
}

void PolicyModel::list_parameters() {
  const auto add = [&](std::vector<Parameter::Part> parts, ops::Weight* matrix, at::Tensor* tensor,
                       bool decays) {
    parameters_.push_back({std::move(parts), matrix, tensor, decays, type_});
    return static_cast<int64_t>(parameters_.size()) - 1;
  };
  const auto whole = [](const std::string& name, int64_t rows) {
    return std::vector<Parameter::Part>{{name, 0, rows}};
  };
  const auto matrix = [&](const std::string& name, ops::Weight& w) {
    return add(whole(name, w.rows()), &w, nullptr, true);
  };
  const auto vector = [&](const std::string& name, at::Tensor& t) {
    return t.defined() ? add(whole(name, t.size(0)), nullptr, &t, false) : int64_t{-1};
  };
  const ModelConfig& c = config_;
  const int64_t q = c.heads * c.head_size, k = c.kv_heads * c.head_size;
  const auto qkv_parts = [&](const std::string& at, const std::string& kind) {
    return std::vector<Parameter::Part>{{at + "q_proj." + kind, 0, q},
                                        {at + "k_proj." + kind, q, k},
                                        {at + "v_proj." + kind, q + k, k}};
  };
  embedding_index_ = c.tied ? matrix("model.embed_tokens.weight", embedding_)
                            : add(whole("model.embed_tokens.weight", c.vocabulary), nullptr,
                                  &embedding_table_, true);
  for (size_t i = 0; i < layers_.size(); ++i) {
    DecoderLayer& layer = layers_[i];
    const std::string at = "model.layers." + std::to_string(i) + ".";
    LayerParameters& p = layer.parameters;
    p.input_norm = vector(at + "input_layernorm.weight", layer.input_norm);
    p.qkv = add(qkv_parts(at + "self_attn.", "weight"), &layer.qkv, nullptr, true);
    if (layer.qkv_bias.defined())
      p.qkv_bias = add(qkv_parts(at + "self_attn.", "bias"), nullptr, &layer.qkv_bias, false);
    p.q_norm = vector(at + "self_attn.q_norm.weight", layer.q_norm);
    p.k_norm = vector(at + "self_attn.k_norm.weight", layer.k_norm);
    p.output = matrix(at + "self_attn.o_proj.weight", layer.output);
    p.middle_norm = vector(at + "post_attention_layernorm.weight", layer.middle_norm);
    p.gate_up = add({{at + "mlp.gate_proj.weight", 0, c.intermediate},
                     {at + "mlp.up_proj.weight", c.intermediate, c.intermediate}},
                    &layer.gate_up, nullptr, true);
    p.down = matrix(at + "mlp.down_proj.weight", layer.down);
  }
  final_norm_index_ = vector("model.norm.weight", final_norm_);
  head_index_ = c.tied ? embedding_index_ : matrix("lm_head.weight", head_);
}

void Parameter::write(const Device& device, const at::Tensor& values, int64_t first_row) const {
  if (matrix) return matrix->assign(device, values, first_row);
  // Norm weights and biases stay float32 tensors, but hold values of the compute type: round_to
  // does that.
  at::Tensor rows = tensor->narrow(0, first_row, values.size(0));
  rows.copy_(round_to == tensor->scalar_type() ? values : values.to(round_to));
}

kv::KvShape PolicyModel::kv_shape() const {
  return {.layers = config_.layers,
          .kv_heads = config_.kv_heads,
          .head_size = config_.head_size,
          .type = type_};
}

Gradients PolicyModel::make_gradients() const {
  Gradients gradients;
  for (const Parameter& parameter : parameters_)
    gradients.tensors.push_back(device_.zeros(parameter.shape(), at::kFloat));
  return gradients;
}

void PolicyModel::initialize(uint64_t seed) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    at::Tensor values = at::empty(parameter.shape(), at::kFloat);
    RandomStream random(seed, {.prompt = static_cast<uint32_t>(i)});
    const std::string& name = parameter.parts.front().name;
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    double scale = 1.0 / std::sqrt(static_cast<double>(values.size(-1)));
    if (has("embed_tokens") || has("lm_head")) scale = 0.02;
    if (has("o_proj") || has("down_proj")) scale *= 0.3;
    if (has("norm")) {
      values.fill_(1);
    } else if (has(".bias")) {
      values.zero_();
    } else {
      float* data = values.data_ptr<float>();
      for (int64_t j = 0; j < values.numel(); ++j)
        data[j] = static_cast<float>(scale * random.normal());
    }
    parameter.write(device_, values.to(device_.torch()));
  }
}

void PolicyModel::embed(const ops::Batch& batch, at::Tensor& tokens, at::Tensor& out) const {
  const int64_t rows = batch.rows();
  if (device_.is_cpu()) {  // the batch outlives the pass: no copy
    tokens = at::from_blob(const_cast<int32_t*>(batch.tokens.data()), {rows}, at::kInt);
  } else {
    tokens = at::tensor(batch.tokens, at::kInt).to(device_.torch());
  }
  config_.tied ? embedding_.gather(device_, tokens, out)
               : ops::embed(device_, embedding_table_, tokens, out);
}

const at::Tensor& PolicyModel::cos_sin(const ops::Batch& batch) const {
  int64_t needed = 0;
  for (const ops::Segment& segment : batch.segments)
    needed = std::max<int64_t>(needed, segment.end_position());
  const int64_t have = cos_sin_.defined() ? cos_sin_.size(0) : 0;
  if (needed > have)
    cos_sin_ =
        rope_table(config_.rope, config_.head_size, std::max<int64_t>({needed, 2 * have, 2048}))
            .to(device_.torch());
  return cos_sin_;
}

Activations::Activations(const PolicyModel& model, int64_t max_rows) {
  const int64_t hidden = model.config().hidden;
  residual_.resize(model.device(), max_rows, hidden, model.type());
  hidden_.resize(model.device(), max_rows, hidden, model.type());
}

const at::Tensor& PolicyModel::forward(const ops::Batch& batch, kv::KvCache& cache,
                                       Activations& a) const {
  const at::Tensor& angles = cos_sin(batch);
  cache.reserve_tree(batch.tree_rows);
  a.residual_.resize(device_, batch.rows(), config_.hidden, type_);
  a.hidden_.resize(device_, batch.rows(), config_.hidden, type_);
  at::Tensor& x = a.residual_.view();
  embed(batch, a.tokens_, x);
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].forward(device_, batch, angles, x, cache.layer(static_cast<int64_t>(i)), a.layer_, x,
                       /*keep=*/false);
  ops::rms_norm(device_, x, final_norm_, config_.norm_epsilon, a.hidden_.view());
  return a.hidden_.view();
}

void PolicyModel::logits(const at::Tensor& hidden, at::Tensor& out) const {
  TLT_CHECK(out.scalar_type() == at::kFloat, "logits are float32");
  ops::linear(device_, hidden, head(), out);
}

// --- training ---

Tape::Tape(const PolicyModel& model, bool recompute)
    : model_(model),
      recompute_(recompute),
      inputs_(static_cast<size_t>(model.config().layers) + 1),
      layers_(recompute ? 1 : static_cast<size_t>(model.config().layers)) {}

void Tape::add_sequence(const int32_t* tokens, int32_t count) {
  TLT_CHECK(count > 0, "empty sequence");
  batch_.add(tokens, count, /*first_position=*/0, nullptr);
  used_pages_ += (count + ops::kPageSlots - 1) / ops::kPageSlots;
}

void Tape::clear() {
  batch_.clear();
  used_pages_ = 0;
}

void Tape::prepare_cache() {
  if (!cache_ || cache_->pages() < used_pages_) {
    kv::KvShape shape = model_.kv_shape();
    if (recompute_) shape.layers = 1;
    cache_.reset();
    cache_ = std::make_unique<kv::KvCache>(model_.device(), shape, used_pages_);
    pages_.resize(static_cast<size_t>(used_pages_));
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<ops::PageId>(i);
  }
  const ops::PageId* next = pages_.data();
  for (ops::Segment& segment : batch_.segments) {
    segment.pages = next;
    next += (segment.rows + ops::kPageSlots - 1) / ops::kPageSlots;
  }
}

const at::Tensor& PolicyModel::forward(Tape& tape) const {
  tape.prepare_cache();
  const ops::Batch& batch = tape.batch_;
  const at::Tensor& angles = cos_sin(batch);
  for (RowBuffer& input : tape.inputs_) input.resize(device_, batch.rows(), config_.hidden, type_);
  tape.hidden_.resize(device_, batch.rows(), config_.hidden, type_);
  embed(batch, tape.tokens_, tape.inputs_[0].view());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    layers_[i].forward(device_, batch, angles, tape.inputs_[i].view(), tape.cache_layer(layer),
                       tape.activations(layer), tape.inputs_[i + 1].view(), /*keep=*/true);
  }
  ops::rms_norm(device_, tape.inputs_.back().view(), final_norm_, config_.norm_epsilon,
                tape.hidden_.view());
  return tape.hidden_.view();
}

void PolicyModel::logits_backward(const at::Tensor& hidden, const at::Tensor& d_logits,
                                  at::Tensor& d_hidden, Gradients& gradients) const {
  const at::Tensor d = d_logits.to(type_);
  ops::linear_backward_input(device_, d, head(), d_hidden);
  ops::linear_backward_weight(device_, d, hidden,
                              gradients.tensors[static_cast<size_t>(head_index_)]);
}

void PolicyModel::backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const {
  const ops::Batch& batch = tape.batch_;
  const at::Tensor& angles = cos_sin(batch);
  tape.d_stream_.resize(device_, batch.rows(), config_.hidden, type_);
  at::Tensor& d = tape.d_stream_.view();
  d.zero_();
  ops::rms_norm_backward(device_, d_hidden, tape.inputs_.back().view(), final_norm_,
                         config_.norm_epsilon, d,
                         gradients.tensors[static_cast<size_t>(final_norm_index_)]);
  for (size_t i = layers_.size(); i-- > 0;) {
    const auto layer = static_cast<int64_t>(i);
    LayerActivations& a = tape.activations(layer);
    const at::Tensor& x = tape.inputs_[i].view();
    // The last layer's activations are still there.
    if (tape.recompute_ && i + 1 < layers_.size())
      layers_[i].forward(device_, batch, angles, x, tape.cache_layer(layer), a,
                         tape.inputs_[i + 1].view(), /*keep=*/true);
    layers_[i].backward(device_, batch, angles, x, tape.cache_layer(layer), a, tape.scratch_, d,
                        gradients.tensors);
  }
  ops::embed_backward(device_, d, tape.tokens_,
                      gradients.tensors[static_cast<size_t>(embedding_index_)]);
}

}  // namespace tlt::model
