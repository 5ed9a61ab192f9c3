// Comm: the collectives of all workers, in one process or many.
//
// A solo run has a Comm too (of size 1, without a socket), so no caller handles it separately.
// Every rank calls the same functions in the same order with tensors of the same type and size.
//
// Owns       the rendezvous and the connections to the other ranks.
// Not here   who is which rank (launch.h); who rolls out which group (group_source.h).
// Threading  one thread at a time.
// Errors     a lost or stuck rank ends a call within CommOptions::timeout_seconds with a
//            LostWorkerError that names the call and the ranks that did not respond. After it every
//            call throws, unless the others continue without lost workers (continuing_comm.h).
//
//   const std::unique_ptr<Comm> comm = make_comm(launch, {});
//   handshake(*comm, kVersion, options_digest(refs));
//   comm->all_reduce_sum(gradients);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/options.h"

namespace at {
class Tensor;
}

namespace tlt::cluster {

struct Launch;

// Another worker is gone or does not respond. The program ends with exit code 3.
class LostWorkerError : public Error {
 public:
  using Error::Error;
};

// What the user is told then.
inline constexpr const char* kResumes =
    "start the run again with the same command: it resumes from the last checkpoint, with any "
    "number of workers";

struct CommOptions {
  double timeout_seconds = 600;
  double rendezvous_seconds = 300;

  int cuda_device = -1;  // tensors of this CUDA device go through NCCL; -1: CPU tensors only
  // A larger tensor goes in pieces, which bounds the copies of a backend. 32 MiB; tests set less.
  int64_t bucket_bytes = int64_t{1} << 25;
  // make_comm() returns a ContinuingComm. REQUIRES: only CPU tensors.
  bool continues_after_loss = false;

  void visit(auto& v) {
    v(timeout_seconds, "timeout_seconds", Affects::kPlace,
      "Seconds that one collective may take, including the wait for the slowest worker.");
    v(rendezvous_seconds, "rendezvous_seconds", Affects::kPlace,
      "Seconds for all workers to start.");
  }
  void check() const;
};

// Every virtual function is pure or has its body here: sanitized builds, which need the type, do
// not compile comm.cpp.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when every rank has called it. Throws Error if another rank is at a barrier with
  // another name.
  virtual void barrier(const std::string& name) = 0;

  // In place, the same bits on every rank. REQUIRES: contiguous; float32, float64, bfloat16 or
  // int64. A sum of int64 wraps around and is exact; one of bfloat16 is rounded once for each rank
  // added. The order of a sum depends on size() only.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  virtual void all_reduce_max(at::Tensor& tensor) = 0;
  // parts: one after the other, a part of sizes[r] elements for each rank r. Returns the sum of all
  // ranks' parts for this one. Each rank sends (size() - 1) / size() of the bytes, half of what
  // all_reduce_sum() sends. REQUIRES: [elements] int64, contiguous; the same sizes on every rank;
  // with continues_after_loss() it is called in a section.
  virtual at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                        const std::vector<int64_t>& sizes) = 0;

  // Fills `tensor` with that of rank `root`. REQUIRES: contiguous; any type.
  virtual void broadcast(at::Tensor& tensor, int root) = 0;

  // parts [size(), …]: fills part r with that of rank r, on every rank. REQUIRES: contiguous; any
  // type.
  virtual void all_gather(at::Tensor& parts) = 0;

  // Returns the bytes of every rank, by rank; any lengths.
  virtual std::vector<std::string> all_gather_bytes(const std::string& bytes) = 0;

  // Sums a few values, for metrics.
  virtual std::vector<double> all_reduce_sum(std::vector<double> values) = 0;

  // A Comm of the ranks that give the same `color`, in the order of their ranks here. All ranks
  // call it. REQUIRES: not continues_after_loss().
  virtual std::unique_ptr<Comm> split(int color) {
    throw Error("this Comm cannot be split (color " + std::to_string(color) + ")");
  }

  // --- lost workers ---

  // Whether the workers that are left continue without a lost one: then rank() and size() change in
  // a collective. Its result, the same on all of them, has what the lost worker gave if that one
  // was lost after all had the result: it may be of more ranks than size() now says.
  virtual bool continues_after_loss() const { return false; }
  // The number of a worker in logs, which does not change: its rank in the Comm of all workers at
  // the start.
  virtual int worker(int rank) const { return rank; }
  // Numbers of the workers that the others continued without.
  virtual std::vector<int> lost_workers() const { return {}; }
  // Runs `body`, which calls collectives, on all ranks together. If a worker is lost meanwhile, all
  // others run it again, until it ends on each of them: what it changes outside it must be set
  // again by the next run, and what may happen only once comes after it. A collective outside of a
  // section is one by itself. Without continues_after_loss(): calls `body`.
  virtual void section(const std::string& /*name*/, const std::function<void()>& body) { body(); }
  // `workers` were found to be lost without a collective. If the ranks still include one: throws
  // LostWorkerError, which begins the surrounding section again without it.
  virtual void check_lost(const std::vector<int>& workers) {
    if (!workers.empty())
      throw LostWorkerError("worker " + std::to_string(worker(workers.front())) +
                            " was lost during the rollouts; " + kResumes);
  }
  // From now on losses are survived. `is_lost`: on rank 0, whether a worker is known to be dead;
  // null: no longer. Every rank calls it between the same collectives.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that keep it move from it.
  virtual void continue_after_loss(std::function<bool(int worker)> /*is_lost*/) {}
};

// Connects to the other workers. Throws InputError if the launcher's variables are inconsistent.
std::unique_ptr<Comm> make_comm(const Launch& launch, const CommOptions& options);
std::unique_ptr<Comm> make_solo_comm();  // of one worker

// Every rank must run the same program with the same `options` (those that change results, one
// `name = value` per line). Otherwise throws InputError on every rank; it names the first rank
// that differs from rank 0, and the difference.
void handshake(Comm& comm, const std::string& version, const std::string& options);

// What every rank reads: a model, a data file.
struct Input {
  std::string name;         // for messages: the option
  std::string fingerprint;  // of its contents
};

// Every rank must list the same inputs. Otherwise throws InputError on every rank; it names the
// first rank that differs from rank 0, and the input.
void check_same_inputs(Comm& comm, const std::vector<Input>& inputs);

// Every rank must have a card of its own, or NCCL waits for ever. `card`: what no two cards share.
// Otherwise throws InputError on every rank; it names two of the ranks.
void check_different_cards(Comm& comm, const std::string& card);

}  // namespace tlt::cluster
