// The part of the CPU kernels that other folders use: the selected instruction set, and operations
// on logits for samplers that look at the largest only.
//
// Threading  pure functions, for the caller's threads.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tlt::ops {

// "avx512bf16", "avx512" or "avx2": the first that this processor supports, or
// TLT_CPU_CAPABILITY. InputError: it supports none, or not that one.
std::string cpu_capability();

// All that this processor supports, the fastest first.
std::vector<std::string> supported_cpu_capabilities();

inline constexpr int64_t kLogitsBlock = 64;

// Writes the largest of each block of kLogitsBlock logits (the last may be shorter) and returns the
// largest of all; NaN is skipped. REQUIRES: one element of `largest` per block.
float largest_of_blocks(std::span<const float> logits, std::span<float> largest);

// The sum of exp((logit - shift) * inverse_temperature).
float sum_of_exp(std::span<const float> logits, float shift, float inverse_temperature);

}  // namespace tlt::ops
