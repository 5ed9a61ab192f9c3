// SPDX-License-Identifier: Apache-2.0
#include "ops/aten_bodies.h"

#include <ATen/ATen.h>

#include <cmath>

#include "ops/device_batch.h"
#include "ops/on_device.h"

namespace tlt::ops::aten {

at::Tensor indices(std::span<const int32_t> tokens, const Device& device) {
  return at::tensor(at::ArrayRef(tokens.data(), tokens.size()), at::kLong).to(device.torch());
}

namespace {

// a b in float32, not rounded to the operands' type.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

}  // namespace

void linear(const at::Tensor& x, const at::Tensor& w, at::Tensor& out, const LinearExtras& extras) {
  at::Tensor y = product(x, w.t());
  if (extras.bias) y = y + *extras.bias;
  if (extras.residual) y = y + *extras.residual;
  out.copy_(y);
}

void linear_slices(const at::Tensor& x, const at::Tensor& w, at::Tensor& parts) {
  const int64_t width = w.size(1) / parts.size(0);
  for (int64_t i = 0; i < parts.size(0); ++i)
    parts.select(0, i).copy_(
        product(x.narrow(1, i * width, width), w.narrow(1, i * width, width).t()));
}

void add_slices(const at::Tensor& slices, const LinearExtras& extras, at::Tensor& out) {
  const at::Tensor own = slices.narrow(1, 0, out.size(0));
  at::Tensor sum = own.select(0, 0);
  for (int64_t i = 1; i < own.size(0); ++i) sum = sum + own.select(0, i);
  if (extras.bias) sum = sum + *extras.bias;
  if (extras.residual) sum = sum + *extras.residual;
  out.copy_(sum);
}

void linear_backward_input(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx,
                           bool accumulate) {
  const at::Tensor d = product(dy, w);
  dx.copy_(accumulate ? dx + d : d);
}

void linear_backward_weight(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                            at::Tensor* dbias) {
  if (dw.defined()) dw.add_(product(dy.t(), x));
  if (dbias) dbias->add_(dy.to(at::kFloat).sum(0));
}

namespace {

at::Tensor inverse_rms(const at::Tensor& x, double epsilon) {
  return at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + epsilon);
}

// dx of y = x s w over the last dimension, all in float32.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                         double epsilon) {
  const at::Tensor s = inverse_rms(x, epsilon), g = dy * weight;
  return g * s - x * s.pow(3) * (g * x).mean(-1, true);
}

// Elements that the layout of keys keeps together (ops/attention.h).
int64_t unit_of(const at::Tensor& storage) {
  if (!storage.is_cpu()) return storage.size(4) / kPageSlots;
  return storage.scalar_type() == at::kBFloat16 ? 2 : 1;
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos_sin,
                  double sign) {  // x [T, n, H], cos_sin [T, H]
  const auto halves = x.chunk(2, -1);
  const auto angles = cos_sin.unsqueeze(1).chunk(2, -1);
  const at::Tensor cos = angles[0], sin = angles[1] * sign;
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

// KV entries of the first n positions of a sequence, which are in `pages`: [K, n, H] float32.
std::pair<at::Tensor, at::Tensor> read_cache(const KvLayer& cache, const at::Tensor& pages,
                                             int64_t n) {
  const int64_t h = cache.head_size(), k = cache.kv_heads(), u = unit_of(cache.storage);
  const int64_t count = pages.size(0);
  const at::Tensor tiles =
      cache.storage.select(1, cache.layer).index_select(0, pages).to(at::kFloat);  // [c, K, 2, 16H]
  const at::Tensor keys =
      tiles.select(2, 0).reshape({count, k, h / u, kPageSlots, u}).permute({1, 0, 3, 2, 4});
  const at::Tensor values =
      tiles.select(2, 1).reshape({count, k, kPageSlots, h}).permute({1, 0, 2, 3});
  return {keys.reshape({k, count * kPageSlots, h}).slice(1, 0, n),
          values.reshape({k, count * kPageSlots, h}).slice(1, 0, n)};
}

// Scaled scores with future keys at -inf, [K, G, rows, n].
at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& keys, int64_t first_position) {
  const int64_t rows = q.size(2), n = keys.size(1);
  at::Tensor scores =
      at::matmul(q, keys.unsqueeze(1).transpose(-1, -2)) / std::sqrt(double(q.size(3)));
  const at::Tensor row =
      at::arange(rows, q.options().dtype(at::kLong)).unsqueeze(1) + first_position;
  const at::Tensor column = at::arange(n, q.options().dtype(at::kLong)).unsqueeze(0);
  return scores.masked_fill(column > row, -std::numeric_limits<double>::infinity());
}

at::Tensor queries(const AttentionShape& s,
                   const at::Tensor& rows) {  // [rows, N H] -> [K, G, rows, H]
  return rows.to(at::kFloat)
      .reshape({rows.size(0), s.kv_heads, s.heads / s.kv_heads, s.head_size})
      .permute({1, 2, 0, 3});
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& out) {
  const at::Tensor wide = x.to(at::kFloat);
  out.copy_(wide * inverse_rms(wide, epsilon) * weight);
}

void rms_norm_backward(const RmsNormGradient& gradient) {
  const auto& [dy, x, weight, epsilon, dx, dweight] = gradient;
  const at::Tensor d = dy.to(at::kFloat), wide = x.to(at::kFloat);
  dx.copy_(dx + norm_backward(d, wide, weight, epsilon));
  if (dweight.defined()) dweight.add_((d * wide * inverse_rms(wide, epsilon)).sum(0));
}

void swiglu(const at::Tensor& gate_up, at::Tensor& out) {
  const auto halves = gate_up.to(at::kFloat).chunk(2, -1);
  out.copy_(at::silu(halves[0]) * halves[1]);
}

void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, at::Tensor& d_gate_up) {
  const auto halves = gate_up.to(at::kFloat).chunk(2, -1);
  const at::Tensor d = d_out.to(at::kFloat), s = at::sigmoid(halves[0]);
  d_gate_up.copy_(at::cat({d * halves[1] * s * (1 + halves[0] * (1 - s)), d * halves[0] * s}, -1));
}

namespace {

// The KV entries of the rows that are not of trees, keys_values [T, 2 K H], into their slots.
void store_rows(const KvLayer& cache, const DeviceBatch& on_device, const at::Tensor& keys_values) {
  const int64_t k = cache.kv_heads(), h = cache.head_size(), u = unit_of(cache.storage);
  const at::Tensor both =
      keys_values.index_select(0, on_device.stored_rows()).reshape({-1, 2, k, h});
  at::Tensor tiles = cache.storage.select(1, cache.layer);  // [P, K, 2, 16 H]
  at::Tensor keys = tiles.select(2, 0).view({-1, k, h / u, kPageSlots, u}).permute({0, 3, 1, 2, 4});
  at::Tensor values = tiles.select(2, 1).view({-1, k, kPageSlots, h}).permute({0, 2, 1, 3});
  const at::Tensor &page = on_device.stored_pages(), &slot = on_device.stored_slots();
  keys.index_put_({page, slot}, both.select(1, 0).reshape({-1, k, h / u, u}));
  values.index_put_({page, slot}, both.select(1, 1));
}

}  // namespace

void rope_and_store(const AttentionRows& rows, const RopeStore& rope, at::Tensor& qkv) {
  const auto& [shape, batch, cache, given] = rows;
  const int64_t t = batch.rows(), n = shape.heads, k = shape.kv_heads, h = shape.head_size;
  const OnDevice on_device(rows);
  at::Tensor heads = qkv.view({t, n + 2 * k, h});
  const at::Tensor angles = rope.cos_sin.index_select(0, on_device->positions());
  const auto turn = [&](int64_t first, int64_t count, const at::Tensor* norm) {
    at::Tensor x = heads.narrow(1, first, count).to(at::kFloat);
    if (norm) x = x * inverse_rms(x, rope.norm_epsilon) * *norm;
    heads.narrow(1, first, count).copy_(rotate(x, angles, 1));
  };
  turn(0, n, rope.q_norm);
  turn(n, k, rope.k_norm);

  const at::Tensor keys_values = qkv.narrow(1, n * h, 2 * k * h);
  for (const Segment& segment : batch.segments) {
    if (!segment.is_tree()) continue;
    at::Tensor tree = cache.tree.narrow(0, segment.first_tree_row, segment.rows);
    tree.copy_(keys_values.narrow(0, segment.first_row, segment.rows));
  }
  if (batch.tree_rows < t) store_rows(cache, *on_device, keys_values);
}

void store_entry(const at::Tensor& storage, const Slot& slot, const at::Tensor& entry) {
  const int64_t l = storage.size(1), k = storage.size(2), h = storage.size(4) / kPageSlots,
                u = unit_of(storage);
  const at::Tensor tiles = storage.select(0, slot.page);  // [L, K, 2, 16 H]
  const at::Tensor both = entry.reshape({l, 2, k, h});
  at::Tensor keys = tiles.select(2, 0).view({l, k, h / u, kPageSlots, u}).select(3, slot.slot);
  at::Tensor values = tiles.select(2, 1).view({l, k, kPageSlots, h}).select(2, slot.slot);
  keys.copy_(both.select(1, 0).reshape({l, k, h / u, u}));
  values.copy_(both.select(1, 1));
}

namespace {

// Attention of a tree's rows one by one: over the keys before the root and those of the row's path.
void tree_attention(const AttentionRows& rows, const DeviceBatch& on_device, size_t index,
                    const at::Tensor& qkv, at::Tensor& out) {
  const auto& [shape, batch, cache, given] = rows;
  const Segment& segment = batch.segments[index];
  const int64_t n = shape.heads, k = shape.kv_heads, h = shape.head_size,
                before = segment.first_position;
  const auto [keys, values] = read_cache(cache, on_device.pages(index, before), before);
  for (int64_t row = 0; row < segment.rows; ++row) {
    const at::Tensor path = on_device.path(segment.first_tree_row + row);
    const at::Tensor own = cache.tree.index_select(0, path)
                               .to(at::kFloat)
                               .reshape({path.size(0), 2, k, h})
                               .permute({1, 2, 0, 3});  // [2, K, path, H]
    const at::Tensor all_keys = at::cat({keys, own[0]}, 1),
                     all_values = at::cat({values, own[1]}, 1);
    const at::Tensor query =
        queries(shape, qkv.narrow(0, segment.first_row + row, 1).narrow(1, 0, n * h));
    const at::Tensor scores = masked_scores(query, all_keys, all_keys.size(1) - 1);
    const at::Tensor result = at::matmul(at::softmax(scores, -1), all_values.unsqueeze(1));
    out.narrow(0, segment.first_row + row, 1).copy_(result.permute({2, 0, 1, 3}).reshape({1, -1}));
  }
}

}  // namespace

void attention(const AttentionRows& rows, const at::Tensor& qkv, const AttentionOutput& output) {
  const auto& [shape, batch, cache, given] = rows;
  const OnDevice on_device(rows);
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    if (segment.is_tree()) {
      tree_attention(rows, *on_device, i, qkv, output.out);
      continue;
    }
    const int64_t end = segment.first_position + segment.rows;
    const auto [keys, values] = read_cache(cache, on_device->pages(i, end), end);
    const at::Tensor own =
        qkv.narrow(0, segment.first_row, segment.rows).narrow(1, 0, shape.heads * shape.head_size);
    const at::Tensor scores = masked_scores(queries(shape, own), keys, segment.first_position);
    const at::Tensor result =
        at::matmul(at::softmax(scores, -1), values.unsqueeze(1));  // [K, G, rows, H]
    output.out.narrow(0, segment.first_row, segment.rows)
        .copy_(result.permute({2, 0, 1, 3}).reshape({segment.rows, -1}));
    if (output.lse)
      output.lse->narrow(0, segment.first_row, segment.rows)
          .copy_(
              at::logsumexp(scores, {-1}).permute({2, 0, 1}).reshape({segment.rows, shape.heads}));
  }
}

namespace {

// Gradients of a segment from those of its outputs: those of K and V from position 0 on.
RotatedGradient segment_backward(const AttentionRows& rows, const DeviceBatch& on_device,
                                 size_t index, const AttentionGradient& gradient) {
  const auto& [shape, batch, cache, given] = rows;
  const Segment& segment = batch.segments[index];
  const int64_t n = shape.heads, k = shape.kv_heads, h = shape.head_size;
  const double scale = 1 / std::sqrt(double(h));
  const auto part = [&](const at::Tensor& x) {
    return x.narrow(0, segment.first_row, segment.rows);
  };
  const int64_t end = segment.first_position + segment.rows;
  const auto [keys, values] = read_cache(cache, on_device.pages(index, end), end);
  const at::Tensor q = queries(shape, part(gradient.qkv).narrow(1, 0, n * h));
  const at::Tensor d = queries(shape, part(gradient.d_out)), o = queries(shape, part(gradient.out));
  const at::Tensor row_lse =
      part(gradient.lse).reshape({segment.rows, k, n / k}).permute({1, 2, 0}).unsqueeze(-1);
  const at::Tensor p = (masked_scores(q, keys, segment.first_position) - row_lse).exp();
  const at::Tensor d_p = at::matmul(d, values.unsqueeze(1).transpose(-1, -2));
  const at::Tensor d_s = p * (d_p - (d * o).sum(-1, true)) * scale;
  return {
      .d_q = at::matmul(d_s, keys.unsqueeze(1)).permute({2, 0, 1, 3}).reshape({segment.rows, n, h}),
      .d_k = at::matmul(d_s.transpose(-1, -2), q).sum(1).transpose(0, 1),
      .d_v = at::matmul(p.transpose(-1, -2), d).sum(1).transpose(0, 1)};
}

void segment_rope_backward(const AttentionShape& shape, const RopeStore& rope,
                           const Segment& segment, const RotatedGradient& d,
                           const AttentionGradient& gradient) {
  const auto part = [&](const at::Tensor& x) {
    return x.narrow(0, segment.first_row, segment.rows);
  };
  const at::Tensor raw = part(gradient.raw_qkv);
  at::Tensor d_qkv = part(gradient.d_qkv);
  rope_backward(shape, rope, rope.cos_sin.narrow(0, segment.first_position, segment.rows), d,
                {.qkv = gradient.qkv,
                 .raw_qkv = raw,
                 .out = gradient.out,
                 .lse = gradient.lse,
                 .d_out = gradient.d_out,
                 .d_qkv = d_qkv,
                 .d_q_norm = gradient.d_q_norm,
                 .d_k_norm = gradient.d_k_norm});
}

}  // namespace

void rope_backward(const AttentionShape& shape, const RopeStore& rope, const at::Tensor& angles,
                   const RotatedGradient& d, const AttentionGradient& gradient) {
  const int64_t rows = angles.size(0), n = shape.heads, k = shape.kv_heads, h = shape.head_size;
  const at::Tensor raw = gradient.raw_qkv.to(at::kFloat).reshape({rows, n + 2 * k, h});
  const auto back = [&](const at::Tensor& rotated, int64_t first, const at::Tensor* norm,
                        at::Tensor* d_norm) {
    const at::Tensor turned = rotate(rotated, angles, -1);
    if (!norm) return turned;
    const at::Tensor x = raw.narrow(1, first, rotated.size(1));
    if (d_norm)
      d_norm->add_((turned * x * inverse_rms(x, rope.norm_epsilon)).sum(at::IntArrayRef{0, 1}));
    return norm_backward(turned, x, *norm, rope.norm_epsilon);
  };
  gradient.d_qkv.copy_(at::cat({back(d.d_q, 0, rope.q_norm, gradient.d_q_norm),
                                back(d.d_k, n, rope.k_norm, gradient.d_k_norm), d.d_v},
                               1)
                           .reshape({rows, -1}));
}

void attention_backward(const AttentionRows& rows, const RopeStore& rope,
                        const AttentionGradient& gradient) {
  // Gradients that suffixes contribute to the KV entries of their shared prefix, which precedes
  // them.
  at::Tensor prefix_keys, prefix_values;
  const OnDevice on_device(rows);
  const std::vector<Segment>& segments = rows.batch.segments;
  for (size_t i = segments.size(); i-- > 0;) {
    const Segment* segment = &segments[i];
    const int64_t begin = segment->first_position;
    RotatedGradient d = segment_backward(rows, *on_device, i, gradient);
    if (segment->shared_prefix >= 0) {
      const at::Tensor keys_part = d.d_k.narrow(0, 0, begin),
                       values_part = d.d_v.narrow(0, 0, begin);
      prefix_keys = prefix_keys.defined() ? prefix_keys + keys_part : keys_part;
      prefix_values = prefix_values.defined() ? prefix_values + values_part : values_part;
      d.d_k = d.d_k.narrow(0, begin, segment->rows);
      d.d_v = d.d_v.narrow(0, begin, segment->rows);
    } else if (prefix_keys.defined()) {
      d.d_k = d.d_k + prefix_keys;
      d.d_v = d.d_v + prefix_values;
      prefix_keys.reset();
      prefix_values.reset();
    }
    segment_rope_backward(rows.shape, rope, *segment, d, gradient);
  }
}

}  // namespace tlt::ops::aten
