// TensorParallelGroup: the workers that compute the passes of one engine together
// (model/tensor_parallel.h).
//
// Rank 0, the leader, has the engine: it schedules, drafts and samples, and sends each pass to the
// other ranks, which follow: they execute what it sends, each with its part of the weights and of
// the KV cache. So there is one decision for all ranks, and none can diverge. The ranks exchange
// the slices of two sums per layer and those of the logits.
//
// Owns       this rank's part of the model; on a follower also its KV caches.
// Borrows    the model, which is whole on every rank; the communicator of the group.
// Not here   which workers form a group (rl/rollout_worker.h).
// Threading  engine thread only.
// Errors     LostWorkerError on all ranks if one is lost.
//
//   TensorParallelGroup group(model, comm);
//   if (group.leads()) {
//     Engine engine({model, &group}, options);
//     …
//     group.release();
//   } else {
//     group.follow();   // until the leader releases
//   }
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/comm.h"
#include "model/policy_shard.h"
#include "model/tensor_parallel.h"
#include "rollout/model_runner.h"

namespace tlt::rollout {

class WordReader;  // of a message

class TensorParallelGroup final : private model::TensorParallelRanks {
 public:
  // All ranks of `comm` together. `comm`: of this group only.
  TensorParallelGroup(const model::PolicyModel& model, cluster::Comm& comm);
  ~TensorParallelGroup() override;

  bool leads() const { return comm_.rank() == 0; }
  int64_t size() const override { return comm_.size(); }
  kv::KvShape kv_shape() const { return shard_.part().kv_shape(); }
  // This rank's part, which may be trained between the passes.
  const model::PolicyShard& shard() const { return shard_; }

  // The model's weights have changed: every rank calls it, between follow() and the next pass.
  void new_weights() { shard_.new_weights(); }

  // --- the leader ---

  // Of an engine, which outlives neither the group nor its leadership.
  std::unique_ptr<ModelRunner> make_runner(int64_t pages, int64_t max_rows);
  // Ends follow() on the other ranks, which returns `result` there.
  void release(const std::string& result = {});
  // Tells the other ranks that the leader is alive, if it has sent nothing for a second: they wait
  // for it at most as long as for a collective.
  void keep_alive();

  // --- the other ranks ---

  // Executes the passes of the leader's engines until release(); returns its result.
  std::string follow();

 private:
  class Runner;
  struct FollowedCache;
  struct KeptPath {
    int32_t segment;  // of the last batch
    std::vector<int32_t> path;
  };
  using Words = std::vector<int32_t>;

  int64_t rank() const override { return comm_.rank(); }
  void all_gather(at::Tensor& parts) override { comm_.all_gather(parts); }

  void send(const Words& words);
  const Words& receive();
  void exchange_message();
  bool execute(const Words& words, std::string& result);
  void execute_pass(WordReader& in);
  void execute_logits(WordReader& in);

  cluster::Comm& comm_;
  model::PolicyShard shard_;
  Words message_;  // the present one: its length, the words, padding
  // The leader's.
  int32_t next_runner_ = 0;
  Words dropped_;  // runners that ended since the last message
  Stopwatch since_send_;
  // The others': of the leader's runners, by number.
  std::map<int32_t, std::unique_ptr<FollowedCache>> caches_;
  model::RowBuffer hidden_;  // [R, D]
  model::RowBuffer logits_;  // [R, V] float32
};

}  // namespace tlt::rollout
