// GradientSum: sums the float32 gradients of the packs of a mini-batch exactly.
//
// A gradient is added in fixed point, as an integer multiple of 2^-40, rounded once. Integer sums
// are exact, so the result does not depend on the order, on the worker that had a pack, or on the
// number of workers.
//
// Owns       one int64 for each element of the parameters, on the device (8 bytes each). On the CPU
//            a large cleared sum takes no memory until something is added.
// Threading  engine thread only; uses the device's pool.
// Fault      a gradient that is not finite, or too large for fixed point: the largest absolute
//            values of a parameter's packs must add up to less than 4e6, so that no order of the sum
//            overflows. The sum is then invalid until clear(); reduce() says so on all workers. It
//            depends, like the sum, on the packs only.
//
//   sum.clear();
//   for (…) { …backward into gradients…; sum.add(gradients); }
//   if (sum.reduce(comm).empty()) optimizer.step(sum.view(), rate);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"
#include "runtime/pinned_copies.h"
#include "train/gradient_view.h"
#include "train/shards.h"

namespace tlt::train {

class GradientSum {
 public:
  // REQUIRES: `parameters` outlives the sum.
  GradientSum(const std::vector<model::Parameter>& parameters, const Device& device);
  explicit GradientSum(const model::PolicyModel& model)
      : GradientSum(model.parameters(), model.device()) {}

  void clear();
  // Adds the gradients of one pack and sets them to zero for the next.
  void add(model::Gradients& gradients);
  // The same for one parameter. REQUIRES: once in a pack.
  void add(size_t parameter, at::Tensor& gradient);
  // Sums over all workers. Each gets all of the sum; with `shards` only what it needs: its share and
  // its chunks. The rest has no meaning then, and on the CPU no memory until clear(). Returns the fault
  // of the sum, which names the parameter, the same on all workers; empty: the sum is valid.
  [[nodiscard]] std::string reduce(cluster::Comm& comm, const Shards* shards = nullptr);
  // The sum times `scale`, rounded once to float32. REQUIRES: this outlives the view; one read() at a
  // time.
  GradientView view(double scale = 1) const;

  // clear() for elements first … last-1 of one parameter.
  void clear(size_t parameter, int64_t first, int64_t last);

 private:
  std::string fault_of_all(cluster::Comm& comm) const;
  void scatter(cluster::Comm& comm, const Shards& shards);
  void read(const std::vector<Bucket>& buckets, const GradientView::Use& use, double scale) const;
  void convert(const Bucket& bucket, double scale, float* values) const;
  at::Tensor convert_there(const Bucket& bucket, double scale) const;

  const std::vector<model::Parameter>& parameters_;
  const Device device_;
  at::Tensor all_units_;           // int64, all parameters
  std::vector<at::Tensor> units_;  // views of it, one per parameter
  // [parameters] int64: the largest absolute value of each pack, rounded up, added over the packs.
  at::Tensor magnitudes_;
  mutable at::Tensor bucket_;  // float32, on the CPU: of read(), kept for the next
  mutable std::optional<runtime::PinnedCopies> downloads_;  // of read(); none: on the CPU
};

}  // namespace tlt::train
