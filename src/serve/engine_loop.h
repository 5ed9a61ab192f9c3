// EngineLoop: the one thread that drives the engine, fed by HTTP threads between engine steps.
//
// HTTP threads append to an inbox; the engine thread takes it before each step, submits and
// cancels, runs the step, and passes new tokens to the requests' channels. So the engine needs no
// lock, and a response depends on its request alone, whatever else is decoded with it
// (rollout/engine.h).
//
// New weights wait until the requests before them are finished, and requests that arrive after them
// wait for them: every response is of one version, that of its place in the order of arrival.
//
// Owns       the engine, its speculation, the inbox, the weight version.
// Borrows    the policy model, whose weights it replaces; the stop strings.
// Threading  run(): the engine thread; all else: any thread.
//
//   EngineLoop loop(policy, options);
//   std::thread http([&] { auto channel = loop.submit(job); … loop.close(); });
//   loop.run();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/comm.h"
#include "rollout/engine.h"
#include "serve/response_channel.h"

namespace tlt::serve {

// What a request asks of the engine. Responses are counted in the order of the groups and, within a
// group, of its samples: the `choice` of a TokenDelta.
struct EngineJob {
  std::vector<rollout::Group> groups;  // prompt ids are set by the loop
  bool streams = false;                // tokens arrive as they are decoded, else at the end

  int64_t responses() const;
};

// The logprobs of prompts at temperature 1: of all their tokens but the first.
struct ScoredPrompts {
  std::vector<std::vector<float>> logprobs;
  int64_t weight_version = 0;
};

struct LoopStats {
  rollout::EngineStats engine;
  rollout::SpeculationStats speculation;
  int64_t unfinished = 0;  // responses submitted and not finished
  int64_t weight_version = 0;
};

class EngineLoop {
 public:
  struct Options {
    rollout::EngineOptions engine = {.prefix_cache = true};
    int64_t max_waiting = 1024;  // responses beyond those that run; further ones are refused
  };

  // speculation: may be null. policy and stop_string outlive the loop.
  EngineLoop(model::PolicyModel& policy, const Options& options,
             const rollout::StopString* stop_string,
             std::unique_ptr<rollout::Speculation> speculation);

  // Decodes until close() was called and nothing is unfinished. An error of the engine fails all
  // requests and is thrown.
  void run();

  // ApiError: no room (429), or closed (503). The engine's refusal arrives through the channel.
  std::shared_ptr<ResponseChannel> submit(EngineJob job);
  // Ends what is unfinished of the request with this channel; without effect when nothing is.
  void cancel(const std::shared_ptr<ResponseChannel>& channel);
  // Replaces the weights by those of a folder; returns the new version once they are in use.
  // InputError: the folder does not fit; the weights are unchanged.
  int64_t update_weights(const std::string& folder);
  // Runs `job` on the engine thread while no sequence is unfinished; requests that arrive meanwhile
  // wait. True: it has changed the weights. Returns the version of the weights afterwards; throws
  // what the job throws.
  int64_t run_while_idle(std::function<bool()> job);

  // Computes logprobs of prompts while no sequence is unfinished, as above, in the trainer's packs:
  // they have the bits of training. Meanwhile each prompt counts as a response. ApiError: as of
  // submit().
  ScoredPrompts score(const std::vector<std::vector<int32_t>>& prompts);

  // From now on submit() refuses, and run() returns when everything is finished. `cancels`: no client
  // is left, so what is unfinished ends now.
  void close(bool cancels = false);

  LoopStats stats() const;
  int64_t max_responses() const { return options_.engine.max_running + options_.max_waiting; }
  // Throws when a page is still held. REQUIRES: run() has returned.
  void check_idle_invariants() const { engine_.check_idle_invariants(); }

 private:
  struct Submission {
    EngineJob job;
    std::shared_ptr<ResponseChannel> channel;
    int64_t after_updates = 0;  // the number of updates before it, since construction
  };
  struct Update {
    std::function<bool()> job;  // true: the weights have changed
    std::promise<int64_t> version;
  };
  // A group in the engine.
  struct Active {
    std::shared_ptr<ResponseChannel> channel;
    int64_t first_choice = 0;
    bool streams = false;
    std::vector<size_t> sent;  // tokens passed on, of each sample
    int64_t unfinished = 0;
  };

  void decode();
  void take_inbox();
  uint32_t free_prompt_id(const std::vector<int32_t>& prompt) const;
  void start(Submission& submission);
  void stop(const std::shared_ptr<ResponseChannel>& channel);
  void apply_update();
  void deliver_running();
  void deliver_finished();
  void count_finished(int64_t responses);
  void publish();
  // ApiError: no room, or closed. REQUIRES: the lock.
  void admit(int64_t responses);
  void fail_all(const std::exception_ptr& error);

  model::PolicyModel& policy_;
  const Options options_;
  const std::unique_ptr<rollout::Speculation> speculation_;  // or null
  rollout::Engine engine_;
  const std::unique_ptr<cluster::Comm> alone_;  // of size 1

  // Engine thread.
  std::list<Submission> starting_;               // taken from the inbox, not in the engine
  std::unordered_map<uint32_t, Active> active_;  // by the engine's prompt id

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::list<Submission> inbox_;
  std::vector<std::shared_ptr<ResponseChannel>> cancelled_;
  std::list<Update> updates_;
  int64_t begun_updates_ = 0;  // taken from updates_
  bool is_closed_ = false, cancels_all_ = false;
  LoopStats stats_;
};

}  // namespace tlt::serve
