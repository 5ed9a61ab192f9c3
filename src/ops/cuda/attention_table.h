// The attention kernels of a table (ops/cuda/kernel_table.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention_backward.h"
#include "ops/cuda/launch.h"

namespace tlt::ops::cuda {

// The kernels of an element type and a head size.
template <class T, int H>
struct AttentionOf {
  static void forward(const AttentionRowsOf& rows) {
    launch<AttentionForward<T, H>>(rows);
    launch<AttentionMerge<T, H>>(rows);
  }
  static void backward(const AttentionGradientOf& gradient) {
    launch<AttentionDeltas<T, H>>(gradient);
    launch<AttentionQueryGradient<T, H>>(gradient);
    launch<AttentionKeyGradient<T, H, /*kValues=*/false>>(gradient);
    launch<AttentionKeyGradient<T, H, /*kValues=*/true>>(gradient);
  }
};

inline bool has_attention_of(int64_t head_size) {
  return head_size == 16 || head_size == 32 || head_size == 64 || head_size == 128;
}

template <class T, class Call>
void call_attention(int64_t head_size, const Call& call) {
  switch (head_size) {
    case 16:
      return call(AttentionOf<T, 16>());
    case 32:
      return call(AttentionOf<T, 32>());
    case 64:
      return call(AttentionOf<T, 64>());
    case 128:
      return call(AttentionOf<T, 128>());
    default:
      throw std::logic_error("attention of head size " + std::to_string(head_size));
  }
}
template <class Call>
void call_attention(Type type, int64_t head_size, const Call& call) {
  type == Type::kBf16 ? call_attention<Bf16>(head_size, call)
                      : call_attention<float>(head_size, call);
}

inline void attention_forward(Type type, const AttentionRowsOf& rows) {
  call_attention(type, rows.head_size, [&](auto kernels) { kernels.forward(rows); });
}
inline void attention_backward(Type type, const AttentionGradientOf& gradient) {
  call_attention(type, gradient.rows.head_size, [&](auto kernels) { kernels.backward(gradient); });
}

inline AttentionKernels attention_kernels() {
  return {.has_head_size = has_attention_of,
          .forward = attention_forward,
          .backward = attention_backward};
}

}  // namespace tlt::ops::cuda
