// Compiled once per instruction set; TLT_ISA is the namespace and the table's name.
//
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/kernels.h"

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/sampling_kernels.h"

#define TLT_NAME_OF(isa) #isa
#define TLT_NAME(isa) TLT_NAME_OF(isa)

namespace tlt::ops::TLT_ISA {

extern const Kernels kTable;
const Kernels kTable = {
    .name = TLT_NAME(TLT_ISA),
    .gemm = gemm,
    .pack_rows = pack_rows,
    .add_columns = add_columns,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .add_to_float = add_to_float,
    .rope_and_store = rope_and_store,
    .store_rows = store_rows,
    .attention = attention,
    .attention_backward_scratch = attention_backward_scratch,
    .attention_backward = attention_backward,
    .row_statistic = row_statistic,
    .pick = pick,
    .arg_max = arg_max,
    .block_tops = block_tops,
    .sum_of_exp = sum_of_exp,
    .logits_backward = logits_backward,
};

}  // namespace tlt::ops::TLT_ISA
