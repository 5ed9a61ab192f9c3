// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/ttt_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tlt::drafter {
namespace {

// Values per task of a thread: large enough that the overhead of small operations is negligible.
constexpr int64_t kPieceNumbers = 1 << 15;
// Log-sum-exp of a row that attends to nothing: negligible, but finite.
constexpr double kNoLogSum = -1e30;

// Calls body(first, count) for pieces of rows first_row … rows - 1, on the device's threads; on a
// GPU once for all.
template <class Body>
void for_rows(const Device& device, int64_t first_row, int64_t rows, int64_t columns,
              const Body& body) {
  if (rows <= first_row) return;
  if (!device.is_cpu()) return body(first_row, rows - first_row);
  const int64_t piece = std::max<int64_t>(1, kPieceNumbers / columns);
  device.pool().run((rows - first_row + piece - 1) / piece, [&](int64_t i) {
    const int64_t first = first_row + i * piece;
    body(first, std::min(piece, rows - first));
  });
}

// Rows of qkv as float32, split into Q, K and V.
class Rows {
 public:
  Rows(const ops::AttentionShape& shape, const at::Tensor& qkv, int64_t first, int64_t count)
      : shape_(shape), values_(qkv.narrow(0, first, count)) {}

  // [n, K, G, H]
  at::Tensor queries() const {
    return heads(0, shape_.heads).view({-1, shape_.kv_heads, group(), shape_.head_size});
  }
  // [n, K, 1, H]
  at::Tensor keys() const { return heads(shape_.heads, shape_.kv_heads).unsqueeze(2); }
  at::Tensor values() const {
    return heads(shape_.heads + shape_.kv_heads, shape_.kv_heads).unsqueeze(2);
  }

 private:
  int64_t group() const { return shape_.heads / shape_.kv_heads; }
  at::Tensor heads(int64_t first, int64_t count) const {
    return values_.narrow(1, first * shape_.head_size, count * shape_.head_size)
        .to(at::kFloat)
        .reshape({-1, count, shape_.head_size});
  }

  const ops::AttentionShape& shape_;
  const at::Tensor values_;
};

// A table of angles 0: gradients stay those of rotated queries and keys.
at::Tensor no_rotation(const Device& device, int64_t positions, int64_t head_size) {
  at::Tensor table = device.zeros({positions, head_size}, at::kFloat);
  table.narrow(1, 0, head_size / 2).fill_(1);
  return table;
}

// The gradient of the unrotated vectors [n, heads, H] from that of the rotated ones; angles [n, H].
at::Tensor turned_back(const at::Tensor& d, const at::Tensor& angles) {
  const int64_t half = d.size(-1) / 2;
  const at::Tensor cos = angles.narrow(-1, 0, half).unsqueeze(1),
                   sin = angles.narrow(-1, half, half).unsqueeze(1);
  const at::Tensor a = d.narrow(-1, 0, half), b = d.narrow(-1, half, half);
  return at::cat({a * cos + b * sin, b * cos - a * sin}, -1);
}

}  // namespace

const ops::Batch& TttAttention::shifted(const ops::Batch& batch, int64_t rows) {
  shifted_.tokens = batch.tokens;
  shifted_.positions = batch.positions;
  shifted_.segments.clear();
  for (ops::Segment segment : batch.segments) {
    if (segment.rows <= rows) continue;
    segment.first_row += static_cast<int32_t>(rows);
    segment.rows -= static_cast<int32_t>(rows);
    shifted_.segments.push_back(segment);
  }
  return shifted_;
}

void TttAttention::forward(const model::DecoderLayer& layer, const model::LayerRows& sequences,
                           const Passes& passes) {
  const Device& device = sequences.device;
  const ops::Batch& batch = sequences.batch;
  const at::Tensor& cos_sin = sequences.cos_sin;
  const ops::KvLayer& cache = sequences.cache;
  const ops::AttentionShape shape = layer.attention_shape();
  model::LayerActivations& a = *passes.back();
  const int64_t rows = batch.rows(), k = std::ssize(passes) - 1;
  a.lse.resize(device, rows, shape.heads, at::kFloat);
  if (k == 0)
    return ops::rope_and_attention(device, {shape, batch, cache}, layer.rope(cos_sin), a.qkv.view(),
                                   {a.attended.view(), &a.lse.view()});
  if (!own_ || own_->pages() < cache.storage.size(0))
    own_ = std::make_unique<kv::KvCache>(device,
                                         kv::KvShape{.layers = 1,
                                                     .kv_heads = shape.kv_heads,
                                                     .head_size = shape.head_size,
                                                     .type = a.qkv.view().scalar_type()},
                                         cache.storage.size(0));
  ops::rope_and_store(device, {shape, batch, own_->layer(0)}, layer.rope(cos_sin), a.qkv.view());
  a.attended.view().zero_();
  a.lse.view().fill_(kNoLogSum);
  ops::attention(device, {shape, shifted(batch, k), cache}, a.qkv.view(),
                 {a.attended.view(), &a.lse.view()});

  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  const int64_t group = shape.heads / shape.kv_heads;
  for_rows(device, k, rows, shape.heads * shape.head_size, [&](int64_t first, int64_t count) {
    const at::Tensor q = Rows(shape, a.qkv.view(), first, count).queries();
    at::Tensor lse = a.lse.view().narrow(0, first, count),
               attended = a.attended.view().narrow(0, first, count);
    const std::vector<int64_t> by_head = {count, shape.kv_heads, group};
    std::vector<at::Tensor> scores = {lse.view(by_head)};
    for (int64_t j = 1; j <= k; ++j) {
      const Rows path(shape, passes[static_cast<size_t>(j)]->qkv.view(), first - k + j, count);
      scores.push_back((q * path.keys()).sum(-1).mul_(scale));
    }
    const at::Tensor all = at::logsumexp(at::stack(scores), 0);  // [n, K, G]
    at::Tensor out = attended.to(at::kFloat).view({count, shape.kv_heads, group, -1}) *
                     (scores[0] - all).exp_().unsqueeze(-1);
    for (int64_t j = 1; j <= k; ++j) {
      const Rows path(shape, passes[static_cast<size_t>(j)]->qkv.view(), first - k + j, count);
      out.add_(path.values() * (scores[static_cast<size_t>(j)] - all).exp_().unsqueeze(-1));
    }
    attended.copy_(out.view({count, -1}));
    lse.copy_(all.view({count, -1}));
  });
}

// One derivation: its parts share most of the names.
// NOLINTNEXTLINE(readability-function-size)
void TttAttention::backward(const model::DecoderLayer& layer, const model::LayerRows& sequences,
                            const Passes& passes, const Gradient& gradient) {
  const at::Tensor& d_attended = gradient.d_attended;
  at::Tensor& d_qkv = gradient.d_qkv;
  const Device& device = sequences.device;
  const ops::Batch& batch = sequences.batch;
  const at::Tensor& cos_sin = sequences.cos_sin;
  const ops::KvLayer& cache = sequences.cache;
  const ops::AttentionShape shape = layer.attention_shape();
  model::LayerActivations& a = *passes.back();
  const int64_t rows = batch.rows(), k = std::ssize(passes) - 1;
  const int64_t n = shape.heads, kv = shape.kv_heads, h = shape.head_size;
  if (std::ssize(d_kv_) <= k || d_kv_.front().size(0) != rows) d_kv_.clear();
  for (int64_t j = std::ssize(d_kv_); j <= k; ++j)
    d_kv_.push_back(device.zeros({rows, 2 * kv, h}, at::kFloat));

  // The part that attends to pass 0: the ordinary gradient; the rows of K and V are k before the
  // queries.
  at::Tensor d_seen = device.zeros({rows, (n + 2 * kv) * h}, d_attended.scalar_type());
  ops::attention_backward(device, {shape, shifted(batch, k), cache},
                          {.cos_sin = no_rotation(device, rows, h)},
                          {.qkv = a.qkv.view(),
                           .raw_qkv = a.qkv.view(),
                           .out = a.attended.view(),
                           .lse = a.lse.view(),
                           .d_out = d_attended,
                           .d_qkv = d_seen});
  const auto d_of_pass_0 = [&](int64_t first, int64_t count) {
    return d_kv_[0].narrow(0, first - k, count).view({count, -1});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(h));
  at::Tensor d_q = device.zeros({rows, n, h}, at::kFloat);
  for_rows(device, k, rows, n * h, [&](int64_t first, int64_t count) {
    const at::Tensor seen = d_seen.narrow(0, first, count).to(at::kFloat);
    d_of_pass_0(first, count).add_(seen.narrow(1, n * h, 2 * kv * h));
    at::Tensor dq = seen.narrow(1, 0, n * h).reshape({count, kv, n / kv, h});
    const at::Tensor q = Rows(shape, a.qkv.view(), first, count).queries();
    const auto by_head = [&](const at::Tensor& x) {
      return x.narrow(0, first, count).to(at::kFloat).view({count, kv, n / kv, -1});
    };
    const at::Tensor d_out = by_head(d_attended), lse = by_head(a.lse.view()).squeeze(-1);
    const at::Tensor delta = (d_out * by_head(a.attended.view())).sum(-1);
    for (int64_t j = 1; j <= k; ++j) {
      const Rows path(shape, passes[static_cast<size_t>(j)]->qkv.view(), first - k + j, count);
      const at::Tensor keys = path.keys();
      const at::Tensor p = ((q * keys).sum(-1).mul_(scale) - lse).exp_();
      const at::Tensor d_score =
          (p * ((d_out * path.values()).sum(-1) - delta)).mul_(scale).unsqueeze(-1);
      dq.add_(d_score * keys);
      at::Tensor d_kv = d_kv_[static_cast<size_t>(j)].narrow(0, first - k + j, count);
      d_kv.narrow(1, 0, kv).add_((d_score * q).sum(2));
      d_kv.narrow(1, kv, kv).add_((p.unsqueeze(-1) * d_out).sum(2));
    }
    d_q.narrow(0, first, count).copy_(dq.view({count, n, h}));
  });

  const at::Tensor positions = at::tensor(batch.positions, at::kLong).to(cos_sin.device());
  at::Tensor& d_kv = d_kv_[static_cast<size_t>(k)];
  for_rows(device, 0, rows, n * h, [&](int64_t first, int64_t count) {
    const at::Tensor angles = cos_sin.index_select(0, positions.narrow(0, first, count));
    const at::Tensor own = d_kv.narrow(0, first, count);
    d_qkv.narrow(0, first, count)
        .copy_(at::cat({turned_back(d_q.narrow(0, first, count), angles),
                        turned_back(own.narrow(1, 0, kv), angles), own.narrow(1, kv, kv)},
                       1)
                   .view({count, -1}));
  });
  const auto through_norm = [&](const at::Tensor& norm, int64_t index, int64_t first,
                                int64_t heads) {
    if (index < 0) return;
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(1, first * h, heads * h).reshape({-1, h}).contiguous();
    };
    at::Tensor d = part(d_qkv), dx = at::zeros_like(d);
    ops::rms_norm_backward(device, {.dy = d,
                                    .x = part(a.raw_qkv.view()),
                                    .weight = norm,
                                    .epsilon = layer.rope(cos_sin).norm_epsilon,
                                    .dx = dx,
                                    .dweight = gradient.parameters[static_cast<size_t>(index)]});
    d_qkv.narrow(1, first * h, heads * h).copy_(dx.view({rows, -1}));
  };
  through_norm(layer.q_norm, layer.parameters.q_norm, 0, n);
  through_norm(layer.k_norm, layer.parameters.k_norm, n, kv);
  d_kv_.pop_back();
}

}  // namespace tlt::drafter
