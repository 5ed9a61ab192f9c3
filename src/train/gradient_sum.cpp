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

// Elements that add_units_by_aten() converts at a time.
constexpr int64_t kPart = int64_t{1} << 24;
// Elements that a worker exchanges with the others at a time: 32 MiB.
constexpr int64_t kExchanged = int64_t{1} << 22;

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

// parts: of this worker, by the worker that gets their sum. Returns that of this one.
at::Tensor sum_of_mine(cluster::Comm& comm, const std::vector<at::Tensor>& parts) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& part : parts) sizes.push_back(part.numel());
  return comm.reduce_scatter_sum(at::cat(parts).cpu(), sizes);
}

int64_t elements_of(const Bucket& bucket) {
  int64_t elements = 0;
  for (const TensorSpan& span : bucket) elements += span.size();
  return elements;
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

std::string GradientSum::reduce(cluster::Comm& comm, const Shards* shards) {
  std::string fault = fault_of_all(comm);
  if (!fault.empty() || comm.size() == 1) return fault;
  if (shards) {
    scatter(comm, *shards);
    return "";
  }
  for (int64_t first = 0; first < all_units_.numel(); first += kExchanged) {
    at::Tensor units =
        all_units_.narrow(0, first, std::min(kExchanged, all_units_.numel() - first));
    at::Tensor on_host = units.cpu();  // on the CPU: the same tensor
    comm.all_reduce_sum(on_host);
    if (!device_.is_cpu()) units.copy_(on_host);
  }
  return "";
}

std::string GradientSum::fault_of_all(cluster::Comm& comm) const {
  at::Tensor magnitudes = magnitudes_.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  comm.all_reduce_sum(magnitudes);
  const std::span<const int64_t> all(magnitudes.data_ptr<int64_t>(), units_.size());
  const auto invalid =
      std::ranges::find_if(all, [](int64_t magnitude) { return magnitude >= kLargest; });
  if (invalid == all.end()) return "";
  return "the gradient of " + parameters_[static_cast<size_t>(invalid - all.begin())].name() +
         (*invalid >= kInvalid ? " is not finite or above 4e6" : " is above 4e6 in sum");
}

void GradientSum::scatter(cluster::Comm& comm, const Shards& shards) {
  TLT_CHECK(shards.workers() == comm.size(), shards.workers(), " shards, ", comm.size(),
            " workers");
  const auto rank = static_cast<size_t>(comm.rank());
  std::vector<at::Tensor> shares, chunk_ends;  // by worker
  int64_t longest = 0;
  for (int worker = 0; worker < comm.size(); ++worker) {
    const ElementRange share = shards.share_of(worker), end = shards.chunk_end_of(worker);
    shares.push_back(all_units_.slice(0, share.first, share.last));
    chunk_ends.push_back(all_units_.slice(0, end.first, end.last));
    longest = std::max(longest, share.size());
  }
  // Before the sums of shares replace what this worker has of them.
  const at::Tensor chunk_end = sum_of_mine(comm, chunk_ends);
  const int64_t step = std::max<int64_t>(1, kExchanged / comm.size());
  for (int64_t first = 0; first < longest; first += step) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& share : shares) parts.push_back(share.slice(0, first, first + step));
    parts[rank].copy_(sum_of_mine(comm, parts));
  }
  chunk_ends[rank].copy_(chunk_end);
  const int64_t begin = shards.share_of(comm.rank()).first,
                end = shards.chunk_end_of(comm.rank()).last;
  device_.release_part(all_units_.slice(0, 0, begin));
  device_.release_part(all_units_.slice(0, end));
}

GradientView GradientSum::view(double scale) const {
  return GradientView([this, scale](const std::vector<Bucket>& buckets,
                                    const GradientView::Use& use) { read(buckets, use, scale); });
}

void GradientSum::clear(size_t parameter, int64_t first, int64_t last) {
  const auto index = static_cast<int64_t>(parameter);
  units_[parameter].view(-1).narrow(0, first, last - first).zero_();
  magnitudes_.narrow(0, index, 1).zero_();
}

void GradientSum::read(const std::vector<Bucket>& buckets, const GradientView::Use& use,
                       double scale) const {
  if (device_.is_cpu()) {
    for (const Bucket& bucket : buckets) {
      const int64_t count = elements_of(bucket);
      if (!bucket_.defined() || bucket_.numel() < count) bucket_ = at::empty({count}, at::kFloat);
      convert(bucket, scale, bucket_.data_ptr<float>());
      use(bucket, bucket_.narrow(0, 0, count));
    }
    return;
  }
  if (!downloads_) downloads_.emplace(device_);
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (i == 0) downloads_->start(convert_there(buckets[0], scale));
    if (i + 1 < buckets.size()) downloads_->start(convert_there(buckets[i + 1], scale));
    use(buckets[i], downloads_->take());
  }
}

// On the CPU.
void GradientSum::convert(const Bucket& bucket, double scale, float* values) const {
  for (const TensorSpan& span : bucket) {
    const int64_t* units = units_[span.tensor].data_ptr<int64_t>() + span.first;
    for_chunks(device_, span.size(), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        values[k] = static_cast<float>(static_cast<double>(units[k]) * (kUnit * scale));
    });
    values += span.size();
  }
}

// On another device.
at::Tensor GradientSum::convert_there(const Bucket& bucket, double scale) const {
  std::vector<at::Tensor> units;
  for (const TensorSpan& span : bucket)
    units.push_back(units_[span.tensor].view(-1).slice(0, span.first, span.last));
  return at::cat(units).to(at::kDouble).mul_(kUnit * scale).to(at::kFloat);
}

}  // namespace tlt::train
