// A small run of the embedded task, for laws about whole runs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/program.h"

namespace tlt::tests {

// `tlt train` of the demo, made small: prompts are few and responses short, but everything takes
// part.
inline std::vector<std::string> small_run(const std::filesystem::path& folder, int steps,
                                          int workers, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"train",
                                        "recipes/demo.toml",
                                        "trainer.default_local_dir=" + folder.string(),
                                        "trainer.total_training_steps=" + std::to_string(steps),
                                        "data.train_batch_size=4",
                                        "rollout.n=4",
                                        "data.max_response_length=64",
                                        "trainer.val_before_train=false",
                                        "trainer.test_freq=0",
                                        "trainer.save_freq=1",
                                        "actor.ppo_max_token_len_per_gpu=400",
                                        "actor.ppo_mini_batch_size=2",
                                        "actor.use_kl_loss=true",
                                        "actor.entropy_coeff=0.001",
                                        "trainer.max_ckpt_to_keep=0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (workers > 1) arguments.insert(arguments.end(), {"--workers", std::to_string(workers)});
  return arguments;
}

// The files that must be equal when two runs are: weights, optimizer, how far, rollouts.
inline std::vector<std::string> state_files(int step) {
  char name[32];
  std::snprintf(name, sizeof name, "%06d", step);
  const std::string checkpoint = "checkpoints/step_" + std::string(name) + "/";
  return {checkpoint + "policy/model.safetensors", checkpoint + "state/optimizer.safetensors",
          checkpoint + "state/loop.json", "rollouts/" + std::string(name) + ".jsonl"};
}

// Of a run that trains an adapter in place of the weights: its options, and the file that must be
// equal too.
inline std::vector<std::string> with_adapter() {
  return {"model.lora_rank=3", "model.lora_alpha=12", "actor.optim.lr=1e-3"};
}
inline std::string adapter_file(int step) {
  char name[64];
  std::snprintf(name, sizeof name, "checkpoints/step_%06d/adapter/adapter_model.safetensors", step);
  return name;
}

// Dynamic sampling in which groups are left out, some are too many, and rows are gone through more
// than once.
inline std::vector<std::string> with_dynamic_sampling() {
  return {"algorithm.filter_groups.enable=true", "data.gen_batch_size=3",
          "data.train_max_samples=5"};
}

// The sum of a metric over the steps of a run.
inline double sum_of_metric(const std::filesystem::path& folder, const std::string& name) {
  const std::string metrics = read_text(folder / "metrics.jsonl"), key = "\"" + name + "\":";
  double sum = 0;
  for (size_t at = metrics.find(key); at != std::string::npos; at = metrics.find(key, at + 1))
    sum += std::stod(metrics.substr(at + key.size()));
  return sum;
}

inline void expect_same_run(const std::filesystem::path& got, const std::filesystem::path& want,
                            int steps) {
  for (int step = 1; step <= steps; ++step)
    for (const std::string& file : state_files(step)) {
      const std::string expected = read_text(want / file);
      ASSERT_FALSE(expected.empty()) << want / file;
      EXPECT_EQ(read_text(got / file) == expected, true) << file << " differs";
    }
}

}  // namespace tlt::tests
