// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_layer.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace tlt::model {

// The view is one tensor that changes its size: the number of rows differs from pass to pass,
// especially with draft trees, and no new tensor is made.
const at::Tensor& RowBuffer::resize(const Device& device, int64_t rows, int64_t columns,
                                    at::ScalarType type) {
  if (!storage_.defined() || storage_.size(0) < rows || storage_.size(1) != columns) {
    storage_ = device.empty({rows, columns}, type);
    view_ = storage_.narrow(0, 0, rows);
  } else if (view_.size(0) != rows) {
    view_.unsafeGetTensorImpl()->set_sizes_contiguous({rows, columns});
  }
  return view_;
}

DecoderLayer::DecoderLayer(const ModelConfig& c, const Device& device, at::ScalarType type,
                           bool has_input_norm, int64_t input_columns)
    : qkv(device, (c.heads + 2 * c.kv_heads) * c.head_size, input_columns, type),
      output(device, c.hidden, c.heads * c.head_size, type),
      gate_up(device, 2 * c.intermediate, c.hidden, type),
      down(device, c.hidden, c.intermediate, type),
      middle_norm(device.zeros({c.hidden}, at::kFloat)),
      shape_{c.heads, c.kv_heads, c.head_size},
      hidden_(c.hidden),
      intermediate_(c.intermediate),
      epsilon_(c.norm_epsilon),
      type_(type) {
  if (has_input_norm) input_norm = device.zeros({c.hidden}, at::kFloat);
  if (c.attention_bias) qkv_bias = device.zeros({qkv.rows()}, at::kFloat);
  if (c.qk_norm()) {
    q_norm = device.zeros({c.head_size}, at::kFloat);
    k_norm = device.zeros({c.head_size}, at::kFloat);
  }
}

void DecoderLayer::list_parameters(const std::string& prefix, ParameterList& list) {
  const int64_t q = shape_.heads * shape_.head_size, k = shape_.kv_heads * shape_.head_size;
  const auto qkv_parts = [&](const std::string& kind) {
    const std::string at = prefix + "self_attn.";
    return std::vector<Parameter::Part>{{at + "q_proj." + kind, 0, q},
                                        {at + "k_proj." + kind, q, k},
                                        {at + "v_proj." + kind, q + k, k}};
  };
  LayerParameters& p = parameters;
  p.input_norm = list.add_vector(prefix + "input_layernorm.weight", input_norm);
  p.qkv = list.add_matrix(qkv_parts("weight"), qkv);
  p.qkv_bias = list.add_vector(qkv_parts("bias"), qkv_bias);
  p.q_norm = list.add_vector(prefix + "self_attn.q_norm.weight", q_norm);
  p.k_norm = list.add_vector(prefix + "self_attn.k_norm.weight", k_norm);
  p.output = list.add_matrix(prefix + "self_attn.o_proj.weight", output);
  p.middle_norm = list.add_vector(prefix + "post_attention_layernorm.weight", middle_norm);
  p.gate_up = list.add_matrix({{prefix + "mlp.gate_proj.weight", 0, intermediate_},
                               {prefix + "mlp.up_proj.weight", intermediate_, intermediate_}},
                              gate_up);
  p.down = list.add_matrix(prefix + "mlp.down_proj.weight", down);
}

ops::RopeStore DecoderLayer::rope(const at::Tensor& cos_sin) const {
  return {.cos_sin = cos_sin,
          .q_norm = q_norm.defined() ? &q_norm : nullptr,
          .k_norm = k_norm.defined() ? &k_norm : nullptr,
          .norm_epsilon = epsilon_};
}

void DecoderLayer::forward(const LayerRows& rows, const at::Tensor& x, LayerActivations& a,
                           at::Tensor& out, bool keep) const {
  begin(rows.device, x, a, keep);
  attend(rows, a, keep);
  finish(rows.device, x, a, out);
}

void DecoderLayer::begin(const Device& device, const at::Tensor& x, LayerActivations& a,
                         bool keep) const {
  if (!input_norm.defined()) return project(device, x, a, keep);
  a.normed.resize(device, x.size(0), hidden_, type_);
  ops::rms_norm(device, x, input_norm, epsilon_, a.normed.view());
  project(device, a.normed.view(), a, keep);
}

void DecoderLayer::attend(const LayerRows& rows, LayerActivations& a, bool keep) const {
  const ops::AttentionRows attention{shape_, rows.batch, rows.cache, rows.on_device};
  const int64_t count = rows.batch.rows();
  at::Tensor* lse = keep ? &a.lse.view() : nullptr;
  if (a.qkv.view().size(0) == count)
    return ops::rope_and_attention(rows.device, attention, rope(rows.cos_sin), a.qkv.view(),
                                   {a.attended.view(), lse});
  at::Tensor qkv = a.qkv.view().narrow(0, 0, count),
             attended = a.attended.view().narrow(0, 0, count);
  ops::rope_and_attention(rows.device, attention, rope(rows.cos_sin), qkv, {attended, lse});
}

void DecoderLayer::reserve(const Device& device, int64_t rows, LayerActivations& a) const {
  a.normed.resize(device, rows, hidden_, type_);
  a.qkv.resize(device, rows, qkv.rows(), type_);
  a.attended.resize(device, rows, output.columns(), type_);
  a.middle.resize(device, rows, hidden_, type_);
  a.normed_middle.resize(device, rows, hidden_, type_);
  a.gate_up.resize(device, rows, 2 * intermediate_, type_);
  a.gated.resize(device, rows, intermediate_, type_);
  if (sum_.slices > 1) a.parts.resize(device, sum_.slices * rows, hidden_, at::kFloat);
}

void DecoderLayer::project(const Device& device, const at::Tensor& input, LayerActivations& a,
                           bool keep) const {
  const int64_t rows = input.size(0);
  a.qkv.resize(device, rows, qkv.rows(), type_);
  a.attended.resize(device, rows, output.columns(), type_);
  ops::linear(device, input, qkv, a.qkv.view(), {.bias = qkv_bias.defined() ? &qkv_bias : nullptr});
  if (!keep) return;
  a.lse.resize(device, rows, shape_.heads, at::kFloat);
  if (!q_norm.defined()) return;
  a.raw_qkv.resize(device, rows, qkv.rows(), type_);
  a.raw_qkv.view().copy_(a.qkv.view());
}

void DecoderLayer::finish(const Device& device, const at::Tensor& x, LayerActivations& a,
                          at::Tensor& out) const {
  const int64_t rows = x.size(0);
  a.middle.resize(device, rows, hidden_, type_);
  a.normed_middle.resize(device, rows, hidden_, type_);
  a.gate_up.resize(device, rows, 2 * intermediate_, type_);
  a.gated.resize(device, rows, intermediate_, type_);
  project_to_stream(device, {a.attended.view(), output, x, a.middle.view()}, a.parts);

  ops::rms_norm(device, a.middle.view(), middle_norm, epsilon_, a.normed_middle.view());
  ops::gated_linear(device, a.normed_middle.view(), gate_up, a.gate_up.view(), a.gated.view());
  project_to_stream(device, {a.gated.view(), down, a.middle.view(), out}, a.parts);
}

void DecoderLayer::project_to_stream(const Device& device, const Projection& p,
                                     RowBuffer& parts) const {
  if (sum_.slices == 1) return ops::linear(device, p.x, p.weight, p.out, {.residual = &p.residual});
  const int64_t rows = p.x.size(0), columns = p.weight.rows();
  at::Tensor all = parts.resize(device, sum_.slices * rows, columns, at::kFloat)
                       .view({sum_.slices, rows, columns});
  if (sum_.ranks == nullptr) {
    ops::linear_slices(device, p.x, p.weight, all);
  } else {
    at::Tensor mine = all.select(0, sum_.ranks->rank());
    ops::linear(device, p.x, p.weight, mine);
    sum_.ranks->all_gather(all);
  }
  ops::add_slices(device, all, p.residual, p.out);
}

void DecoderLayer::assign_shard(const Device& device, const DecoderLayer& whole, int64_t rank) {
  for (const auto& [from, count, to] : rows_of_slice(whole.qkv_rows(), sum_.slices, rank)) {
    qkv.assign(device, whole.qkv.values(device, from, count), to);
    if (qkv_bias.defined())
      qkv_bias.narrow(0, to, count).copy_(whole.qkv_bias.narrow(0, from, count));
  }
  for (const auto& [from, count, to] : rows_of_slice(whole.gate_up_rows(), sum_.slices, rank))
    gate_up.assign(device, whole.gate_up.values(device, from, count), to);
  output.assign_columns(whole.output, rank * output.columns());
  down.assign_columns(whole.down, rank * down.columns());
  input_norm = whole.input_norm;
  middle_norm = whole.middle_norm;
  q_norm = whole.q_norm;
  k_norm = whole.k_norm;
}

void DecoderLayer::forward_from(const LayerRows& rows, const Input& from, LayerActivations& a,
                                at::Tensor& out, bool keep) const {
  project(rows.device, from.input, a, keep);
  attend(rows, a, keep);
  finish(rows.device, from.x, a, out);
}

void DecoderLayer::backward(const LayerRows& rows, const at::Tensor& x, const LayerBackward& pass,
                            at::Tensor& d) const {
  if (!input_norm.defined()) return backward_from(rows, x, pass, d, {d, /*accumulate=*/true});
  pass.s.d_normed.resize(rows.device, x.size(0), hidden_, type_);
  at::Tensor& d_normed = pass.s.d_normed.view();
  backward_from(rows, pass.a.normed.view(), pass, d, {d_normed});
  ops::rms_norm_backward(rows.device, {.dy = d_normed,
                                       .x = x,
                                       .weight = input_norm,
                                       .epsilon = epsilon_,
                                       .dx = d,
                                       .dweight = pass.gradients.at(parameters.input_norm)});
}

void DecoderLayer::backward_from(const LayerRows& rows, const at::Tensor& input,
                                 const LayerBackward& pass, at::Tensor& d,
                                 const InputGradient& d_input) const {
  finish_backward(rows.device, pass, d);
  attention_backward(rows, pass);
  project_backward(rows.device, input, pass, d_input);
}

// The gradient of a head norm is a sum over slices of the heads.
void DecoderLayer::attention_backward(const LayerRows& rows, const LayerBackward& pass) const {
  auto& [a, s, gradients] = pass;
  at::Tensor* norms[] = {gradients.find(parameters.q_norm), gradients.find(parameters.k_norm)};
  at::Tensor sums[2], own[2];  // [S, H]; what this worker computes of them
  const bool is_sliced = sum_.slices > 1;
  for (size_t i = 0; i < 2; ++i) {
    if (!norms[i] || !is_sliced) continue;
    sums[i] = rows.device.zeros({sum_.slices, shape_.head_size}, at::kFloat);
    own[i] = sum_.ranks ? sums[i].select(0, sum_.ranks->rank()) : sums[i];
  }
  const auto to = [&](size_t i) { return norms[i] && is_sliced ? &own[i] : norms[i]; };
  ops::attention_backward(rows.device, {shape_, rows.batch, rows.cache, rows.on_device},
                          rope(rows.cos_sin),
                          {.qkv = a.qkv.view(),
                           .raw_qkv = q_norm.defined() ? a.raw_qkv.view() : a.qkv.view(),
                           .out = a.attended.view(),
                           .lse = a.lse.view(),
                           .d_out = s.d_attended.view(),
                           .d_qkv = s.d_qkv.view(),
                           .d_q_norm = to(0),
                           .d_k_norm = to(1)});
  for (size_t i = 0; i < 2; ++i) {
    if (!sums[i].defined()) continue;
    if (sum_.ranks) sum_.ranks->all_gather(sums[i]);
    for (int64_t slice = 0; slice < sum_.slices; ++slice) norms[i]->add_(sums[i].select(0, slice));
  }
}

void DecoderLayer::finish_backward(const Device& device, const LayerBackward& pass,
                                   at::Tensor& d) const {
  auto& [a, s, gradients] = pass;
  const int64_t rows = d.size(0);
  s.d_gated.resize(device, rows, intermediate_, type_);
  s.d_gate_up.resize(device, rows, 2 * intermediate_, type_);
  s.d_normed.resize(device, rows, hidden_, type_);
  s.d_attended.resize(device, rows, output.columns(), type_);
  s.d_qkv.resize(device, rows, qkv.rows(), type_);

  gradients.add_linear(device, parameters.down, d, a.gated.view());
  ops::linear_backward_input(device, d, down, s.d_gated.view());
  ops::swiglu_backward(device, s.d_gated.view(), a.gate_up.view(), s.d_gate_up.view());
  gradients.add_linear(device, parameters.gate_up, s.d_gate_up.view(), a.normed_middle.view());
  backward_input(device, {s.d_gate_up.view(), gate_up, gate_up_rows()}, a.parts,
                 {s.d_normed.view()});
  ops::rms_norm_backward(device, {.dy = s.d_normed.view(),
                                  .x = a.middle.view(),
                                  .weight = middle_norm,
                                  .epsilon = epsilon_,
                                  .dx = d,
                                  .dweight = gradients.at(parameters.middle_norm)});

  gradients.add_linear(device, parameters.output, d, a.attended.view());
  ops::linear_backward_input(device, d, output, s.d_attended.view());
}

void DecoderLayer::project_backward(const Device& device, const at::Tensor& input,
                                    const LayerBackward& pass, const InputGradient& d_input) const {
  const at::Tensor& d_qkv = pass.s.d_qkv.view();
  pass.gradients.add_linear(device, parameters.qkv, d_qkv, input, parameters.qkv_bias);
  backward_input(device, {d_qkv, qkv, qkv_rows()}, pass.a.parts, d_input);
}

void DecoderLayer::backward_input(const Device& device, const InputProduct& product,
                                  RowBuffer& parts, const InputGradient& d_input) const {
  if (sum_.slices == 1)
    return ops::linear_backward_input(device, product.dy, product.weight, d_input.d,
                                      d_input.accumulate);
  TLT_CHECK(!d_input.accumulate, "a sum over slices is not added");
  const int64_t rows = product.dy.size(0), columns = product.weight.columns();
  at::Tensor all = parts.resize(device, sum_.slices * rows, columns, at::kFloat)
                       .view({sum_.slices, rows, columns});
  backward_slices(device, sum_, product, all, d_input.d);
}

}  // namespace tlt::model
