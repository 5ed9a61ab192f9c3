// SPDX-License-Identifier: Apache-2.0
#include "train/staged_gradients.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace tlt::train {
namespace {

constexpr int64_t kAlignment = 16;  // of a gradient, in elements: 64 bytes

struct Block {
  model::BackwardStages stages;
  int64_t begin = 0, end = 0;  // elements

  bool lives_with(const Block& other) const {
    return stages.first <= other.stages.last && other.stages.first <= stages.last;
  }
};

int64_t elements_of(const model::Parameter& parameter) {
  return c10::multiply_integers(parameter.shape());
}

// Moves a block past those placed blocks that are needed at the same time and in its way.
void place(Block& block, const std::vector<Block>& placed) {
  std::vector<const Block*> others;
  for (const Block& other : placed)
    if (block.lives_with(other)) others.push_back(&other);
  std::ranges::sort(others, {}, &Block::begin);
  for (const Block* other : others) {
    if (block.end <= other->begin) return;
    const int64_t size = block.end - block.begin;
    block.begin = std::max(block.begin, other->end);
    block.end = block.begin + size;
  }
}

// Where the gradient of each parameter is: the largest ones are placed first, each at the lowest
// place where nothing else is needed in its stages.
std::vector<Block> place_all(const std::vector<model::Parameter>& parameters, int64_t stages) {
  std::vector<Block> blocks, placed;
  for (const model::Parameter& parameter : parameters)
    blocks.push_back({.stages = {std::min(parameter.stages.first, stages - 1),
                                 std::min(parameter.stages.last, stages - 1)},
                      .end = elements_of(parameter)});
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return blocks[i].end; });
  for (const size_t i : order) {
    blocks[i].end = (blocks[i].end + kAlignment - 1) / kAlignment * kAlignment;
    place(blocks[i], placed);
    placed.push_back(blocks[i]);
  }
  return blocks;
}

}  // namespace

StagedGradients::StagedGradients(const Device& device,
                                 const std::vector<model::Parameter>& parameters, int64_t stages)
    : complete_(static_cast<size_t>(stages)) {
  const std::vector<Block> blocks = place_all(parameters, stages);
  int64_t elements = 0;
  for (const Block& block : blocks) elements = std::max(elements, block.end);
  memory_ = device.zeros({elements}, at::kFloat);
  for (size_t i = 0; i < parameters.size(); ++i) {
    gradients_.tensors.push_back(
        memory_.narrow(0, blocks[i].begin, elements_of(parameters[i])).view(parameters[i].shape()));
    complete_[static_cast<size_t>(blocks[i].stages.last)].push_back(i);
  }
}

void StagedGradients::end_stage(GradientSum& sum) {
  for (const size_t i : complete_[stage_]) sum.add(i, gradients_.tensors[i]);
  stage_ = (stage_ + 1) % complete_.size();
}

// Also in the first stage, which an error may have left half done.
void StagedGradients::clear() {
  memory_.zero_();
  stage_ = 0;
}

}  // namespace tlt::train
