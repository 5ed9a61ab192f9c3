// The CPU kernels of one instruction set, as functions on raw memory; they do not depend on a
// framework.
//
// kernels.cpp is compiled once per instruction set (AVX-512 with bfloat16, AVX-512, AVX2), each
// with its own table; cpu_kernels() selects the best one for this machine. A task is the unit of
// work of a thread; how a product is divided into tasks never changes a result.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tlt::ops {

enum class Type { kFloat, kBf16 };

// rows x panels of a product; see ops/linear.h for the arithmetic and ops/weight.h for the panels.
// Offsets and strides of `a` count units (1 float32 or 2 bfloat16), of out and residual elements.
struct GemmTask {
  const void* a = nullptr;
  int64_t a_row_stride = 0;
  int64_t a_unit_stride = 1;
  const void* b = nullptr;  // panels of [units, 64]
  int64_t units = 0;        // K / u
  int64_t first_row = 0, rows = 0;
  int64_t first_panel = 0, panels = 0;
  int64_t columns = 0;  // N
  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_float = false;  // else the type of a
  bool accumulate = false;    // out += (float32 out only)
  const float* bias = nullptr;
  const void* residual = nullptr;  // laid out as out, of the type of a
};

struct KvPages {
  void* data = nullptr;      // [P, L, K, 2, H * 16]
  int64_t page_stride = 0;   // elements
  int64_t layer_offset = 0;  // elements
  int64_t head_stride = 0;   // elements: k then v of one head
};

// KV entries of some rows, [rows, 2 K H] each: k then v.
struct KvRows {
  int64_t kv_heads = 0, head_size = 0;
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  const int32_t* positions = nullptr;
  int64_t rows = 0;
  const int32_t* pages = nullptr;
};

// The first `count` pages of a sequence, one KV head.
struct HeadPages {
  const int32_t* pages = nullptr;
  int64_t count = 0;
  int64_t kv_head = 0;
};

// Rows of one segment, one KV head.
struct AttentionTask {
  int64_t heads = 0, kv_heads = 0, head_size = 0;  // N, K, H
  const int32_t* pages = nullptr;
  // For rows of a draft tree: their positions, and their KV entries [rows, 2 K H].
  const int32_t* tree_positions = nullptr;
  const void* tree = nullptr;
  int64_t first_position = 0, rows = 0;
  int64_t kv_head = 0;
  const void* qkv = nullptr;  // first row
  void* out = nullptr;        // first row, [rows, N H]
  float* lse = nullptr;       // first row, [rows, N]; may be null
  HeadPages next;             // what this thread will probably read next
  // Backward only.
  const void* raw_qkv = nullptr;
  const void* d_out = nullptr;
  void* d_qkv = nullptr;
  const float* cos_sin = nullptr;  // [positions, H]
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float* d_q_norm = nullptr;  // [H] of this task alone
  float* d_k_norm = nullptr;
  float norm_epsilon = 0;
  float* scratch = nullptr;
  // For a suffix: written, its contribution to the gradients of the KV entries of its shared prefix
  // of first_position rows, [2, first_position, H]. For a prefix: read, the contributions of its
  // suffixes, added in order.
  float* d_prefix = nullptr;
  const float* suffix_shares = nullptr;
  int64_t suffixes = 0, share_stride = 0;  // floats
};

// Rows of one segment, KV heads first_kv_head .. end_kv_head and the query heads of their groups.
struct RopeTask {
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  int64_t first_kv_head = 0, end_kv_head = 0;
  const int32_t* pages = nullptr;
  const int32_t* positions = nullptr;
  int64_t rows = 0;
  void* qkv = nullptr;
  void* tree = nullptr;  // for a draft tree: destination of KV entries, [rows, 2 K H]
  const float* cos_sin = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
};

// out [rows, columns] = norm of x.
struct NormTask {
  const void* x = nullptr;
  const float* weight = nullptr;
  float epsilon = 0;
  int64_t rows = 0, columns = 0;
  void* out = nullptr;
};

// dx += …; dweight (of this task alone) += ….
struct NormBackwardTask {
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* weight = nullptr;
  float epsilon = 0;
  int64_t rows = 0, columns = 0;
  void* dx = nullptr;
  float* dweight = nullptr;
};

// Columns first .. first + count of out [rows, columns], from gate_up [rows, 2 columns].
struct SwigluTask {
  const void* gate_up = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t first = 0, count = 0;
  void* out = nullptr;
};

struct SwigluBackwardTask {
  const void* d_out = nullptr;    // [rows, columns]
  const void* gate_up = nullptr;  // [rows, 2 columns]
  int64_t rows = 0, columns = 0;
  void* d_gate_up = nullptr;
};

// Packs rows r0, r0 + 1, … of x [rows, columns] as the K dimension of panels: out [columns / 64,
// rows / u, 64, u].
struct PackTask {
  const void* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0, columns = 0;
  int64_t first_panel = 0, panels = 0;
  void* out = nullptr;
};

// Column sums of x [rows, columns] for columns first .. first + count, added to out in order of
// rows.
struct ColumnSumTask {
  const void* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t first = 0, count = 0;
  float* out = nullptr;
};

// Statistic of z = (logits - top) / temperature with top the largest logit: log sum e^z, and the
// entropy of softmax(z).
struct RowStatistic {
  float top, log_sum, entropy;
};

// One row of logits, `count` of `columns`, which becomes its gradient.
struct LogitsTask {
  float* logits = nullptr;
  int64_t count = 0, columns = 0;
  float inverse_temperature = 1;
  int32_t target = 0;
  float lse = 0, entropy = 0;
  float d_logprob = 0, d_entropy = 0;
};

constexpr int64_t kTopBlock = 64;

struct Kernels {
  const char* name;
  void (*gemm)(Type, const GemmTask&);
  void (*pack_rows)(Type, const PackTask&);
  void (*add_columns)(Type, const ColumnSumTask&);
  void (*rms_norm)(Type, const NormTask&);
  void (*rms_norm_backward)(Type, const NormBackwardTask&);
  void (*swiglu)(Type, const SwigluTask&);
  void (*swiglu_backward)(Type, const SwigluBackwardTask&);
  void (*add_to_float)(Type, const void* x, int64_t count, float* out);
  void (*rope_and_store)(Type, const RopeTask&, const KvPages&);
  void (*store_rows)(Type, const KvRows&, const KvPages&);
  void (*attention)(Type, const AttentionTask&, const KvPages&);
  // Floats of scratch that a backward task of this size needs.
  int64_t (*attention_backward_scratch)(const AttentionTask&);
  void (*attention_backward)(Type, const AttentionTask&, const KvPages&);
  RowStatistic (*row_statistic)(const float* logits, int64_t count, float inverse_temperature,
                                bool with_entropy);
  // The smallest id whose cumulative probability exceeds u; lse = log sum e^(logits / temperature).
  int32_t (*pick)(const float* logits, int64_t count, float inverse_temperature, float lse,
                  double u);
  int32_t (*arg_max)(const float* logits, int64_t count);
  // The largest of each kTopBlock logits, and of all; NaN is skipped.
  float (*block_tops)(const float* logits, int64_t count, float* tops);
  // Sum of e^((logit - shift) / temperature), where no logit exceeds the shift; relative error at
  // most 2e-6 and 1e-7 times |shift| / temperature.
  float (*sum_of_exp)(const float* logits, int64_t count, float shift, float inverse_temperature);
  void (*logits_backward)(const LogitsTask&);
};

// The best table for this machine, or the one named by the environment variable TLT_CPU_CAPABILITY;
// throws when the machine lacks AVX2.
const Kernels& cpu_kernels();
// A table by name ("avx512bf16", "avx512", "avx2"), or null when the machine cannot run it: for
// tests and doctor.
const Kernels* cpu_kernels(const char* name);

}  // namespace tlt::ops
