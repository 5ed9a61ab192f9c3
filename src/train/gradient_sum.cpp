// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/check.h"
#include "train/chunks.h"

namespace tlt::train {
namespace {

constexpr double kUnit = 0x1p-40, kUnitsInOne = 0x1p40;
// Bound of a parameter's magnitude. A gradient is below it too, so no sum exceeds 2^63 units, in
// whatever order and on however many workers it is made.
constexpr int64_t kLargest = int64_t{1} << 22;
// The magnitude of a gradient that is not finite or not below kLargest: above every valid one, and
// far enough from the bound of an int64 for the sum of 2^20 of them.
constexpr int64_t kInvalid = int64_t{1} << 42;

int64_t magnitude_of(const Device& device, const at::Tensor& gradient) {
  const float* values = gradient.data_ptr<float>();
  // The bits of an absolute value, which are in the order of the values, infinity and NaN last.
  std::vector<uint32_t> largest(static_cast<size_t>(chunks(gradient.numel())));
  for_chunks(device, gradient.numel(), [&](int64_t chunk, int64_t first, int64_t last) {
    uint32_t most = 0;
    for (int64_t i = first; i < last; ++i)
      most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU);
    largest[static_cast<size_t>(chunk)] = most;
  });
  if (largest.empty()) return 0;
  const auto value = std::bit_cast<float>(*std::ranges::max_element(largest));
  return value < static_cast<float>(kLargest) ? static_cast<int64_t>(std::ceil(value)) : kInvalid;
}

void add_units(const Device& device, const at::Tensor& gradient, at::Tensor& units) {
  const float* from = gradient.data_ptr<float>();
  int64_t* to = units.data_ptr<int64_t>();
  for_chunks(device, gradient.numel(), [&](int64_t, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      to[i] += std::llrint(static_cast<double>(from[i]) * kUnitsInOne);
  });
}

}  // namespace

GradientSum::GradientSum(const std::vector<model::Parameter>& parameters, const Device& device)
    : parameters_(parameters), device_(device) {
  for (const model::Parameter& parameter : parameters)
    units_.push_back(at::zeros(parameter.shape(), at::kLong));
  magnitudes_ = at::zeros({std::ssize(parameters)}, at::kLong);
}

void GradientSum::clear() {
  for (at::Tensor& units : units_) units.zero_();
  magnitudes_.zero_();
}

void GradientSum::add(model::Gradients& gradients) {
  TLT_CHECK(gradients.tensors.size() == units_.size(), gradients.tensors.size(), " gradients for ",
            units_.size(), " parameters");
  for (size_t i = 0; i < units_.size(); ++i) {
    at::Tensor& gradient = gradients.tensors[i];
    TLT_CHECK(gradient.is_contiguous() && gradient.sizes() == units_[i].sizes(),
              parameters_[i].name());
    const at::Tensor values = gradient.cpu();
    int64_t& magnitude = magnitudes_.data_ptr<int64_t>()[i];
    magnitude += magnitude_of(device_, values);
    if (magnitude < kLargest) add_units(device_, values, units_[i]);
    gradient.zero_();
  }
}

std::string GradientSum::reduce(cluster::Comm& comm) {
  at::Tensor magnitudes = magnitudes_.clone();
  comm.all_reduce_sum(magnitudes);
  const std::span<const int64_t> all(magnitudes.data_ptr<int64_t>(), units_.size());
  const auto invalid =
      std::ranges::find_if(all, [](int64_t magnitude) { return magnitude >= kLargest; });
  if (invalid != all.end())
    return "the gradient of " + parameters_[static_cast<size_t>(invalid - all.begin())].name() +
           (*invalid >= kInvalid ? " is not finite or above 4e6" : " is above 4e6 in sum");
  for (at::Tensor& units : units_) comm.all_reduce_sum(units);
  return "";
}

void GradientSum::read(model::Gradients& gradients, double scale) const {
  TLT_CHECK(gradients.tensors.size() == units_.size());
  for (size_t i = 0; i < units_.size(); ++i) read(gradients, i, 0, units_[i].numel(), scale);
}

void GradientSum::clear(size_t parameter, int64_t first, int64_t last) {
  units_[parameter].view(-1).narrow(0, first, last - first).zero_();
  magnitudes_.data_ptr<int64_t>()[parameter] = 0;
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
