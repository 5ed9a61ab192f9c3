// ForwardingComm: passes every call to another Comm; a base for those that change some.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cluster/comm.h"

namespace tlt::tests {

class ForwardingComm : public cluster::Comm {
 public:
  explicit ForwardingComm(cluster::Comm& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void barrier(const std::string& name) override { inner_.barrier(name); }
  void all_reduce_sum(at::Tensor& tensor) override { inner_.all_reduce_sum(tensor); }
  void all_reduce_max(at::Tensor& tensor) override { inner_.all_reduce_max(tensor); }
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    return inner_.reduce_scatter_sum(parts, sizes);
  }
  void broadcast(at::Tensor& tensor, int root) override { inner_.broadcast(tensor, root); }
  void all_gather(at::Tensor& parts) override { inner_.all_gather(parts); }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    return inner_.all_gather_bytes(bytes);
  }
  std::vector<double> all_reduce_sum(std::vector<double> values) override {
    return inner_.all_reduce_sum(std::move(values));
  }

 private:
  cluster::Comm& inner_;
};

}  // namespace tlt::tests
