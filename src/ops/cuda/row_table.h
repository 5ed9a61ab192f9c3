// The row-wise, sampling and summing kernels of a table. Included by kernels_rows.cu, and by
// kernels_rows_emulated.cpp for tests.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/launch.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/sampling.h"
#include "ops/cuda/sums.h"

namespace tlt::ops::cuda {

template <template <class> class Kernel>
void launch_typed(Type type, const typename Kernel<float>::Parameters& parameters) {
  type == Type::kBf16 ? launch<Kernel<Bf16>>(parameters) : launch<Kernel<float>>(parameters);
}

template <class Kernel>
void launch_untyped(const typename Kernel::Parameters& parameters) {
  launch<Kernel>(parameters);
}

inline void add_magnitude(const Magnitude& parameters) {
  launch<MagnitudeParts>(parameters);
  launch<AddMagnitude>(parameters);
}

inline RowKernels make_row_kernels() {
  return {.rms_norm = launch_typed<RmsNorm>,
          .rms_norm_backward = launch_typed<RmsNormBackward>,
          .swiglu = launch_typed<Swiglu>,
          .swiglu_backward = launch_typed<SwigluBackward>,
          .gather_rows = launch_typed<GatherRows>,
          .embed_backward = launch_typed<EmbedBackward>,
          .rope_and_store = launch_typed<RopeAndStore>,
          .rope_backward = launch_typed<RopeBackward>,
          .keep_entries = launch_typed<KeepEntries>,
          .copy_pages = launch_untyped<CopyPages>,
          .sample = launch_untyped<Sample>,
          .row_statistics = launch_untyped<RowStatistics>,
          .find_top_tokens = launch_untyped<FindTopTokens>,
          .logits_backward = launch_untyped<LogitsBackward>,
          .add_magnitude = add_magnitude,
          .add_fixed_point = launch_untyped<AddFixedPoint>,
          .sum_column_parts = launch_typed<SumColumnParts>,
          .add_column_parts = launch_untyped<AddColumnParts>,
          .sum_slices = launch_typed<SumSlices>};
}

}  // namespace tlt::ops::cuda
