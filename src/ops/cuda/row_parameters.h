// Parameters of the row-wise, sampling and summing kernels, as the table of a device's kernels
// (ops/cuda/kernels.h) takes them: plain memory of the device, and short lists by value, which
// reach the device with the launch itself.
//
// pointers() names the addresses of the device's memory, for a table that runs elsewhere (tests).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cpu/kernels.h"

namespace tlt::ops::cuda {

// Slots of a page, ops::kPageSlots.
constexpr int64_t kPageRows = 16;

// Bound of a list by value: with it the parameters of a launch stay below 4 KB, which every driver
// accepts.
constexpr int kMostListed = 240;

// --- rows.h ---

struct NormShape {
  int64_t rows = 0, columns = 0;  // columns: a multiple of 4
  float epsilon = 0;
};

struct NormRows {
  const void* x = nullptr;
  const float* weight = nullptr;
  void* out = nullptr;
  NormShape shape;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(x), visit(weight), visit(out);
  }
};

struct NormBackwardRows {
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* weight = nullptr;
  void* dx = nullptr;       // accumulated
  float* scales = nullptr;  // [rows], written: (mean x^2 + epsilon)^-1/2
  NormShape shape;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(dy), visit(x), visit(weight), visit(dx), visit(scales);
  }
};

struct SwigluRows {
  const void* gate_up = nullptr;  // [rows, 2 columns]
  void* out = nullptr;
  int64_t rows = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(gate_up), visit(out);
  }
};

struct SwigluBackwardRows {
  const void* d_out = nullptr;
  const void* gate_up = nullptr;
  void* d_gate_up = nullptr;
  int64_t rows = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(d_out), visit(gate_up), visit(d_gate_up);
  }
};

// out[i] = x[rows[i]].
struct GatheredRows {
  const void* x = nullptr;
  void* out = nullptr;
  int64_t columns = 0, count = 0;
  int32_t rows[kMostListed] = {};
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(x), visit(out);
  }
};

// dtable[ids[i]] += dx[rows[begins[i]]] + … + dx[rows[begins[i + 1] - 1]].
struct EmbedGradient {
  const void* dx = nullptr;         // [T, columns]
  const int64_t* ids = nullptr;     // [tokens], different ones
  const int64_t* begins = nullptr;  // [tokens + 1]
  const int64_t* rows = nullptr;    // [T]
  float* dtable = nullptr;
  int64_t tokens = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(dx), visit(ids), visit(begins), visit(rows), visit(dtable);
  }
};

// The KV cache of a layer. Strides and offset in elements.
struct PagesOfLayer {
  void* data = nullptr;
  int64_t page_stride = 0, layer_offset = 0, head_stride = 0;
};

struct RopeRows {
  void* qkv = nullptr;                 // [rows, (N + 2 K) H]
  const int64_t* positions = nullptr;  // [rows]; < 0: of padding, ignored
  const int64_t* entries = nullptr;    // [rows]: page * 16 + slot, or ~(row of `tree`)
  const float* cos_sin = nullptr;      // [positions, H]
  const float* q_norm = nullptr;       // [H]; null: none
  const float* k_norm = nullptr;
  void* tree = nullptr;  // [tree rows, 2 K H]
  PagesOfLayer pages;
  int64_t rows = 0, heads = 0, kv_heads = 0, head_size = 0;
  float norm_epsilon = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(qkv), visit(positions), visit(entries), visit(cos_sin), visit(q_norm), visit(k_norm);
    visit(tree), visit(pages.data);
  }
};

struct RopeGradient {
  // Gradients of rotated q and k, and of v. Where there is a norm, d_q and d_k become what each row
  // adds to the gradient of the norm's weight.
  float* d_q = nullptr;           // [rows, N, H]
  float* d_k = nullptr;           // [rows, K, H]
  float* d_v = nullptr;           // [rows, K, H]
  const void* raw_qkv = nullptr;  // [rows, (N + 2 K) H] before rotation; read for norms
  void* d_qkv = nullptr;          // [rows, (N + 2 K) H], written
  const int64_t* positions = nullptr;
  const float* cos_sin = nullptr;  // [positions, H]
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  int64_t rows = 0, heads = 0, kv_heads = 0, head_size = 0;
  float norm_epsilon = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(d_q), visit(d_k), visit(d_v), visit(raw_qkv), visit(d_qkv), visit(positions);
    visit(cos_sin), visit(q_norm), visit(k_norm);
  }
};

struct KeptEntries {
  struct Entry {
    int32_t tree_row = 0;
    int32_t slot = 0;  // page * 16 + slot
  };
  void* storage = nullptr;     // [P, L, K, 2, 16 H]
  const void* tree = nullptr;  // [L, tree rows, 2 K H]
  int64_t layers = 0, kv_heads = 0, head_size = 0, tree_rows = 0, count = 0;
  Entry entries[kMostListed] = {};
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(storage), visit(tree);
  }
};

struct CopiedPages {
  struct Copy {
    int32_t from = 0, to = 0;
  };
  void* storage = nullptr;
  int64_t units = 0;  // of 16 bytes, of a page
  int64_t count = 0;
  Copy copies[kMostListed] = {};
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(storage);
  }
};

// --- sampling.h ---

constexpr uint64_t kGivenToken = uint64_t{1} << 63;

struct SampledRow {
  int32_t row = 0;                // of the logits
  float inverse_temperature = 0;  // 0: the most likely token
  uint64_t uniform = 0;           // times 2^53; from kGivenToken on: the token, for its logprob
};

struct SampledToken {
  int32_t token = 0;  // -1: the logits of the row are not finite
  float logprob = 0;
  float entropy = 0;
};

struct SampledRows {
  const float* logits = nullptr;
  SampledToken* sampled = nullptr;  // [count]
  int64_t stride = 0;               // of the logits
  int64_t vocabulary = 0;           // that logprobs are of
  int64_t allowed = 0;              // ids below it are sampled
  int64_t count = 0;
  SampledRow rows[kMostListed] = {};
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(logits), visit(sampled);
  }
};

struct StatisticRows {
  const float* logits = nullptr;
  const int32_t* targets = nullptr;
  float* logprobs = nullptr;  // [rows]; infinity: the target is not below `vocabulary`
  float* lse = nullptr;
  float* entropies = nullptr;
  int64_t stride = 0, vocabulary = 0, rows = 0;
  float inverse_temperature = 1;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(logits), visit(targets), visit(logprobs), visit(lse), visit(entropies);
  }
};

constexpr int kMostTop = 8;

struct TopToken {
  int32_t token = -1;     // -1: no further logit is finite
  float probability = 0;  // of softmax(logits / temperature)
  uint64_t before = 0;    // of all ids below the token, times 2^53
};

struct TopRows {
  const float* logits = nullptr;
  TopToken* top = nullptr;  // [count, k], most likely first
  int64_t first_row = 0, stride = 0, vocabulary = 0, count = 0, k = 0;
  float inverse_temperatures[kMostListed] = {};
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(logits), visit(top);
  }
};

struct LogitsGradient {
  float* logits = nullptr;  // becomes the gradient
  const int32_t* targets = nullptr;
  const float* lse = nullptr;
  const float* entropies = nullptr;
  const float* d_logprobs = nullptr;
  const float* d_entropies = nullptr;
  int64_t stride = 0, columns = 0, vocabulary = 0, rows = 0;
  float inverse_temperature = 1;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(logits), visit(targets), visit(lse), visit(entropies), visit(d_logprobs);
    visit(d_entropies);
  }
};

// --- sums.h ---

// sums[i] += round(x[i] 2^40), where *magnitude, which has the largest |x| already, is below
// `limit`.
struct FixedPointSum {
  const float* x = nullptr;
  int64_t* sums = nullptr;
  const int64_t* magnitude = nullptr;
  int64_t limit = 0, count = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(x), visit(sums), visit(magnitude);
  }
};

// *magnitude += the largest |x|, rounded up; `invalid` where it is not below `limit` (or NaN).
struct Magnitude {
  const float* x = nullptr;
  uint32_t* parts = nullptr;  // scratch, magnitude_parts(count) of them
  int64_t* magnitude = nullptr;
  int64_t limit = 0, invalid = 0, count = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(x), visit(parts), visit(magnitude);
  }
};
constexpr int64_t kMagnitudeSpan = int64_t{1} << 14;
constexpr int64_t magnitude_parts(int64_t count) {
  return (count + kMagnitudeSpan - 1) / kMagnitudeSpan;
}

// parts[b, c] = the sum of x[r, c] (times y[r, c] scales[r], where y is given) over the rows r of
// block b, in order.
struct ColumnParts {
  const void* x = nullptr;
  const void* y = nullptr;
  const float* scales = nullptr;
  float* parts = nullptr;  // [column_blocks(rows), columns]
  int64_t rows = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(x), visit(y), visit(scales), visit(parts);
  }
};
constexpr int64_t kColumnRows = 64;
constexpr int64_t column_blocks(int64_t rows) { return (rows + kColumnRows - 1) / kColumnRows; }

// out[c] += parts[0, c] + … + parts[count - 1, c], in this order.
struct ColumnSums {
  const float* parts = nullptr;  // [count, columns]
  float* out = nullptr;          // [columns]
  int64_t count = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(parts), visit(out);
  }
};

// out = parts[0] + … + parts[slices - 1] + bias + residual, in this order, rounded once to the type
// of out.
struct SliceSum {
  const float* parts = nullptr;    // [slices, >= rows, columns]
  const float* bias = nullptr;     // [columns]; null: none
  const void* residual = nullptr;  // [rows, columns] of out's type; null: none
  void* out = nullptr;             // [rows, columns]
  int64_t slice_stride = 0;        // of parts
  int64_t slices = 0, rows = 0, columns = 0;
  template <class Visit>
  void pointers(const Visit& visit) {
    visit(parts), visit(bias), visit(residual), visit(out);
  }
};

// Functions that launch them on the device's current stream and do not wait.
struct RowKernels {
  void (*rms_norm)(Type, const NormRows&);
  void (*rms_norm_backward)(Type, const NormBackwardRows&);
  void (*swiglu)(Type, const SwigluRows&);
  void (*swiglu_backward)(Type, const SwigluBackwardRows&);
  void (*gather_rows)(Type, const GatheredRows&);
  void (*embed_backward)(Type, const EmbedGradient&);
  void (*rope_and_store)(Type, const RopeRows&);
  void (*rope_backward)(Type, const RopeGradient&);
  void (*keep_entries)(Type, const KeptEntries&);
  void (*copy_pages)(const CopiedPages&);

  void (*sample)(const SampledRows&);
  void (*row_statistics)(const StatisticRows&);
  void (*find_top_tokens)(const TopRows&);
  void (*logits_backward)(const LogitsGradient&);

  void (*add_magnitude)(const Magnitude&);
  void (*add_fixed_point)(const FixedPointSum&);
  void (*sum_column_parts)(Type, const ColumnParts&);
  void (*add_column_parts)(const ColumnSums&);
  void (*sum_slices)(Type, const SliceSum&);
};

// Of the program or plug-in that this is linked into (row_table.h).
RowKernels row_kernels();

}  // namespace tlt::ops::cuda
