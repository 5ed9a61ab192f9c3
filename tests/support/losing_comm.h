// run_losing_one: workers as threads of the test (thread_comm.h), the last of which is lost in a
// given collective, or after it; the others continue without it, as with ContinuingComm.
//
//   run_losing_one(3, /*failing_call=*/5, Loss::kInCollective, [](cluster::Comm& comm) { … });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/support/thread_comm.h"

namespace tlt::train {

enum class Loss {
  kInCollective,  // it fails on all ranks together
  kAfterSection,  // the section with it ends; the others' results are those of all workers
};

// Passes calls to `all` until the loss in collective number `failing_call`, counted from 1; then to
// `rest`. Null: this worker is the lost one.
class LosingComm final : public cluster::Comm {
 public:
  struct Killed {};

  LosingComm(cluster::Comm& all, cluster::Comm* rest, int64_t failing_call,
             Loss loss = Loss::kInCollective)
      : comm_(&all), rest_(rest), failing_call_(failing_call), loss_(loss) {}

  bool has_lost() const { return calls_ >= failing_call_; }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  int worker(int rank) const override {
    TLT_CHECK(rank < size(), "rank ", rank, " of ", size());
    return rank;
  }
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
      body();
    }
    is_inside_ = false;
    if (loss_ == Loss::kAfterSection && has_lost()) lose();
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
      if (!is_kept && fails_next()) tensor.fill_(7);
      count();
      collective();
    });
  }
  bool fails_next() const { return loss_ == Loss::kInCollective && calls_ + 1 == failing_call_; }
  void count() {
    const bool fails = fails_next();
    ++calls_;
    if (!fails) return;
    lose();
    throw cluster::LostWorkerError("a worker is lost");
  }
  void lose() {
    if (!rest_) throw Killed();
    comm_ = rest_;
  }

  cluster::Comm* comm_;
  cluster::Comm* const rest_;
  const int64_t failing_call_;
  const Loss loss_;
  int64_t calls_ = 0;
  bool is_inside_ = false;
};

// Returns whether the loss occurred: false if there were fewer collectives.
inline bool run_losing_one(int workers, int64_t failing_call, Loss loss,
                           const std::function<void(cluster::Comm&)>& body) {
  SharedDesk all(workers), rest(workers - 1);
  std::vector<char> has_lost(static_cast<size_t>(workers));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < workers; ++rank)
      threads.emplace_back([&, rank] {
        ThreadComm before(all, rank), after(rest, rank);
        LosingComm comm(before, rank + 1 < workers ? &after : nullptr, failing_call, loss);
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
