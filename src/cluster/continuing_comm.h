// ContinuingComm: the Comm of several workers that continues with those that are left when one is
// lost.
//
// After a collective that failed, the workers that are left drop their process group and meet in
// the store of the rendezvous. Rank 0 decides who is in the next group: who has come; it waits for
// the others until `is_lost` or the timeout gives them up. Ranks are numbered again, in the order
// of the workers; worker 0 stays rank 0. Then all of them run the section again in which the
// failure was. A section ends with a barrier, so two workers differ by at most one: if one is in a
// section already, those at the barrier before it have all they need and enter it.
//
// The store is in the process of rank 0, or of the launcher's agent, and `is_lost` is known to rank
// 0 only: without rank 0 the run ends.
//
// Owns       the present process group.
// Not here   how groups connect (process_group_comm.h); which worker is silent (coordinator.h).
// Threading  one thread at a time.
// Errors     LostWorkerError if rank 0 is lost, if this worker was given up, or if a group without
//            a loss fails again and again.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/comm.h"

namespace c10d {
class Store;
}

namespace tlt::cluster {

// Connects this process to the others of a new group. Throws LostWorkerError if it cannot.
using Reconnect = std::function<std::unique_ptr<Comm>(int attempt, int rank, int size)>;

class ContinuingComm final : public Comm {
 public:
  // `store`: of the rendezvous, authenticated. A worker is waited for at most `timeout_seconds`.
  ContinuingComm(std::unique_ptr<Comm> all, c10::intrusive_ptr<c10d::Store> store,
                 Reconnect reconnect, double timeout_seconds);
  ~ContinuingComm() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(workers_.size()); }
  int worker(int rank) const override { return workers_.at(static_cast<size_t>(rank)); }

  void barrier(const std::string& name) override;
  void all_reduce_sum(at::Tensor& tensor) override;
  void all_reduce_max(at::Tensor& tensor) override;
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override;
  void broadcast(at::Tensor& tensor, int root) override;
  void all_gather(at::Tensor& parts) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override;
  std::vector<double> all_reduce_sum(std::vector<double> values) override;

  bool continues_after_loss() const override { return is_lost_ != nullptr; }
  std::vector<int> lost_workers() const override { return {lost_.begin(), lost_.end()}; }
  void section(const std::string& name, const std::function<void()>& body) override;
  void check_lost(const std::vector<int>& workers) override;
  void continue_after_loss(std::function<bool(int worker)> is_lost) override;

 private:
  // How far a worker is: in its section, or at the barrier after it.
  struct Place {
    int64_t section = 0;
    bool is_done = false;
  };
  struct Decision {
    std::vector<int> workers;
    Place place;  // of the worker that is furthest; done: all are
  };

  template <class Call>
  auto call(const Call& collective);
  template <class Call>
  void in_place(const char* name, at::Tensor& tensor, const Call& collective);
  bool repeats_after_loss(bool is_done, const std::string& cause);
  Decision meet(const Place& mine);
  Decision decide(const Place& mine);
  Decision await_decision(const Place& mine);
  void report_loss(const std::vector<int>& before, double seconds);

  const c10::intrusive_ptr<c10d::Store> store_;
  const Reconnect reconnect_;
  const double timeout_seconds_;
  const int worker_;                  // number of this worker
  std::function<bool(int)> is_lost_;  // null: a loss ends the run
  std::unique_ptr<Comm> group_;       // null while the workers meet
  std::vector<int> workers_;          // of the group, by rank
  int rank_;                          // in the group
  std::set<int> lost_;
  std::set<int> given_up_;    // by check_lost()
  int attempt_ = 0;           // number of the present group
  int64_t section_ = 0;       // finished sections
  bool is_inside_ = false;    // a section
  int64_t without_loss_ = 0;  // groups that failed in this section although no worker was lost
};

}  // namespace tlt::cluster
