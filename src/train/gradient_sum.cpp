// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>

#include "base/check.h"
#include "train/chunks.h"

namespace tlt::train {
namespace {

constexpr double kUnit = 0x1p-40, kUnitsInOne = 0x1p40;
constexpr double kLargest = 0x1p22;  // bound of a gradient
// Bound of a sum: adding two sums does not overflow while one of them is below it.
constexpr int64_t kLimit = int64_t{1} << 62;

// False if a value is not finite or too large: then the sum is invalid.
bool add_range(const float* values, int64_t* units, int64_t first, int64_t last) {
  bool good = true;
  for (int64_t i = first; i < last; ++i) {
    const auto value = static_cast<double>(values[i]);
    const bool fits = std::abs(value) < kLargest;  // false for NaN
    units[i] += fits ? std::llrint(value * kUnitsInOne) : 0;
    good &= fits && units[i] > -kLimit && units[i] < kLimit;
    if (!good) return false;
  }
  return true;
}

}  // namespace

GradientSum::GradientSum(const std::vector<model::Parameter>& parameters, const Device& device)
    : parameters_(parameters), device_(device) {
  for (const model::Parameter& parameter : parameters)
    units_.push_back(at::zeros(parameter.shape(), at::kLong));
}

void GradientSum::clear() {
  for (at::Tensor& units : units_) units.zero_();
}

void GradientSum::add(model::Gradients& gradients) {
  TLT_CHECK(gradients.tensors.size() == units_.size(), gradients.tensors.size(), " gradients for ",
            units_.size(), " parameters");
  for (size_t i = 0; i < units_.size(); ++i) {
    at::Tensor& gradient = gradients.tensors[i];
    TLT_CHECK(gradient.is_contiguous() && gradient.sizes() == units_[i].sizes(),
              parameters_[i].name());
    const at::Tensor values = gradient.cpu();
    const float* from = values.data_ptr<float>();
    int64_t* to = units_[i].data_ptr<int64_t>();
    std::atomic<bool> good = true;
    for_chunks(device_, values.numel(), [&](int64_t, int64_t first, int64_t last) {
      if (!add_range(from, to, first, last)) good = false;
    });
    TLT_CHECK(good, "the gradient of ", parameters_[i].name(),
              " is not finite or above 4e6; lower the learning rate (optim.lr) or check the "
              "model's weights");
    gradient.zero_();
  }
}

void GradientSum::reduce(cluster::Comm& comm) {
  if (comm.size() == 1) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    // Every worker must reach the same result, or the others would wait in the sum.
    at::Tensor largest = units_[i].abs().max().reshape({1});
    comm.all_reduce_max(largest);
    TLT_CHECK(largest.item<int64_t>() <= kLimit / comm.size(), "the gradient of ",
              parameters_[i].name(), " is too large for a sum over ", comm.size(), " workers");
    comm.all_reduce_sum(units_[i]);
  }
}

void GradientSum::read(model::Gradients& gradients, double scale) const {
  TLT_CHECK(gradients.tensors.size() == units_.size());
  for (size_t i = 0; i < units_.size(); ++i) read(gradients, i, 0, units_[i].numel(), scale);
}

void GradientSum::clear(size_t parameter, int64_t first, int64_t last) {
  units_[parameter].view(-1).narrow(0, first, last - first).zero_();
}

void GradientSum::read(model::Gradients& gradients, size_t parameter, int64_t first, int64_t last,
                       double scale) const {
  at::Tensor values = at::empty({last - first}, at::kFloat);
  const int64_t* from = units_[parameter].data_ptr<int64_t>() + first;
  float* to = values.data_ptr<float>();
  for_chunks(device_, values.numel(), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      to[k] = static_cast<float>(static_cast<double>(from[k]) * (kUnit * scale));
  });
  gradients.tensors[parameter].view(-1).narrow(0, first, last - first).copy_(values);
}

}  // namespace tlt::train
