// TinkerApi: the addresses of the Tinker API (docs/tinker.md), so that its official client trains
// the server's model.
//
// A request that takes time is checked, put into the work queue, and answered with the id of a
// future, for which the client polls. Jobs of the training client run on the engine thread while
// the engine is idle; those of samplers are submitted to the engine, after the policy has their
// weights.
//
// Owns       sessions, the training client, samplers, futures, the work queue, the trained policy.
// Borrows    the engine loop, the policy.
// Not here   gradients and weights (trained_policy.h); HTTP (serve/http_server.h).
// Threading  any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/engine_loop.h"
#include "serve/request_fields.h"
#include "serve/route.h"
#include "tinker/future.h"
#include "tinker/sample_request.h"
#include "tinker/train_request.h"
#include "tinker/trained_policy.h"
#include "tinker/work_queue.h"

namespace tlt::tinker {

struct TinkerOptions {
  std::string model_name;    // as in /v1/models
  std::string model_folder;  // tokenizer and base of adapters
  std::string save_folder;
  double lora_alpha = 16;
  uint64_t seed = 1;  // of samples and adapters whose request has none
  train::StepwiseTrainer::Options trainer;
  int64_t max_body_bytes = int64_t{4} << 20;
  int64_t max_connections = 256;
};

class TinkerApi final : public serve::Extension {
 public:
  TinkerApi(TinkerOptions options, model::PolicyModel& policy, serve::EngineLoop& loop);
  ~TinkerApi() override { close(); }

  std::vector<serve::Route> routes() override;
  void stop_waiting() override { stops_ = true; }
  void close() override;

 private:
  using Json = nlohmann::ordered_json;
  using Fields = serve::RequestFields;

  struct Session {
    Stopwatch unseen = Stopwatch();
  };
  struct Training {
    std::string id, session;
    std::optional<train::LoraConfig> adapter;
  };
  struct Sampler {
    std::string session = {}, path = {};  // path: tinker://…, empty: none
    std::string folder = {};              // of saved weights that are not loaded yet; empty: none
    Weights weights = nullptr;            // null: the base
    uint64_t number = 0;                  // sampling_session_seq_id
    bool is_dropped = false;              // its weights are not kept any longer
  };

  // Answers at once.
  serve::Reply capabilities() const;
  serve::Reply client_config() const;
  serve::Reply create_session(Fields fields);
  serve::Reply heartbeat(Fields fields);
  serve::Reply finish_session(const std::string& path);
  serve::Reply get_info(Fields fields);
  serve::Reply weights_info(Fields fields);
  serve::Reply create_sampling_session(Fields fields);
  serve::Reply describe_sampler(const std::string& path);
  serve::Reply retrieve_future(Fields fields);

  // Answer with a future.
  serve::Reply create_model(Fields fields);
  serve::Reply unload_model(Fields fields);
  serve::Reply forward_backward(const std::string& body);
  serve::Reply optim_step(Fields fields);
  serve::Reply save_weights(Fields fields);
  serve::Reply save_for_sampler(Fields fields);
  serve::Reply load_weights(Fields fields);
  serve::Reply load_new_model(Fields fields);
  serve::Reply sample(const std::string& body);

  using Work = std::function<serve::Reply()>;  // engine thread; InputError blames the user
  // A job that sets the future to what `work` returns or throws.
  Job job_of(const std::shared_ptr<Future>& future, Work work, size_t bytes = 0);
  // Of the training client `model`, in the order of the sequence ids (0: the next one).
  serve::Reply in_order(const std::string& model, int64_t sequence_id, Work work, size_t bytes = 0);
  void run_while_idle(const std::function<void()>& work);
  void run_sample(const std::shared_ptr<Future>& future,
                  const std::shared_ptr<SampleRequest>& request);
  void show(const std::string& sampler);
  std::vector<float> score_prompt(const SampleRequest& request);

  std::string begin_training(const std::string& session, int64_t number,
                             const std::optional<train::LoraConfig>& adapter);
  bool forget_training(const std::string& id);
  void end_training(const std::string& id);
  serve::Reply start_training(const std::string& session, const std::string& model, Work work);
  void forget_silent_sessions(double seconds);
  void touch(const std::string& session);
  Training training(const std::string& id);
  std::string add_sampler(const std::string& session, uint64_t number, Sampler sampler);
  void drop_old_weights();
  train::LoraConfig adapter_of(Fields fields) const;
  std::string folder_of(const std::string& path) const;

  const TinkerOptions options_;
  serve::EngineLoop& loop_;
  const TokenLimits limits_;
  const std::string prefix_;  // random: ids of another start differ
  TrainedPolicy policy_;      // engine thread while idle; the queue's thread between its jobs
  FutureStore futures_;
  std::atomic<bool> stops_ = false;
  std::atomic<int64_t> waiting_ = 0;  // requests that wait for a future

  std::mutex mutex_;  // guards all below
  std::map<std::string, Session> sessions_;
  int64_t created_sessions_ = 0;
  std::optional<Training> training_;
  std::map<std::string, Sampler> samplers_;
  std::vector<std::string> sampler_order_;  // oldest first

  WorkQueue queue_;  // last: its jobs use the rest
};

}  // namespace tlt::tinker
