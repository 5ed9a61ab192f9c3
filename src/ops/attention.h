// Attention over the paged KV cache: one implementation for prompt chunks, decode rows and
// training.
//
// A query walks its keys in order of logical position, one page (16 positions) at a time, with an
// online softmax in float32: the same bits whichever rows share the call and whichever pages hold
// the keys.
//
// Layout of a page on the CPU, per layer and KV head: keys as [H / u, 16, u] (u = 2 for bfloat16, 1
// for float32: sixteen scores in one vector without a reduction), then values as [16, H]. On other
// devices keys are [16, H] too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "ops/batch.h"
#include "runtime/device.h"

namespace tlt::ops {

class DeviceBatch;

// The KV cache of one layer: storage [P, L, K, 2, H * 16] and the layer's index, and the KV entries
// of draft tree rows during verification.
struct KvLayer {
  at::Tensor storage;
  int64_t layer = 0;
  at::Tensor tree = {};  // [tree rows, 2 K H]: k then v; undefined when the batch has no tree
  int64_t kv_heads() const { return storage.size(2); }
  int64_t head_size() const { return storage.size(4) / kPageSlots; }
};

struct AttentionShape {
  int64_t heads = 0;      // N
  int64_t kv_heads = 0;   // K
  int64_t head_size = 0;  // H
};

struct RopeStore {
  at::Tensor cos_sin;                  // [positions, H] float32: cos then sin of H / 2 angles each
  const at::Tensor* q_norm = nullptr;  // [H] float32 (Qwen3), before rotation
  const at::Tensor* k_norm = nullptr;
  double norm_epsilon = 1e-6;
};

// The token rows of a call, and the KV cache of the layer that they extend.
struct AttentionRows {
  const AttentionShape& shape;
  const Batch& batch;
  const KvLayer& cache;
  // The batch on a device other than the CPU; null: each operation uploads it by itself.
  const DeviceBatch* on_device = nullptr;
};

// Normalises (Qwen3) and rotates q and k of qkv [T, (N + 2K) H] in place and stores k and v in the
// cache; those of tree rows in cache.tree. Rotation pairs element i with i + H / 2 (Hugging Face's
// layout).
void rope_and_store(const Device& device, const AttentionRows& rows, const RopeStore& rope,
                    at::Tensor& qkv);

struct AttentionOutput {
  at::Tensor& out;            // [T, N H]
  at::Tensor* lse = nullptr;  // [T, N] float32: log-sum-exp of the scaled scores, for backward
};

// out = attention of the rotated queries in qkv over the cache, scaled by H^-1/2.
//
// A tree is walked depth first. Before a row is computed, its KV entry is copied into the slot of
// its position, so the slots up to that position hold exactly the row's path, and the row is
// bit-identical to the same token in non-speculative decoding. (The pages before the root are the
// same for all rows, which share the walk over them.) Afterwards the slots hold the path of the
// last rows; keep_paths() copies the accepted path there. On other devices a row reads the KV
// entries of its path from cache.tree, and the slots do not change (ops/cuda/attention.h).
void attention(const Device& device, const AttentionRows& rows, const at::Tensor& qkv,
               const AttentionOutput& output);

// rope_and_store, then attention. Where each segment is one task, as decode rows and draft trees
// are, the same thread does both for its heads, without a barrier in between.
void rope_and_attention(const Device& device, const AttentionRows& rows, const RopeStore& rope,
                        at::Tensor& qkv, const AttentionOutput& output);

struct AttentionGradient {
  const at::Tensor& qkv;      // [T, (N + 2K) H] rotated, as left by rope_and_store
  const at::Tensor& raw_qkv;  // [T, (N + 2K) H] before it; read only if q_norm is set
  const at::Tensor& out;      // [T, N H]
  const at::Tensor& lse;      // [T, N] float32
  const at::Tensor& d_out;    // [T, N H]
  at::Tensor& d_qkv;          // [T, (N + 2K) H] receives the gradient of raw_qkv
  // [H] float32, accumulated; on the CPU also [S, H]: a row for each of S slices of the KV heads,
  // with the bits that a call with the heads of that slice alone gives.
  at::Tensor* d_q_norm = nullptr;
  at::Tensor* d_k_norm = nullptr;
};
// The gradient of both: d_qkv from d_out. Segments must start at position 0 or at the end of their
// shared prefix (training).
void attention_backward(const Device& device, const AttentionRows& rows, const RopeStore& rope,
                        const AttentionGradient& gradient);

// The accepted path of a tree: rows of the segment, the root first, one per position.
struct KeptPath {
  const Segment* segment;
  std::span<const int32_t> rows;
};
struct TreeStorage {
  const at::Tensor& storage;
  const at::Tensor& tree;  // [L, tree rows, 2 K H]
};
// Copies the KV entries of accepted paths into the slots of their positions, in all layers.
void keep_paths(const Device& device, const TreeStorage& cache, const Batch& batch,
                std::span<const KeptPath> paths);

// The page `from` to `to` in all layers, one after the other: gives a sample its own copy of a
// prompt's last, partly filled page.
struct PageCopy {
  PageId from = 0;
  PageId to = 0;
};
void copy_pages(const Device& device, const at::Tensor& storage, std::span<const PageCopy> copies);

}  // namespace tlt::ops
