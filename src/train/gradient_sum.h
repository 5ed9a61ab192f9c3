// GradientSum: the gradient of a mini-batch, from the float32 gradients of its packs.
//
// A gradient is added as a whole number of 2^-40, rounded once. Sums of whole numbers are exact, so
// the result does not depend on the order, on which worker had which pack, or on how many workers
// there are.
//
// Owns       one int64 for each number of the parameters, on the CPU (8 bytes each).
// Threading  engine thread only; uses the device's pool.
// Errors     a gradient that is not finite or above 4e6 is an Error that names the parameter.
//
//   sum.clear();
//   for (…) { …backward into gradients…; sum.add(gradients); }
//   sum.reduce(comm);
//   sum.read(gradients);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cluster/comm.h"
#include "model/policy_model.h"

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
  // The sum over all workers, on all of them.
  void reduce(cluster::Comm& comm);
  // The sum, rounded to float32.
  void read(model::Gradients& gradients) const;

  // The same of elements first … last-1 of one parameter.
  void clear(size_t parameter, int64_t first, int64_t last);
  void read(model::Gradients& gradients, size_t parameter, int64_t first, int64_t last) const;

 private:
  const std::vector<model::Parameter>& parameters_;
  const Device device_;
  std::vector<at::Tensor> units_;  // int64, for each parameter
};

}  // namespace tlt::train
