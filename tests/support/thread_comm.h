// ThreadComm: the collectives of workers that are threads of one process.
//
//   run_workers(3, [](cluster::Comm& comm) { … });   // body of each worker
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <barrier>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/comm.h"
#include "cluster/launch.h"

namespace tlt::train {

struct SharedDesk {
  explicit SharedDesk(int workers)
      : workers(workers),
        tensors(static_cast<size_t>(workers)),
        bytes(static_cast<size_t>(workers)),
        meeting(workers) {}

  const int workers;
  std::vector<at::Tensor> tensors;
  std::vector<std::string> bytes;
  std::barrier<> meeting;
  std::mutex mutex;
  std::map<std::pair<int64_t, int>, std::shared_ptr<SharedDesk>> parts;  // by split and color
};

class ThreadComm final : public cluster::Comm {
 public:
  ThreadComm(SharedDesk& desk, int rank) : desk_(desk), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return desk_.workers; }
  void barrier(const std::string&) override { desk_.meeting.arrive_and_wait(); }
  void all_reduce_sum(at::Tensor& tensor) override {
    combine(tensor, [](at::Tensor& sum, const at::Tensor& other) { sum.add_(other); });
  }
  void all_reduce_max(at::Tensor& tensor) override {
    combine(tensor,
            [](at::Tensor& sum, const at::Tensor& other) { sum.copy_(at::maximum(sum, other)); });
  }
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    lay_down(parts);
    const int64_t before = std::accumulate(sizes.begin(), sizes.begin() + rank_, int64_t{0});
    at::Tensor sum = at::zeros({sizes.at(static_cast<size_t>(rank_))}, parts.options());
    for (const at::Tensor& other : desk_.tensors) sum.add_(other.narrow(0, before, sum.numel()));
    desk_.meeting.arrive_and_wait();
    return sum;
  }
  void broadcast(at::Tensor& tensor, int root) override {
    lay_down(tensor);
    const at::Tensor value = desk_.tensors[static_cast<size_t>(root)];
    desk_.meeting.arrive_and_wait();
    tensor.copy_(value);
  }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    desk_.bytes[static_cast<size_t>(rank_)] = bytes;
    desk_.meeting.arrive_and_wait();
    std::vector<std::string> all = desk_.bytes;
    desk_.meeting.arrive_and_wait();
    return all;
  }
  void all_gather(at::Tensor& parts) override {
    lay_down(parts.select(0, rank_));
    for (int other = 0; other < desk_.workers; ++other)
      parts.select(0, other).copy_(desk_.tensors[static_cast<size_t>(other)]);
    desk_.meeting.arrive_and_wait();
  }
  std::unique_ptr<cluster::Comm> split(int color) override;
  std::vector<double> all_reduce_sum(std::vector<double> values) override {
    at::Tensor tensor = at::tensor(values, at::kDouble);
    all_reduce_sum(tensor);
    return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
  }

 private:
  void lay_down(const at::Tensor& tensor) {
    desk_.tensors[static_cast<size_t>(rank_)] = tensor.clone();
    desk_.meeting.arrive_and_wait();
  }
  template <class Add>
  void combine(at::Tensor& tensor, const Add& add) {
    lay_down(tensor);
    at::Tensor sum = desk_.tensors[0].clone();
    for (size_t i = 1; i < desk_.tensors.size(); ++i) add(sum, desk_.tensors[i]);
    desk_.meeting.arrive_and_wait();
    tensor.copy_(sum);
  }

  SharedDesk& desk_;
  const int rank_;
  std::shared_ptr<SharedDesk> own_;  // of a part
  int64_t splits_ = 0;
};

inline std::unique_ptr<cluster::Comm> ThreadComm::split(int color) {
  int rank = 0, size = 0;
  const std::vector<std::string> colors = all_gather_bytes(std::to_string(color));
  for (int other = 0; other < desk_.workers; ++other) {
    if (colors[static_cast<size_t>(other)] != std::to_string(color)) continue;
    if (other == rank_) rank = size;
    ++size;
  }
  const std::scoped_lock lock(desk_.mutex);
  std::shared_ptr<SharedDesk>& part = desk_.parts[{splits_++, color}];
  if (!part) part = std::make_shared<SharedDesk>(size);
  auto comm = std::make_unique<ThreadComm>(*part, rank);
  comm->own_ = part;
  return comm;
}

// The Comm of a single worker.
inline std::unique_ptr<cluster::Comm> solo() { return cluster::make_comm(cluster::Launch{}, {}); }

// REQUIRES: no worker throws while the others wait for it.
inline void run_workers(int workers, const std::function<void(cluster::Comm&)>& body) {
  SharedDesk desk(workers);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&desk, &body, rank] {
      ThreadComm comm(desk, rank);
      body(comm);
    });
}

}  // namespace tlt::train
