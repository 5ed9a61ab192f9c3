// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_parallel.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tlt::model {
namespace {

constexpr int64_t kSizes[] = {1, 2, 4, 8};
constexpr int64_t kVector = 16;  // multiple of the inner size, as in ModelConfig::check()

bool divides(const ModelConfig& config, int64_t size) {
  return config.heads % size == 0 && config.kv_heads % size == 0 &&
         config.intermediate % (kVector * size) == 0;
}

}  // namespace

void check_tensor_parallel_size(int64_t size, const std::string& option) {
  TLT_CHECK_INPUT(std::ranges::find(kSizes, size) != std::end(kSizes), option, " is ", size,
                  "; give 1, 2, 4 or 8");
}

void check_divisible(const ModelConfig& config, int64_t size, const std::string& option,
                     const std::string& model) {
  if (size == 1 || divides(config, size)) return;
  int64_t most = 1;
  for (const int64_t other : kSizes)
    if (divides(config, other)) most = other;  // they rise
  TLT_CHECK_INPUT(false, option, " is ", size, ", and ", model, " has ", config.heads, " heads, ",
                  config.kv_heads, " KV heads and an intermediate size of ", config.intermediate,
                  ": each rank needs as many heads and KV heads as the others, and a multiple of ",
                  kVector, " of the intermediate size; give ", most);
}

ModelConfig shard_config(ModelConfig config, int64_t size) {
  TLT_CHECK(divides(config, size), "a part of ", size);
  config.heads /= size;
  config.kv_heads /= size;
  config.intermediate /= size;
  return config;
}

}  // namespace tlt::model
