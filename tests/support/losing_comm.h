// run_losing_one: workers as threads of the test (thread_comm.h), the last of which is lost in a
// given collective; the others continue without it, as with ContinuingComm.
//
//   run_losing_one(3, /*failing_call=*/5, [](cluster::Comm& comm) { … });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/thread_comm.h"

namespace tlt::train {

// Passes calls to `all` until collective number `failing_call`, counted from 1, fails on all ranks
// together; then to `rest`. Null: this worker is the lost one.
class LosingComm final : public cluster::Comm {
 public:
  struct Killed {};

  LosingComm(cluster::Comm& all, cluster::Comm* rest, int64_t failing_call)
      : comm_(&all), rest_(rest), failing_call_(failing_call) {}

  bool has_lost() const { return calls_ >= failing_call_; }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  bool continues_after_loss() const override { return true; }
  std::vector<int> lost_workers() const override {
    return has_lost() ? std::vector<int>{size()} : std::vector<int>{};
  }
  void section(const std::string&, const std::function<void()>& body) override {
    if (is_inside_) return body();
    is_inside_ = true;
    try {
      body();
    } catch (const cluster::LostWorkerError&) {
      comm_ = rest_;
      body();
    }
    is_inside_ = false;
  }
  void barrier(const std::string& name) override {
    section(name, [&] { count(), comm_->barrier(name); });
  }
  void all_reduce_sum(at::Tensor& tensor) override {
    in_place(tensor, [&] { comm_->all_reduce_sum(tensor); });
  }
  void all_reduce_max(at::Tensor& tensor) override {
    in_place(tensor, [&] { comm_->all_reduce_max(tensor); });
  }
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    at::Tensor sum;
    section("parts", [&] { count(), sum = comm_->reduce_scatter_sum(parts, sizes); });
    return sum;
  }
  void broadcast(at::Tensor& tensor, int root) override {
    in_place(tensor, [&] { comm_->broadcast(tensor, root); });
  }
  void all_gather(at::Tensor& parts) override {
    in_place(parts, [&] { comm_->all_gather(parts); });
  }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    std::vector<std::string> all;
    section("bytes", [&] { count(), all = comm_->all_gather_bytes(bytes); });
    return all;
  }
  std::vector<double> all_reduce_sum(std::vector<double> values) override {
    std::vector<double> sums;
    section("values", [&] { count(), sums = comm_->all_reduce_sum(values); });
    return sums;
  }

 private:
  // In a section the tensor is not kept: a collective that fails leaves something else in it.
  void in_place(at::Tensor& tensor, const std::function<void()>& collective) {
    const bool is_kept = !is_inside_;
    section("tensor", [&] {
      if (!is_kept && calls_ + 1 == failing_call_) tensor.fill_(7);
      count();
      collective();
    });
  }
  void count() {
    if (++calls_ != failing_call_) return;
    if (!rest_) throw Killed();
    throw cluster::LostWorkerError("a worker is lost");
  }

  cluster::Comm* comm_;
  cluster::Comm* const rest_;
  const int64_t failing_call_;
  int64_t calls_ = 0;
  bool is_inside_ = false;
};

// Returns whether the loss occurred: false if there were fewer collectives.
inline bool run_losing_one(int workers, int64_t failing_call,
                           const std::function<void(cluster::Comm&)>& body) {
  SharedDesk all(workers), rest(workers - 1);
  std::vector<char> has_lost(static_cast<size_t>(workers));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < workers; ++rank)
      threads.emplace_back([&, rank] {
        ThreadComm before(all, rank), after(rest, rank);
        LosingComm comm(before, rank + 1 < workers ? &after : nullptr, failing_call);
        try {
          body(comm);
        } catch (const LosingComm::Killed&) {
          // The lost worker ends here.
        }
        has_lost[static_cast<size_t>(rank)] = comm.has_lost();
      });
  }
  return has_lost.back() != 0;
}

}  // namespace tlt::train
