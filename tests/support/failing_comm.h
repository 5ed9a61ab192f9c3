// FailingComm: a Comm that fails at one call, as if a rank had been lost there.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "cluster/comm.h"

namespace tlt::cluster {

class FailingComm final : public Comm {
 public:
  // Passes calls to `inner`; throws Error at call number `failing_call`, counted from 1, and at
  // every later one.
  FailingComm(Comm& inner, int64_t failing_call) : inner_(inner), failing_call_(failing_call) {}

  int64_t calls() const { return calls_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void barrier(const std::string& name) override {
    count("barrier '" + name + "'"), inner_.barrier(name);
  }
  void all_reduce_sum(at::Tensor& tensor) override {
    count("all_reduce_sum"), inner_.all_reduce_sum(tensor);
  }
  void all_reduce_max(at::Tensor& tensor) override {
    count("all_reduce_max"), inner_.all_reduce_max(tensor);
  }
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    count("reduce_scatter_sum");
    return inner_.reduce_scatter_sum(parts, sizes);
  }
  void broadcast(at::Tensor& tensor, int root) override {
    count("broadcast"), inner_.broadcast(tensor, root);
  }
  void all_gather(at::Tensor& parts) override { count("all_gather"), inner_.all_gather(parts); }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    count("all_gather_bytes");
    return inner_.all_gather_bytes(bytes);
  }
  std::vector<double> all_reduce_sum(std::vector<double> values) override {
    count("all_reduce_sum");
    return inner_.all_reduce_sum(std::move(values));
  }

 private:
  void count(const std::string& what) {
    TLT_CHECK(++calls_ < failing_call_, what, " (collective ", calls_,
              ") failed: planned by FailingComm");
  }

  Comm& inner_;
  const int64_t failing_call_;
  int64_t calls_ = 0;
};

}  // namespace tlt::cluster
