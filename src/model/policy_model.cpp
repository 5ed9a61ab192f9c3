// SPDX-License-Identifier: Apache-2.0
#include "model/policy_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "model/activations.h"
#include "model/tape.h"
#include "ops/device_batch.h"
#include "ops/padded_rows.h"

namespace tlt::model {

PolicyModel::PolicyModel(const ModelConfig& config, const Device& device, at::ScalarType type)
    : config_(config),
      tokens_(config.vocabulary),
      device_(device),
      type_(type),
      final_norm_(device.zeros({config.hidden}, at::kFloat)),
      rope_(config.rope, config.head_size) {
  TLT_CHECK_INPUT(type == at::kFloat || type == at::kBFloat16, "dtype ", c10::toString(type),
                  " is not supported; use float32 or bfloat16");
  config.check("model");
  make_vocabulary(config.vocabulary);
  for (int64_t i = 0; i < config.layers; ++i) layers_.emplace_back(config, device, type);
  list_parameters();
}

PolicyModel::PolicyModel(const PolicyModel& whole, TensorParallelRanks& ranks)
    : whole_(&whole),
      sum_{.slices = ranks.size(), .ranks = &ranks},
      config_(whole.config_),
      tokens_(whole.tokens_),
      device_(whole.device_),
      type_(whole.type_),
      final_norm_(whole.final_norm_),
      rope_(config_.rope, config_.head_size) {
  make_vocabulary(slice_rows({&config_.vocabulary, 1}, sum_.slices));
  const ModelConfig part = shard_config(config_, sum_.slices);
  for (int64_t i = 0; i < config_.layers; ++i) {
    layers_.emplace_back(part, device_, type_);
    layers_.back().set_sum(sum_);
  }
  copy_part();
  list_parameters();
}

void PolicyModel::make_vocabulary(int64_t rows) {
  if (config_.tied) {
    embedding_ = ops::Weight(device_, rows, config_.hidden, type_);
  } else {
    embedding_table_ = device_.zeros({rows, config_.hidden}, type_);
    head_ = ops::Weight(device_, rows, config_.hidden, type_);
  }
}

std::vector<RowBlock> PolicyModel::own_rows() const {
  return rows_of_slice({&config_.vocabulary, 1}, sum_.slices, sum_.ranks->rank());
}

void PolicyModel::copy_part() {
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].assign_shard(device_, whole_->layers_[i], sum_.ranks->rank());
  for (const auto& [from, count, to] : own_rows()) {
    ops::Weight& rows = config_.tied ? embedding_ : head_;
    rows.assign(device_, whole_->head().values(device_, from, count), to);
    if (!config_.tied)
      embedding_table_.narrow(0, to, count).copy_(whole_->embedding_table_.narrow(0, from, count));
  }
}

void PolicyModel::list_parameters() {
  ParameterList list(parameters_, type_);
  const int64_t first = config_.layers;  // the stage of the first layer, and of the embedding
  const std::string embedding = "model.embed_tokens.weight";
  list.set_stages({config_.tied ? 0 : first, first});
  embedding_index_ = config_.tied ? list.add_matrix(embedding, embedding_)
                                  : list.add_table(embedding, embedding_table_);
  for (int64_t i = 0; i < config_.layers; ++i) {
    list.set_stages({first - i, first - i});
    layers_[static_cast<size_t>(i)].list_parameters("model.layers." + std::to_string(i) + ".",
                                                    list);
  }
  list.set_stages({1, 1});
  final_norm_index_ = list.add_vector("model.norm.weight", final_norm_);
  list.set_stages({0, 0});
  head_index_ = config_.tied ? embedding_index_ : list.add_matrix("lm_head.weight", head_);
}

void PolicyModel::set_tokens(int64_t tokens) {
  TLT_CHECK(tokens > 0 && tokens <= config_.vocabulary, tokens, " tokens of ", config_.vocabulary);
  tokens_ = tokens;
}

void PolicyModel::set_slices(int64_t slices) {
  TLT_CHECK(slices >= 1 && (config_.heads * config_.head_size) % (2 * slices) == 0 &&
                config_.intermediate % (2 * slices) == 0,
            slices, " slices");
  TLT_CHECK(!whole_, "a part has the slices of its ranks");
  sum_ = {.slices = slices};
  for (DecoderLayer& layer : layers_) layer.set_sum(sum_);
}

kv::KvShape PolicyModel::kv_shape() const {
  return {.layers = config_.layers,
          .kv_heads = whole_ ? config_.kv_heads / sum_.slices : config_.kv_heads,
          .head_size = config_.head_size,
          .type = type_};
}

Gradients PolicyModel::make_gradients() const {
  return model::make_gradients(device_, parameters_);
}

void PolicyModel::initialize(uint64_t seed) { model::initialize(device_, parameters_, seed); }

void PolicyModel::embed(const ops::Batch& batch, at::Tensor& out) const {
  if (whole_) return whole_->embed(batch, out);
  config_.tied ? embedding_.gather(device_, batch.tokens, out)
               : ops::embed(device_, embedding_table_, batch.tokens, out);
}

void PolicyModel::embed(const ops::Batch& batch, const ops::DeviceBatch& on_device,
                        at::Tensor& out) const {
  if (whole_) return whole_->embed(batch, on_device, out);
  for (const int32_t token : batch.tokens)  // a card checks them by an assertion that ends its use
    TLT_CHECK(token >= 0 && token < config_.vocabulary, "token ", token, " of a vocabulary of ",
              config_.vocabulary);
  at::index_select_out(out, config_.tied ? embedding_.storage() : embedding_table_, 0,
                       on_device.tokens());
}

Activations::Activations(const PolicyModel& model, int64_t max_rows) : max_rows_(max_rows) {
  const int64_t hidden = model.config().hidden;
  residual_.resize(model.device(), max_rows, hidden, model.type());
  hidden_.resize(model.device(), max_rows, hidden, model.type());
}

void Activations::use(const PolicyModel& model, RowGraphs& graphs) {
  graphs_ = &graphs;
  reserve(model, max_rows_ <= ops::kMostPaddedRows ? ops::padded_rows(max_rows_) : max_rows_);
}

void Activations::reserve(const PolicyModel& model, int64_t rows) {
  const int64_t hidden = model.config().hidden, width = std::ssize(captured_layers_) * hidden;
  residual_.resize(model.device(), rows, hidden, model.type());
  hidden_.resize(model.device(), rows, hidden, model.type());
  if (width > 0) captured_.resize(model.device(), rows, width, model.type());
  model.layers_[0].reserve(model.device(), rows, layer_);
  reserved_rows_ = rows;
}

int64_t Activations::padded(const PolicyModel& model, int64_t rows) {
  const int64_t padded = graphs_ && rows <= ops::kMostPaddedRows ? ops::padded_rows(rows) : rows;
  if (graphs_ && padded > reserved_rows_) {
    reserve(model, padded);
    graphs_->clear();
  }
  return padded;
}

const at::Tensor& PolicyModel::forward(const ops::Batch& batch, kv::KvCache& cache,
                                       Activations& a) const {
  const at::Tensor& angles = rope_.reach(device_, batch);
  cache.reserve_tree(batch.tree_rows);
  const int64_t rows = batch.rows(), padded = a.padded(*this, rows);
  a.residual_.resize(device_, padded, config_.hidden, type_);
  a.hidden_.resize(device_, padded, config_.hidden, type_);
  const int64_t width = std::ssize(a.captured_layers_) * config_.hidden;
  if (width > 0) a.captured_.resize(device_, padded, width, type_);
  at::Tensor& x = a.residual_.view();
  std::optional<ops::DeviceBatch> on_device;
  if (device_.is_cpu()) {
    embed(batch, x);
  } else {
    on_device.emplace(batch, device_.torch());
    at::Tensor own = x.narrow(0, 0, rows);
    embed(batch, *on_device, own);
  }
  const bool has_graphs = a.graphs_ && rows <= ops::kMostPaddedRows;
  if (has_graphs) layers_[0].reserve(device_, padded, a.layer_);  // a replay resizes no view
  for (int64_t i = 0; i <= config_.layers; ++i) {
    const auto work = [&] { forward_rows(i, a); };
    has_graphs ? a.graphs_->launch(padded, i, work) : work();
    if (i < config_.layers)
      layers_[static_cast<size_t>(i)].attend(
          {device_, batch, angles, cache.layer(i), on_device ? &*on_device : nullptr}, a.layer_,
          /*keep=*/false);
  }
  if (width > 0) a.captured_.resize(device_, rows, width, type_);
  return a.hidden_.resize(device_, rows, config_.hidden, type_);
}

void PolicyModel::forward_rows(int64_t layer, Activations& a) const {
  at::Tensor& x = a.residual_.view();
  const auto capture = [&](const at::Tensor& states) {
    const auto& captured = a.captured_layers_;
    for (int64_t j = 0; j < std::ssize(captured); ++j)
      if (captured[static_cast<size_t>(j)] == layer)
        a.captured_.view().narrow(1, j * config_.hidden, config_.hidden).copy_(states);
  };
  if (layer > 0) layers_[static_cast<size_t>(layer - 1)].finish(device_, x, a.layer_, x);
  if (layer < config_.layers) {
    capture(x);
    return layers_[static_cast<size_t>(layer)].begin(device_, x, a.layer_, /*keep=*/false);
  }
  ops::rms_norm(device_, x, final_norm_, config_.norm_epsilon, a.hidden_.view());
  capture(a.hidden_.view());
}

void PolicyModel::logits(const at::Tensor& hidden, at::Tensor& out) const {
  TLT_CHECK(out.scalar_type() == at::kFloat, "logits are float32");
  if (!whole_) return ops::linear(device_, hidden, head(), out);
  const int64_t size = sum_.slices, rows = hidden.size(0), columns = head().rows();
  at::Tensor all = gathered_logits_.resize(device_, size * rows, columns, at::kFloat)
                       .view({size, rows, columns});
  at::Tensor mine = all.select(0, sum_.ranks->rank());
  ops::linear(device_, hidden, head(), mine);
  sum_.ranks->all_gather(all);
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t first = rank * columns, count = std::min(columns, out.size(1) - first);
    if (count > 0) out.narrow(1, first, count).copy_(all.select(0, rank).narrow(1, 0, count));
  }
}

// --- training ---

Tape::Tape(const PolicyModel& model, bool recompute)
    : model_(model),
      recompute_(recompute),
      inputs_(static_cast<size_t>(model.config().layers) + 1),
      layers_(recompute ? 1 : static_cast<size_t>(model.config().layers)) {}

void Tape::release_memory() {
  const auto forget = [](auto& list) {
    const size_t size = list.size();
    list.clear();
    list.resize(size);
  };
  clear();
  sequences_.release_memory();
  on_device_.reset();
  forget(inputs_);
  forget(layers_);
  hidden_ = {};
  d_stream_ = {};
  scratch_ = {};
}

void Tape::captured(const std::vector<int64_t>& layers, at::Tensor& out) {
  const int64_t size = model_.config().hidden;
  for (int64_t i = 0; i < std::ssize(layers); ++i)
    out.narrow(1, i * size, size)
        .copy_(inputs_[static_cast<size_t>(layers[static_cast<size_t>(i)])].view());
}

void Tape::prepare_cache() {
  kv::KvShape shape = model_.kv_shape();
  if (recompute_) shape.layers = 1;
  sequences_.prepare_cache(model_.device(), shape);
}

const at::Tensor& PolicyModel::forward(Tape& tape) const {
  tape.computed_ = 0;
  while (forward_layer(tape)) {
  }
  return tape.hidden();
}

bool PolicyModel::forward_layer(Tape& tape) const {
  const int64_t layer = tape.computed_;
  if (layer == 0) begin_forward(tape);
  const auto i = static_cast<size_t>(layer);
  // The parts of the layers' sums have one memory.
  if (layer > 0) tape.activations(layer).parts = tape.activations(layer - 1).parts;
  layers_[i].forward({device_, tape.batch(), rope_.reach(device_, tape.batch()),
                      tape.cache_layer(layer), tape.on_device()},
                     tape.inputs_[i].view(), tape.activations(layer), tape.inputs_[i + 1].view(),
                     /*keep=*/true);
  if (++tape.computed_ < config_.layers) return true;
  ops::rms_norm(device_, tape.inputs_.back().view(), final_norm_, config_.norm_epsilon,
                tape.hidden_.view());
  return false;
}

void PolicyModel::begin_forward(Tape& tape) const {
  tape.prepare_cache();
  const int64_t rows = tape.batch().rows();
  for (RowBuffer& input : tape.inputs_) input.resize(device_, rows, config_.hidden, type_);
  tape.hidden_.resize(device_, rows, config_.hidden, type_);
  at::Tensor& x = tape.inputs_[0].view();
  if (device_.is_cpu()) return embed(tape.batch(), x);
  tape.on_device_.emplace(tape.batch(), device_.torch());
  embed(tape.batch(), *tape.on_device_, x);
}

void PolicyModel::logits_backward(const at::Tensor& hidden, const at::Tensor& d_logits,
                                  at::Tensor& d_hidden, Gradients& gradients) const {
  at::Tensor d = d_logits.to(type_);
  if (whole_) {
    const at::Tensor all = d;
    d = device_.zeros({all.size(0), head().rows()}, type_);
    for (const auto& [from, count, to] : own_rows())
      d.narrow(1, to, count).copy_(all.narrow(1, from, count));
  }
  if (sum_.slices == 1) {
    ops::linear_backward_input(device_, d, head(), d_hidden);
  } else {
    at::Tensor parts = device_.empty({sum_.slices, d.size(0), config_.hidden}, at::kFloat);
    backward_slices(device_, sum_, {d, head(), {&config_.vocabulary, 1}}, parts, d_hidden);
  }
  gradients.add_linear(device_, head_index_, d, hidden);
}

void PolicyModel::logits_backward_input(const at::Tensor& d_logits, at::Tensor& d_hidden) const {
  ops::linear_backward_input(device_, d_logits.to(type_), head(), d_hidden);
}

void PolicyModel::backward(Tape& tape, const at::Tensor& d_hidden, Gradients& gradients) const {
  tape.computed_ = config_.layers;
  while (backward_layer(tape, d_hidden, gradients)) {
  }
}

bool PolicyModel::backward_layer(Tape& tape, const at::Tensor& d_hidden,
                                 Gradients& gradients) const {
  if (tape.computed_ == config_.layers) begin_backward(tape, d_hidden, gradients);
  at::Tensor& d = tape.d_stream_.view();
  const int64_t layer = --tape.computed_;
  const auto i = static_cast<size_t>(layer);
  LayerActivations& a = tape.activations(layer);
  const ops::KvLayer cache = tape.cache_layer(layer);
  const LayerRows rows{device_, tape.batch(), rope_.reach(device_, tape.batch()), cache,
                       tape.on_device()};
  const at::Tensor& x = tape.inputs_[i].view();
  // The last layer's activations are still in memory.
  if (tape.recompute_ && layer + 1 < config_.layers)
    layers_[i].forward(rows, x, a, tape.inputs_[i + 1].view(), /*keep=*/true);
  layers_[i].backward(rows, x, {a, tape.scratch_, gradients}, d);
  if (layer > 0) return true;
  if (at::Tensor* d_embedding = gradients.find(embedding_index_))
    embed_backward(d, tape.batch().tokens, *d_embedding);
  return false;
}

void PolicyModel::embed_backward(const at::Tensor& d, std::span<const int32_t> tokens,
                                 at::Tensor& d_embedding) const {
  if (!whole_) return ops::embed_backward(device_, d, tokens, d_embedding);
  for (const auto& [from, count, to] : own_rows()) {
    std::vector<int64_t> rows;
    std::vector<int32_t> own;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t row = tokens[i] - from;
      if (row < 0 || row >= count) continue;
      rows.push_back(static_cast<int64_t>(i));
      own.push_back(static_cast<int32_t>(to + row));
    }
    at::Tensor own_d = device_.empty({std::ssize(rows), config_.hidden}, type_);
    ops::gather_rows(device_, d, rows, own_d);
    ops::embed_backward(device_, own_d, own, d_embedding);
  }
}

void PolicyModel::begin_backward(Tape& tape, const at::Tensor& d_hidden,
                                 Gradients& gradients) const {
  tape.d_stream_.resize(device_, tape.batch().rows(), config_.hidden, type_);
  at::Tensor& d = tape.d_stream_.view();
  d.zero_();
  ops::rms_norm_backward(device_, {.dy = d_hidden,
                                   .x = tape.inputs_.back().view(),
                                   .weight = final_norm_,
                                   .epsilon = config_.norm_epsilon,
                                   .dx = d,
                                   .dweight = gradients.at(final_norm_index_)});
}

}  // namespace tlt::model
