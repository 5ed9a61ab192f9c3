// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "ops/cpu.h"
#include "ops/cpu/kernels.h"

namespace tlt::ops {

constexpr const char* kCapabilities[] = {"avx512bf16", "avx512", "avx2"};  // the fastest first
static_assert(kLogitsBlock == kTopBlock);

namespace avx512bf16 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}
namespace avx2 {
extern const Kernels kTable;
}

const Kernels* cpu_kernels(const char* name) {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool has_bf16 = has_avx512 && __builtin_cpu_supports("avx512bf16");
  if (std::strcmp(name, avx512bf16::kTable.name) == 0)
    return has_bf16 ? &avx512bf16::kTable : nullptr;
  if (std::strcmp(name, avx512::kTable.name) == 0) return has_avx512 ? &avx512::kTable : nullptr;
  if (std::strcmp(name, avx2::kTable.name) == 0) return has_avx2 ? &avx2::kTable : nullptr;
  return nullptr;
}

const Kernels& cpu_kernels() {
  static const Kernels& best = []() -> const Kernels& {
    if (const char* asked = std::getenv("TLT_CPU_CAPABILITY")) {
      const Kernels* table = cpu_kernels(asked);
      TLT_CHECK_INPUT(
          table, "TLT_CPU_CAPABILITY is \"", asked,
          "\"; this processor takes avx2 and, where it has them, avx512 and avx512bf16");
      return *table;
    }
    for (const char* name : kCapabilities)
      if (const Kernels* table = cpu_kernels(name)) return *table;
    throw InputError("this processor has no AVX2; tlt's CPU kernels need AVX2 or AVX-512");
  }();
  return best;
}

std::string cpu_capability() { return cpu_kernels().name; }

std::vector<std::string> supported_cpu_capabilities() {
  std::vector<std::string> supported;
  for (const char* name : kCapabilities)
    if (cpu_kernels(name)) supported.emplace_back(name);
  return supported;
}

float largest_of_blocks(std::span<const float> logits, std::span<float> largest) {
  return cpu_kernels().block_tops(logits.data(), std::ssize(logits), largest.data());
}

float sum_of_exp(std::span<const float> logits, float shift, float inverse_temperature) {
  return cpu_kernels().sum_of_exp(logits.data(), std::ssize(logits), shift, inverse_temperature);
}

}  // namespace tlt::ops
