// CheckpointDisk: what checkpoints cost a run, as train/checkpoint.h writes them.
//
// The state is copied to the host's memory, which every worker waits for, and written in the
// background. While one checkpoint is written, one may wait; a step that has a third one waits.
//
// Owns       which checkpoints are written when.
// Threading  one thread.
//
//   now += disk.save(now);                              // after a step
//   const double lost = now - disk.resumes_at(now);     // if the run ends here
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>

namespace tlt::simulate {

class CheckpointDisk {
 public:
  CheckpointDisk(double copy_seconds, double write_seconds)
      : copy_seconds_(copy_seconds), write_seconds_(write_seconds) {}

  // Returns the seconds that the workers wait. REQUIRES: calls are in order of time.
  double save(double now) {
    const double copied = now + copy_seconds_, ready = std::max(copied, begins_);
    begins_ = std::max(ready, ends_);
    ends_ = begins_ + write_seconds_;
    checkpoints_.push_back({.resumes = ready, .whole = ends_});
    return ready - now;
  }

  // When the step began with which a run resumes that ends now: after the newest checkpoint that is
  // whole; 0: there is none.
  double resumes_at(double now) {
    while (checkpoints_.size() > 1 && checkpoints_[1].whole <= now) checkpoints_.pop_front();
    return !checkpoints_.empty() && checkpoints_.front().whole <= now ? checkpoints_.front().resumes
                                                                      : began_;
  }

  // The run has resumed, and is at these seconds later where it was before.
  void resumed(double later) {
    began_ += later;
    for (Checkpoint& it : checkpoints_) it.resumes += later, it.whole += later;
  }

 private:
  struct Checkpoint {
    double resumes = 0, whole = 0;
  };

  const double copy_seconds_, write_seconds_;
  double began_ = 0;              // the run
  double begins_ = 0, ends_ = 0;  // the last one's writing
  std::deque<Checkpoint> checkpoints_;
};

}  // namespace tlt::simulate
