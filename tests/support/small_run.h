// A small run of the embedded task, for invariants of whole runs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "tests/support/program.h"

namespace tlt::tests {

// The demo's model in small (tests/data/small_model): a run of it takes a third of the time. A test
// that must meet a run in a phase, or in which workers need idle time, takes the demo's own.
inline constexpr const char* kSmallModel = "tests/data/small_model";
inline constexpr const char* kDemoModel = "model.path=models/demo";

// `tlt train` of the demo in small: a small model, few prompts and short responses, with all
// components active.
// Few sequences and token rows also shorten the measurement of costs, which most of its time is.
inline std::vector<std::string> small_run(const std::filesystem::path& folder, int steps,
                                          int workers, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"train",
                                        "recipes/demo.toml",
                                        std::string("model.path=") + kSmallModel,
                                        "trainer.default_local_dir=" + folder.string(),
                                        "trainer.total_training_steps=" + std::to_string(steps),
                                        "data.train_batch_size=4",
                                        "rollout.n=4",
                                        "rollout.max_num_seqs=8",
                                        "rollout.max_num_batched_tokens=128",
                                        "data.max_response_length=64",
                                        "trainer.val_before_train=false",
                                        "trainer.test_freq=0",
                                        "trainer.save_freq=1",
                                        "actor.ppo_max_token_len_per_gpu=400",
                                        "actor.ppo_mini_batch_size=2",
                                        "actor.use_kl_loss=true",
                                        "actor.entropy_coeff=0.001",
                                        "trainer.max_ckpt_to_keep=0"};
  if (!device_of_runs().empty()) arguments.push_back("trainer.device=" + device_of_runs());
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (workers > 1) arguments.insert(arguments.end(), {"--workers", std::to_string(workers)});
  return arguments;
}

// Runs it in scratch/name, with a log in scratch/log, and expects that it succeeds.
inline void expect_small_run(const Scratch& scratch, const std::string& name, int steps,
                             int workers, const std::vector<std::string>& more = {}) {
  EXPECT_EQ(run_program(small_run(scratch / name, steps, workers, more), scratch / "log"), 0)
      << name << ": " << read_text(scratch / "log");
}

// `tlt sft` of the demo's demonstrations, made small, with a validation and a checkpoint in every
// step.
inline std::vector<std::string> small_sft(const std::filesystem::path& folder, int steps,
                                          int workers, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"sft",
                                        std::string("model.path=") + kSmallModel,
                                        "data.train_files=[\"countdown:seed=1,size=64\"]",
                                        "data.val_files=[\"countdown:seed=7,size=12\"]",
                                        "data.train_batch_size=12",
                                        "data.max_response_length=400",
                                        "actor.ppo_max_token_len_per_gpu=400",
                                        "actor.optim.lr=1e-3",
                                        "trainer.default_local_dir=" + folder.string(),
                                        "trainer.total_training_steps=" + std::to_string(steps),
                                        "trainer.test_freq=1",
                                        "trainer.save_freq=1",
                                        "trainer.max_ckpt_to_keep=0",
                                        "trainer.threads=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (workers > 1) arguments.insert(arguments.end(), {"--workers", std::to_string(workers)});
  return arguments;
}

// The same of `tlt dpo`, on pairs of a right and a wrong trace.
inline std::vector<std::string> small_dpo(const std::filesystem::path& folder, int steps,
                                          int workers, const std::vector<std::string>& more = {}) {
  std::vector<std::string> of_dpo = {"data.train_files=[\"countdown:seed=1,size=24\"]",
                                     "data.val_files=[\"countdown:seed=7,size=6\"]",
                                     "data.train_batch_size=4", "data.max_response_length=200",
                                     "actor.optim.lr=1e-4"};
  of_dpo.insert(of_dpo.end(), more.begin(), more.end());
  std::vector<std::string> arguments = small_sft(folder, steps, workers, of_dpo);
  arguments.front() = "dpo";
  return arguments;
}

inline std::string checkpoint_folder(int step) {
  char name[32];
  std::snprintf(name, sizeof name, "checkpoints/step_%06d/", step);
  return name;
}

// The files of a checkpoint that must be equal when two runs are: weights, optimizer, loop state.
inline std::vector<std::string> checkpoint_files(int step) {
  return {checkpoint_folder(step) + "policy/model.safetensors",
          checkpoint_folder(step) + "state/optimizer.safetensors",
          checkpoint_folder(step) + "state/loop.json"};
}
// Those of a critic (algorithm.adv_estimator=gae).
inline std::vector<std::string> critic_files(int step) {
  return {checkpoint_folder(step) + "critic/model.safetensors",
          checkpoint_folder(step) + "critic/value_head.safetensors",
          checkpoint_folder(step) + "state/critic.safetensors",
          checkpoint_folder(step) + "state/critic.json"};
}
// checkpoint_files() and the step's rollouts.
inline std::vector<std::string> state_files(int step) {
  std::vector<std::string> files = checkpoint_files(step);
  char name[32];
  std::snprintf(name, sizeof name, "rollouts/%06d.jsonl", step);
  files.push_back(name);
  return files;
}

// A run's run.json without the time at which it started.
inline std::string identity_text(const std::filesystem::path& folder) {
  auto identity = nlohmann::ordered_json::parse(read_text(folder / "run.json"));
  EXPECT_EQ(identity.erase("started"), 1u);
  return identity.dump(1);
}

// For a run that trains an adapter instead of the weights: its options, and the file that must be
// equal too.
inline std::vector<std::string> with_adapter() {
  return {"model.lora_rank=3", "model.lora_alpha=12", "actor.optim.lr=1e-3"};
}
inline std::string adapter_file(int step) {
  return checkpoint_folder(step) + "adapter/adapter_model.safetensors";
}

// Dynamic sampling in which groups are left out, some are surplus, and rows are used more than
// once.
inline std::vector<std::string> with_dynamic_sampling() {
  return {"algorithm.filter_groups.enable=true", "data.gen_batch_size=3",
          "data.train_max_samples=3"};
}

// The sum of a metric over the steps of a run.
inline double sum_of_metric(const std::filesystem::path& folder, const std::string& name) {
  const std::string metrics = read_text(folder / "metrics.jsonl"), key = "\"" + name + "\":";
  double sum = 0;
  for (size_t at = metrics.find(key); at != std::string::npos; at = metrics.find(key, at + 1))
    sum += std::stod(metrics.substr(at + key.size()));
  return sum;
}

inline void expect_same_files(const std::filesystem::path& got, const std::filesystem::path& want,
                              const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::string expected = read_text(want / file);
    ASSERT_FALSE(expected.empty()) << want / file;
    EXPECT_EQ(read_text(got / file) == expected, true) << file << " differs";
  }
}

inline void expect_same_run(const std::filesystem::path& got, const std::filesystem::path& want,
                            int steps) {
  for (int step = 1; step <= steps; ++step) expect_same_files(got, want, state_files(step));
}

inline std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", value);
  return text;
}

// A run's metrics with these names, a line a step. With eight digits: the means of a step are added
// up in another order by another number of workers.
inline std::vector<std::string> metrics_of(const std::filesystem::path& folder,
                                           bool (*is_wanted)(std::string_view name)) {
  std::vector<std::string> rows;
  std::istringstream lines(read_text(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::ordered_json::parse(line);
    std::string wanted;
    for (const auto& [name, value] : row.items())
      if (is_wanted(name)) wanted += name + " " + short_number(value.get<double>()) + ", ";
    EXPECT_FALSE(wanted.empty()) << folder;
    rows.push_back(wanted);
  }
  return rows;
}

// All but those that are times and speeds.
inline std::vector<std::string> lasting_metrics(const std::filesystem::path& folder) {
  return metrics_of(folder, [](std::string_view name) {
    return !name.starts_with("timing_s/") && !name.starts_with("perf/") &&
           !name.ends_with("_second") && !name.ends_with("_seconds");
  });
}

// All checkpoints of two runs of tlt sft or tlt dpo, their final policy and their metrics.
inline void expect_same_sft(const std::filesystem::path& got, const std::filesystem::path& want,
                            int steps) {
  for (int step = 1; step <= steps; ++step) expect_same_files(got, want, checkpoint_files(step));
  expect_same_files(got, want, {"policy/model.safetensors"});
  EXPECT_EQ(lasting_metrics(got), lasting_metrics(want));
}

}  // namespace tlt::tests
