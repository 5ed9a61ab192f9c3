// RunOptions: all options of a training run, for recipes, command line, `tlt options` and
// options.toml. Names are verl's, without its actor_rollout_ref prefix.
//
// Threading  thread-compatible; constant after start.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/dataset.h"
#include "drafter/make_draft_network.h"
#include "drafter_training/draft_options.h"
#include "drafter_training/idle_options.h"
#include "environment/environment_options.h"
#include "model/tensor_parallel.h"
#include "reward/reward.h"
#include "rollout/engine_options.h"
#include "rollout/sampling_options.h"
#include "run/algorithm_options.h"
#include "run/overrides.h"
#include "speculation/speculation_options.h"
#include "train/trainer.h"

namespace tlt::run {

struct ModelOptions {
  std::string path;
  std::string dtype = "auto";
  int64_t random_seed = -1;
  int64_t lora_rank = 0;
  int64_t lora_alpha = 16;
  std::vector<std::string> target_modules = {"all-linear"};
  std::string lora_adapter_path;

  void visit(auto& v) {
    v(path, "path", Affects::kPlace,
      "Hugging Face folder of the model to start from; to resume, the same model, in any folder.");
    v(dtype, "dtype", Affects::kResults,
      "float32 or bfloat16; auto: the type of the folder's weights, and bfloat16 for float16.");
    v(random_seed, "random_seed", Affects::kResults,
      "Start from random weights with this seed; -1: from the folder's weights.");
    v(lora_rank, "lora_rank", Affects::kResults,
      "Train an adapter (LoRA) of this rank instead of the weights; 0: train the weights.");
    v(lora_alpha, "lora_alpha", Affects::kResults,
      "LoRA scaling: the adapter is multiplied by lora_alpha / lora_rank.");
    v(target_modules, "target_modules", Affects::kResults,
      "Modules with an adapter: all-linear, or names such as q_proj and v_proj.");
    v(lora_adapter_path, "lora_adapter_path", Affects::kPlace,
      "PEFT folder of an adapter to start from; it sets rank, alpha and target modules.");
  }
  bool has_adapter() const { return lora_rank > 0 || !lora_adapter_path.empty(); }
  // The configuration of a new adapter.
  train::LoraConfig lora() const {
    return {.rank = lora_rank, .alpha = static_cast<double>(lora_alpha), .targets = target_modules};
  }
  void check() const {
    TLT_CHECK_INPUT(
        !path.empty(),
        "model.path is empty; give the folder of a Hugging Face model, as model.path=Qwen2.5-0.5B");
    TLT_CHECK_INPUT(dtype == "auto" || dtype == "float32" || dtype == "bfloat16",
                    "model.dtype is '", dtype, "'; use auto, float32 or bfloat16");
    TLT_CHECK_INPUT(lora_rank >= 0, "model.lora_rank is ", lora_rank,
                    "; give 0 to train all weights, or the rank of an adapter");
    if (lora_rank > 0) lora().check("model");
  }
};

// Sampling options of validation; the others are those of training.
struct ValidationSampling {
  int64_t n = 1;
  double temperature = 1.0;
  int64_t top_k = -1;
  double top_p = 1.0;

  void visit(auto& v) {
    v(n, "n", Affects::kResults, "Responses per validation prompt.");
    v(temperature, "temperature", Affects::kResults,
      "Sampling temperature of validation; 0: greedy.");
    v(top_k, "top_k", Affects::kResults, "Top-k of validation; -1: all.");
    v(top_p, "top_p", Affects::kResults, "Top-p of validation.");
  }
};

struct RolloutOptions {
  int64_t n = 8;
  rollout::SamplingOptions sampling;  // max_new_tokens is data.max_response_length
  rollout::EngineOptions engine;
  int64_t tensor_model_parallel_size = 1;
  ValidationSampling validation;

  void visit(auto& v) {
    v(n, "n", Affects::kResults, "Responses per prompt: the size of a group.");
    v(sampling.temperature, "temperature", Affects::kResults, "Sampling temperature; 0: greedy.");
    v(sampling.top_k, "top_k", Affects::kResults,
      "Sample from the k most likely tokens only; -1: all.");
    v(sampling.top_p, "top_p", Affects::kResults,
      "Nucleus sampling: only the most likely tokens that together have this probability.");
    v(sampling.min_p, "min_p", Affects::kResults,
      "Only tokens at least this fraction as likely as the most likely one.");
    v(sampling.stop, "stop", Affects::kResults, "Stop strings.");
    v(sampling.ignore_eos, "ignore_eos", Affects::kResults,
      "The model's end-of-sequence tokens do not end a response.");
    engine.visit(v);
    v(tensor_model_parallel_size, "tensor_model_parallel_size", Affects::kResults,
      "Workers that decode and train together, each with its part of the heads, the KV cache, the "
      "feed-forward and the optimizer's state: 1, 2, 4 or 8.");
    v.group("val_kwargs", validation);
  }
  void check() const {
    TLT_CHECK_INPUT(n >= 1 && validation.n >= 1, "rollout.n is ", n, " and val_kwargs.n ",
                    validation.n, "; give at least 1");
    sampling.check();
    engine.check();
    model::check_tensor_parallel_size(tensor_model_parallel_size,
                                      "rollout.tensor_model_parallel_size");
  }
};

// The value model of algorithm.adv_estimator=gae. What is not here is the actor's: batches, packs,
// schedule, weight decay, clipping of the gradient.
struct CriticOptions {
  struct Model {
    std::string path;
    void visit(auto& v) {
      v(path, "path", Affects::kResults,
        "Hugging Face folder of the critic at the start of the run; empty: model.path. A critic of "
        "a checkpoint has its value head in it; otherwise that begins at zero.");
    }
  };
  struct Optim {
    double lr = 1e-5;
    void visit(auto& v) { v(lr, "lr", Affects::kResults, "Learning rate of the critic."); }
  };
  Model model;
  Optim optim;
  double cliprange_value = 0.5;

  void visit(auto& v) {
    v.group("model", model);
    v.group("optim", optim);
    v(cliprange_value, "cliprange_value", Affects::kResults,
      "Bound of the change of a value in one step, as in verl: the larger of the losses with and "
      "without it counts.");
  }
  void check() const;
};

// Whether trainer.logger may have this name.
bool is_logger(const std::string& name);

struct RunControlOptions {
  std::string project_name = "tlt";
  std::string experiment_name = "run";
  std::string default_local_dir;
  int64_t total_training_steps = 0;
  int64_t total_epochs = 1;
  int64_t save_freq = 10;
  int64_t test_freq = 10;
  bool val_before_train = true;
  int64_t critic_warmup = 0;
  std::string resume_mode = "auto";
  int64_t max_ckpt_to_keep = 2;
  std::vector<std::string> logger = {"console", "file", "tensorboard"};
  bool dump_rollouts = true;
  std::string device = "cpu";
  int64_t threads = 0;
  int64_t seed = 0;
  double timeout_seconds = 600;
  std::string on_worker_loss = "continue";
  bool broadcast_weights = false;

  void visit(auto& v) {
    v(project_name, "project_name", Affects::kPlace, "Name of the project, for the metrics.");
    v(experiment_name, "experiment_name", Affects::kPlace,
      "Name of the run; its folder is runs/<experiment_name>.");
    v(default_local_dir, "default_local_dir", Affects::kPlace,
      "The run's folder, if not runs/<experiment_name>.");
    v(total_training_steps, "total_training_steps", Affects::kResults,
      "Steps of the whole run; 0: by total_epochs.");
    v(total_epochs, "total_epochs", Affects::kResults,
      "Epochs over the training rows, if total_training_steps is 0.");
    v(save_freq, "save_freq", Affects::kPlace,
      "Steps between checkpoints (and one at the end); 0: none.");
    v(test_freq, "test_freq", Affects::kPlace,
      "Steps between validations (and one at the end); 0: none.");
    v(val_before_train, "val_before_train", Affects::kPlace, "Validation before the first step.");
    v(critic_warmup, "critic_warmup", Affects::kResults,
      "With a critic: the first step that trains the policy; those before it train the critic "
      "only.");
    v(resume_mode, "resume_mode", Affects::kPlace,
      "auto: resume from the run folder's last checkpoint; disable: move that run aside and start "
      "again.");
    v(max_ckpt_to_keep, "max_ckpt_to_keep", Affects::kPlace,
      "Checkpoints to keep, the newest; 0: all.");
    v(logger, "logger", Affects::kPlace,
      "Where metrics go: console, file (metrics.jsonl), tensorboard, and trackers with a Python "
      "package: wandb, mlflow, swanlab, trackio (docs/trackers.md).");
    v(dump_rollouts, "dump_rollouts", Affects::kPlace, "Write each step's responses to rollouts/.");
    v(device, "device", Affects::kPlace, "cpu; cuda is refused until a GPU has passed the tests.");
    v(threads, "threads", Affects::kSpeed, "Threads of a worker; 0: its share of the cores.");
    v(seed, "seed", Affects::kResults, "Seed of the rollouts.");
    v(timeout_seconds, "timeout_seconds", Affects::kPlace,
      "Timeout, in seconds, of a collective, including the wait for the slowest worker; a worker "
      "without a message in a tenth of it, in the rollouts, is lost, and one without progress in "
      "1.1 times as long logs the stacks of its threads and ends.");
    v(on_worker_loss, "on_worker_loss", Affects::kPlace,
      "continue: without a lost worker the others of tlt train continue, with the same results, "
      "unless they share the optimizer's state; stop: the run ends.");
    v(broadcast_weights, "broadcast_weights", Affects::kPlace,
      "Send the model's weights from rank 0 to all workers at the start; false: a worker with "
      "other weights is refused.");
  }
  void check() const;
  bool continues_after_loss() const { return on_worker_loss == "continue"; }
  // Workers send a message each second, and a busy machine may delay two.
  double lost_after_seconds() const { return std::max(3.0, timeout_seconds / 10); }
  // More than a collective may take.
  double watchdog_seconds() const { return 1.1 * timeout_seconds; }
  std::string folder() const {
    return default_local_dir.empty() ? "runs/" + experiment_name : default_local_dir;
  }
};

// How draft models are trained: in the warm-up (tlt draft) and on idle workers.
struct SpeculativeTrainOptions {
  drafter_training::DraftTrainOptions trainer;
  drafter_training::WarmupOptions warmup;
  drafter_training::IdleTrainOptions idle;

  void visit(auto& v) {
    trainer.visit(v);
    warmup.visit(v);
    idle.visit(v);
  }
  void check() const {
    trainer.check();
    warmup.check();
    idle.check();
  }
  // The draft model that training begins with.
  drafter::DraftNetworkPlan network_plan() const {
    return warmup.network_plan(static_cast<uint64_t>(trainer.seed));
  }
};

struct SpeculativeOptions : speculation::SpeculationOptions {
  SpeculativeTrainOptions train;

  void visit(auto& v) {
    SpeculationOptions::visit(v);
    v.group("train", train);
  }
  void check() const {
    SpeculationOptions::check();
    train.check();
  }
};

struct RunOptions {
  ModelOptions model;
  data::DataOptions data;
  RolloutOptions rollout;
  SpeculativeOptions speculative;
  train::TrainerOptions actor;
  CriticOptions critic;
  AlgorithmOptions algorithm;
  reward::RewardOptions reward;
  environment::EnvironmentOptions environment;
  train::DistillationOptions distillation;
  train::DpoOptions dpo;
  RunControlOptions trainer;
  std::vector<Override> overrides;  // of the run that resumes; the other members have their values

  void visit(auto& v) {
    v.group("model", model);
    v.group("data", data);
    v.group("rollout", rollout);
    v.group("speculative", speculative);
    v.group("actor", actor);
    v.group("critic", critic);
    v.group("algorithm", algorithm);
    v.group("reward", reward);
    v.group("environment", environment);
    v.group("distillation", distillation);
    v.group("dpo", dpo);
    v.group("trainer", trainer);
  }
  void check() const;

  // Responses to a prompt in a step, the one that is decoded greedily included.
  int64_t responses_per_prompt() const {
    return rollout.n + (algorithm.has_greedy_baseline() ? 1 : 0);
  }

  // Prompts whose responses are decoded together. REQUIRES: check().
  int64_t prompts_per_batch() const {
    return data.gen_batch_size > 0 ? data.gen_batch_size : data.train_batch_size;
  }

  // Whether the workers of each tensor parallel group train together, each its part of the model.
  bool trains_in_groups() const {
    return rollout.tensor_model_parallel_size > 1 && obstacle_to_group_training().empty();
  }
  // With groups: the option for which each worker trains the whole model; empty: there is none.
  std::string obstacle_to_group_training() const;

  // The critic's options for its trainer.
  train::TrainerOptions critic_options() const;
  // The trainer's options: `actor`, with the parts of other groups that concern its loss.
  train::TrainerOptions trainer_options() const {
    train::TrainerOptions options = actor;
    options.loss.rollout_correction = algorithm.rollout_correction;
    options.loss.distillation = distillation;
    options.loss.dpo = dpo;
    options.loss.loss_scale_factor = static_cast<double>(data.max_response_length);
    return options;
  }

 private:
  void check_estimator() const;
};

}  // namespace tlt::run
