// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "ops/linear.h"

namespace tlt::model {
namespace {

constexpr int64_t kSizes[] = {1, 2, 4, 8};
constexpr int64_t kVector = 16;  // multiple of the inner size, as in ModelConfig::check()

bool divides(const ModelConfig& config, int64_t size) {
  return config.heads % size == 0 && config.kv_heads % size == 0 &&
         config.intermediate % (kVector * size) == 0;
}

int64_t share_of(int64_t rows, int64_t slices) { return (rows + slices - 1) / slices; }

// dy W of each slice, by the arithmetic of a rank that has only these rows of W.
void multiply_slices(const Device& device, const InputProduct& product, at::Tensor& parts) {
  const ops::Weight& whole = product.weight;
  const int64_t slices = parts.size(0), rows = slice_rows(product.projections, slices);
  for (int64_t slice = 0; slice < slices; ++slice) {
    ops::Weight own(device, rows, whole.columns(), whole.type());
    at::Tensor dy = device.zeros({product.dy.size(0), rows}, whole.type()),
               part = parts.select(0, slice);
    for (const auto& [from, count, to] : rows_of_slice(product.projections, slices, slice)) {
      own.assign(device, whole.values(device, from, count), to);
      dy.narrow(1, to, count).copy_(product.dy.narrow(1, from, count));
    }
    ops::linear_backward_input(device, dy, own, part);
  }
}

}  // namespace

std::vector<RowBlock> rows_of_slice(std::span<const int64_t> projections, int64_t slices,
                                    int64_t slice) {
  std::vector<RowBlock> blocks;
  int64_t begin = 0, to = 0;  // of the projection
  for (const int64_t rows : projections) {
    const int64_t share = share_of(rows, slices), first = std::min(rows, slice * share);
    if (first < rows) blocks.push_back({begin + first, std::min(share, rows - first), to});
    begin += rows;
    to += share;
  }
  return blocks;
}

int64_t slice_rows(std::span<const int64_t> projections, int64_t slices) {
  int64_t all = 0;
  for (const int64_t rows : projections) all += share_of(rows, slices);
  return all;
}

void backward_slices(const Device& device, const SlicedSum& sum, const InputProduct& product,
                     at::Tensor& parts, at::Tensor& dx) {
  TLT_CHECK(parts.size(0) == sum.slices, parts.size(0), " parts of ", sum.slices, " slices");
  if (sum.ranks) {
    at::Tensor mine = parts.select(0, sum.ranks->rank());
    ops::linear_backward_input(device, product.dy, product.weight, mine);
    sum.ranks->all_gather(parts);
  } else {
    multiply_slices(device, product, parts);
  }
  ops::add_slices(device, parts, /*residual=*/{}, dx);
}

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
