// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "ops/device_rows.h"
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

// Elements that are kept for read(), and that are converted at a time off the CPU: 64 MiB of float32.
constexpr int64_t kPart = int64_t{1} << 24;

// The bits of an absolute value, which are in the order of the values, infinity and NaN last.
uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffU; }

int64_t magnitude_of(uint32_t largest) {
  const auto value = std::bit_cast<float>(largest);
  return value < static_cast<float>(kLargest) ? static_cast<int64_t>(std::ceil(value)) : kInvalid;
}

// Adds a gradient whose earlier packs have this magnitude and sets it to zero; returns the
// gradient's magnitude. One pass over memory: a chunk is read again from the cache. A chunk that may
// overflow is left out; the sum is invalid then.
int64_t add_units(const Device& device, at::Tensor& gradient, int64_t earlier, at::Tensor& units) {
  float* from = gradient.data_ptr<float>();
  int64_t* to = units.data_ptr<int64_t>();
  std::vector<uint32_t> largest(static_cast<size_t>(chunks(gradient.numel())));
  for_chunks(device, gradient.numel(), [&](int64_t chunk, int64_t first, int64_t last) {
    uint32_t most = 0;
    for (int64_t i = first; i < last; ++i) most = std::max(most, bits_of(from[i]));
    largest[static_cast<size_t>(chunk)] = most;
    if (earlier + magnitude_of(most) < kLargest)
      for (int64_t i = first; i < last; ++i)
        to[i] += std::llrint(static_cast<double>(from[i]) * kUnitsInOne);
    std::fill(from + first, from + last, 0.F);
  });
  return largest.empty() ? 0 : magnitude_of(*std::ranges::max_element(largest));
}

// add_units() by ATen's operations, without setting the gradient to zero; `magnitude` [1] is that of
// all packs. A value that is not below kLargest counts as zero, so nothing overflows in a
// conversion; the sum is invalid then.
void add_units_by_aten(const at::Tensor& gradient, at::Tensor& magnitude, const at::Tensor& units) {
  const at::Tensor flat = gradient.view(-1);
  at::Tensor sums = units.view(-1);
  at::Tensor largest = at::zeros({}, flat.options());
  for (int64_t first = 0; first < flat.numel(); first += kPart) {
    const int64_t count = std::min(kPart, flat.numel() - first);
    const at::Tensor values = flat.narrow(0, first, count);
    const at::Tensor sizes = values.abs(), is_valid = sizes.lt(static_cast<double>(kLargest));
    largest = at::maximum(largest, sizes.max());  // NaN stays
    const at::Tensor valid = at::where(is_valid, values, at::zeros({}, values.options()));
    sums.narrow(0, first, count)
        .add_(valid.to(at::kDouble).mul_(kUnitsInOne).round_().to(at::kLong));
  }
  const at::Tensor is_valid = largest.lt(static_cast<double>(kLargest));
  const at::Tensor invalid = at::full({}, kInvalid, magnitude.options());
  const at::Tensor finite = at::where(is_valid, largest, at::zeros({}, largest.options()));
  magnitude.add_(at::where(is_valid, finite.ceil().to(at::kLong), invalid));
}

// add_units() off the CPU, by the device's own kernels if it has them: the same bits where the sum
// is valid.
void add_units_on_device(const Device& device, at::Tensor& gradient, at::Tensor& magnitude,
                         const at::Tensor& units) {
  if (const ops::DeviceRows* own = ops::device_rows(device))
    own->add_fixed_point(gradient, {.limit = kLargest, .invalid = kInvalid}, magnitude, units);
  else
    add_units_by_aten(gradient, magnitude, units);
  gradient.zero_();
}

}  // namespace

GradientSum::GradientSum(const std::vector<model::Parameter>& parameters, const Device& device)
    : parameters_(parameters), device_(device) {
  std::vector<int64_t> begins = {0};
  std::vector<std::vector<int64_t>> shapes;
  for (const model::Parameter& parameter : parameters) {
    shapes.push_back(parameter.shape());
    begins.push_back(begins.back() + c10::multiply_integers(shapes.back()));
  }
  all_units_ = device.lasting_zeros({begins.back()}, at::kLong);
  for (size_t i = 0; i < parameters.size(); ++i)
    units_.push_back(all_units_.narrow(0, begins[i], begins[i + 1] - begins[i]).view(shapes[i]));
  magnitudes_ = device.zeros({std::ssize(parameters)}, at::kLong);
}

void GradientSum::clear() {
  if (!device_.try_release(all_units_)) all_units_.zero_();
  magnitudes_.zero_();
}

void GradientSum::add(model::Gradients& gradients) {
  TLT_CHECK(gradients.tensors.size() == units_.size(), gradients.tensors.size(), " gradients for ",
            units_.size(), " parameters");
  for (size_t i = 0; i < units_.size(); ++i) add(i, gradients.tensors[i]);
}

void GradientSum::add(size_t parameter, at::Tensor& gradient) {
  at::Tensor& units = units_.at(parameter);
  TLT_CHECK(gradient.is_contiguous() && gradient.sizes() == units.sizes(),
            parameters_[parameter].name());
  if (!device_.is_cpu()) {
    at::Tensor magnitude = magnitudes_.narrow(0, static_cast<int64_t>(parameter), 1);
    return add_units_on_device(device_, gradient, magnitude, units);
  }
  int64_t& magnitude = magnitudes_.data_ptr<int64_t>()[parameter];
  magnitude += add_units(device_, gradient, magnitude, units);
}

std::string GradientSum::reduce(cluster::Comm& comm) {
  at::Tensor magnitudes = magnitudes_.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  comm.all_reduce_sum(magnitudes);
  const std::span<const int64_t> all(magnitudes.data_ptr<int64_t>(), units_.size());
  const auto invalid =
      std::ranges::find_if(all, [](int64_t magnitude) { return magnitude >= kLargest; });
  if (invalid != all.end())
    return "the gradient of " + parameters_[static_cast<size_t>(invalid - all.begin())].name() +
           (*invalid >= kInvalid ? " is not finite or above 4e6" : " is above 4e6 in sum");
  if (comm.size() == 1) return "";
  for (at::Tensor& units : units_) {
    at::Tensor on_host = units.cpu();  // on the CPU: the same tensor
    comm.all_reduce_sum(on_host);
    if (!device_.is_cpu()) units.copy_(on_host);
  }
  return "";
}

GradientView GradientSum::view(double scale) const {
  return GradientView([this, scale](size_t parameter, int64_t first, int64_t last) {
    return read(parameter, first, last, scale);
  });
}

void GradientSum::clear(size_t parameter, int64_t first, int64_t last) {
  const auto index = static_cast<int64_t>(parameter);
  units_[parameter].view(-1).narrow(0, first, last - first).zero_();
  magnitudes_.narrow(0, index, 1).zero_();
}

at::Tensor GradientSum::read(size_t parameter, int64_t first, int64_t last, double scale) const {
  const int64_t count = last - first;
  const at::Tensor units = units_[parameter].view(-1).narrow(0, first, count);
  if (!device_.is_cpu()) return units.to(at::kDouble).mul_(kUnit * scale).to(at::kFloat).cpu();
  at::Tensor values = count <= kPart ? part_ : at::Tensor();
  if (!values.defined() || values.numel() < count) values = at::empty({count}, at::kFloat);
  if (count <= kPart) part_ = values;
  const int64_t* from = units.data_ptr<int64_t>();
  float* to = values.data_ptr<float>();
  for_chunks(device_, count, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      to[k] = static_cast<float>(static_cast<double>(from[k]) * (kUnit * scale));
  });
  return values.narrow(0, 0, count);
}

}  // namespace tlt::train
