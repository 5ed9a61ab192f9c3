// SPDX-License-Identifier: Apache-2.0
#include "ops/device_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "ops/aten_bodies.h"
#include "ops/cpu/bridge.h"
#include "ops/cuda/kernels.h"
#include "ops/device_batch.h"
#include "ops/device_rows.h"
#include "ops/on_device.h"

namespace tlt::ops {
namespace {

// Two for each multiprocessor of an H100. With fewer blocks a launch has one for each split.
constexpr int64_t kEnoughBlocks = 264;
// Warps of a block that have rows of their own, where a segment has several.
constexpr int64_t kTiles = 4;

// Of the memory for splits: those of 512 rows of a prompt after 32,000 tokens would be 1 GB.
constexpr int64_t kMostPartBytes = int64_t{128} << 20;

const int64_t* list(const at::Tensor& x) { return x.const_data_ptr<int64_t>(); }

void add_cache(const KvLayer& cache, cuda::AttentionRowsOf& call) {
  TLT_CHECK(cache.storage.stride(2) == 2 * cache.storage.size(4));  // k then v of one head
  call.pages = cache.storage.const_data_ptr();
  call.page_stride = cache.storage.stride(0);
  call.layer_offset = cache.layer * cache.storage.stride(1);
  if (cache.tree.defined()) call.tree = cache.tree.const_data_ptr();
}

void add_batch(const Batch& batch, const DeviceBatch& on_device, cuda::AttentionRowsOf& call) {
  call.lists = list(on_device.lists());
  call.positions = list(on_device.positions());
  call.tables = list(on_device.tables());
  call.roots = list(on_device.roots());
  call.paths = list(on_device.paths());
  call.rows = batch.rows();
  call.splits = cuda::splits_for(on_device.positions_seen());
  if (std::ssize(batch.segments) == batch.rows()) return;  // rows without common keys
  call.tile_rows = cuda::kTile / (call.heads / call.kv_heads);
  call.tiles = kTiles;
}

// Memory for the splits, where blocks are too few to compute all of a row's one after the other.
at::Tensor parts_for(const cuda::AttentionRowsOf& call, const at::Device& device) {
  const int64_t rows = call.tile_rows * call.tiles;
  const int64_t blocks = (call.rows + rows - 1) / rows * call.kv_heads;
  const int64_t part = call.heads * (call.head_size + 2) * static_cast<int64_t>(sizeof(float));
  if (call.splits < 2 || blocks >= kEnoughBlocks || call.rows * call.splits * part > kMostPartBytes)
    return {};
  return at::empty({call.rows, call.splits, call.heads, call.head_size + 2},
                   at::TensorOptions(device).dtype(at::kFloat));
}

// Null: there are none for this shape. InputError on CUDA, where a row of ATen's attention depends
// on the other rows.
const DeviceKernels* kernels_for(const Device& device, const AttentionShape& shape) {
  const DeviceKernels* kernels = device_kernels(device.torch());
  const bool is_known = kernels && kernels->attention.has_head_size(shape.head_size) &&
                        shape.heads / shape.kv_heads <= cuda::kTile;
  TLT_CHECK_INPUT(is_known || !device.torch().is_cuda(), shape.heads, " heads of size ",
                  shape.head_size, " and ", shape.kv_heads, " KV heads on ", device.name(),
                  ": its attention has heads of 16, 32, 64 or 128, at most ", cuda::kTile,
                  " for each KV head; give --device cpu (trainer.device=cpu)");
  return is_known ? kernels : nullptr;
}

cuda::AttentionRowsOf call_of(const AttentionRows& rows, const DeviceBatch& on_device,
                              const at::Tensor& qkv) {
  const AttentionShape& shape = rows.shape;
  cuda::AttentionRowsOf call{.qkv = qkv.const_data_ptr(),
                             .heads = shape.heads,
                             .kv_heads = shape.kv_heads,
                             .head_size = shape.head_size};
  call.scale = cuda::kLog2OfE / std::sqrt(static_cast<float>(shape.head_size));
  add_cache(rows.cache, call);
  add_batch(rows.batch, on_device, call);
  return call;
}

}  // namespace

bool try_device_attention(const Device& device, const AttentionRows& rows, const at::Tensor& qkv,
                          const AttentionOutput& output) {
  const DeviceKernels* kernels = kernels_for(device, rows.shape);
  if (!kernels) return false;
  const OnDevice on_device(rows);
  cuda::AttentionRowsOf call = call_of(rows, *on_device, qkv);
  call.out = output.out.mutable_data_ptr();
  if (output.lse) call.lse = output.lse->mutable_data_ptr<float>();
  const at::Tensor parts = parts_for(call, device.torch());
  if (parts.defined()) call.parts = parts.mutable_data_ptr<float>();
  kernels->attention.forward(kernel_type(qkv), call);
  return true;
}

bool try_device_attention_backward(const Device& device, const AttentionRows& rows,
                                   const RopeStore& rope, const AttentionGradient& gradient) {
  const DeviceKernels* kernels = kernels_for(device, rows.shape);
  if (!kernels) return false;
  const OnDevice on_device(rows);
  const int64_t t = rows.batch.rows(), n = rows.shape.heads, k = rows.shape.kv_heads,
                h = rows.shape.head_size;
  const auto floats = [&](at::IntArrayRef sizes) { return device.empty(sizes, at::kFloat); };
  const aten::RotatedGradient d{floats({t, n, h}), floats({t, k, h}), floats({t, k, h})};
  const at::Tensor deltas = floats({t, n});
  cuda::AttentionGradientOf call{.rows = call_of(rows, *on_device, gradient.qkv),
                                 .d_out = gradient.d_out.const_data_ptr(),
                                 .deltas = deltas.mutable_data_ptr<float>(),
                                 .d_q = d.d_q.mutable_data_ptr<float>(),
                                 .d_k = d.d_k.mutable_data_ptr<float>(),
                                 .d_v = d.d_v.mutable_data_ptr<float>()};
  call.rows.out = gradient.out.mutable_data_ptr();
  call.rows.lse = gradient.lse.mutable_data_ptr<float>();
  call.tiles = list(on_device->key_tiles());
  call.ends = list(on_device->ends());
  call.seen_until = list(on_device->seen_until());
  call.key_tiles = on_device->key_tiles().size(0);
  kernels->attention.backward(kernel_type(gradient.qkv), call);
  device_rows(device)->rope_backward({rows.shape, *on_device, rope}, d, gradient);
  return true;
}

}  // namespace tlt::ops
