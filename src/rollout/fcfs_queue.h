// FcfsQueue: the sequences of an engine, in order of arrival: those that run, then those that wait.
//
// First come, first served: a sequence is admitted when all older ones run, and when memory runs
// out the youngest running one is preempted, which waits at the front again. So the oldest always
// makes progress, and every sequence becomes the oldest.
//
// Owns       the sequences. T is Sequence's owner in the scheduler, and a simulated sequence in
//            simulate/simulated_engine.h.
// Not here   how much memory a sequence needs, and what it keeps when it is preempted.
// Threading  one thread.
// Invariant  every running sequence is older than every waiting one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace tlt::rollout {

template <typename T>
class FcfsQueue {
 public:
  void push(T sequence) { waiting_.push_back(std::move(sequence)); }

  // Admits waiting sequences, the oldest first, until `most` run or one does not fit. One that
  // would run alone is admitted in any case. `fits`: asked once for each sequence in turn.
  void admit(int64_t most, auto&& fits) {
    is_short_of_memory_ = false;
    while (!waiting_.empty() && std::ssize(running_) < most) {
      if (!fits(std::as_const(waiting_.front())) && !running_.empty()) {
        is_short_of_memory_ = true;
        return;
      }
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  // The youngest running sequence waits again, at the front; returns it.
  T& preempt_youngest() {
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
    return waiting_.front();
  }

  void erase_running_if(auto&& is_done) { std::erase_if(running_, is_done); }
  void erase_waiting_if(auto&& is_done) { std::erase_if(waiting_, is_done); }
  // Oldest first.
  std::vector<T> take_all() {
    is_short_of_memory_ = false;
    std::vector<T> all = std::exchange(running_, {});
    std::ranges::move(std::exchange(waiting_, {}), std::back_inserter(all));
    return all;
  }

  // Oldest first.
  std::span<T> running() { return running_; }
  std::span<const T> running() const { return running_; }
  const std::deque<T>& waiting() const { return waiting_; }

  // Number of sequences that could be pushed and start with the next step if at most `most` run;
  // 0 while one waits for memory.
  int64_t free_slots(int64_t most) const {
    const int64_t unfinished = std::ssize(running_) + std::ssize(waiting_);
    return is_short_of_memory_ ? 0 : std::max<int64_t>(most - unfinished, 0);
  }

 private:
  std::vector<T> running_;
  std::deque<T> waiting_;
  bool is_short_of_memory_ = false;  // the last admit() stopped at one that did not fit
};

}  // namespace tlt::rollout
