// SPDX-License-Identifier: Apache-2.0
#include "run/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/sentence.h"
#include "tracker/trackers.h"

namespace tlt::run {
namespace {

// The logger with the most similar name; empty: none is similar.
std::string nearest_logger(const std::string& name, const std::vector<std::string>& loggers) {
  constexpr size_t kMostTypingErrors = 2;
  const auto distance = [&](const std::string& logger) { return edit_distance(name, logger); };
  const auto nearest = std::ranges::min_element(loggers, {}, distance);
  return distance(*nearest) <= kMostTypingErrors ? *nearest : "";
}

std::vector<std::string> all_loggers() {
  std::vector<std::string> loggers = {"console", "file", "tensorboard"};
  loggers.insert(loggers.end(), tracker::kTrackers.begin(), tracker::kTrackers.end());
  return loggers;
}

void check_logger(const std::string& name) {
  if (is_logger(name)) return;
  const std::vector<std::string> loggers = all_loggers();
  const std::string nearest = nearest_logger(name, loggers);
  throw InputError(fmt::format("trainer.logger has '{}'; {}use {}", name,
                               nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
                               fmt::join(loggers, ", ")));
}

}  // namespace

bool is_logger(const std::string& name) {
  const std::vector<std::string> loggers = all_loggers();
  return std::ranges::find(loggers, name) != loggers.end();
}

void CriticOptions::check() const {
  TLT_CHECK_INPUT(optim.lr >= 0 && optim.lr <= 1, "critic.optim.lr is ", optim.lr,
                  "; use a number from 0 to 1");
  TLT_CHECK_INPUT(std::isfinite(cliprange_value) && cliprange_value > 0,
                  "critic.cliprange_value is ", cliprange_value, "; use a number above 0");
}

void RunControlOptions::check() const {
  TLT_CHECK_INPUT(!experiment_name.empty() && experiment_name.find('/') == std::string::npos,
                  "trainer.experiment_name is '", experiment_name, "'; give a name without '/'");
  TLT_CHECK_INPUT(total_training_steps >= 0 && total_epochs >= 0 && save_freq >= 0 &&
                      test_freq >= 0 && max_ckpt_to_keep >= 0 && critic_warmup >= 0,
                  "trainer.total_training_steps, total_epochs, save_freq, test_freq, "
                  "critic_warmup and max_ckpt_to_keep must not be negative");
  TLT_CHECK_INPUT(resume_mode == "auto" || resume_mode == "disable", "trainer.resume_mode is '",
                  resume_mode, "'; use auto or disable");
  for (const std::string& name : logger) check_logger(name);
  TLT_CHECK_INPUT(timeout_seconds > 0, "trainer.timeout_seconds must be positive");
  TLT_CHECK_INPUT(on_worker_loss == "continue" || on_worker_loss == "stop",
                  "trainer.on_worker_loss is '", on_worker_loss, "'; use continue or stop");
}

train::TrainerOptions RunOptions::critic_options() const {
  train::TrainerOptions options = actor;
  options.optim.lr = critic.optim.lr;
  options.loss = {};
  options.loss.cliprange_value = critic.cliprange_value;
  options.loss.loss_agg_mode = actor.loss.loss_agg_mode;
  options.loss.loss_scale_factor = static_cast<double>(data.max_response_length);
  return options;
}

// What the estimator needs of other groups of options, and which of them it makes useless.
void RunOptions::check_estimator() const {
  TLT_CHECK_INPUT(!algorithm.has_greedy_baseline() || rollout.sampling.temperature > 0,
                  "algorithm.adv_estimator=remax compares sampled responses with a greedy one, and "
                  "rollout.temperature=0 makes all of them greedy; give a temperature above 0");
  if (algorithm.has_critic()) {
    TLT_CHECK_INPUT(distillation.use_task_rewards,
                    "distillation.use_task_rewards=false leaves no reward for the critic of "
                    "algorithm.adv_estimator=gae; set algorithm.adv_estimator=grpo");
    return;
  }
  TLT_CHECK_INPUT(critic.model.path.empty() && trainer.critic_warmup == 0,
                  critic.model.path.empty() ? "trainer.critic_warmup" : "critic.model.path",
                  " has no effect with algorithm.adv_estimator=", algorithm.adv_estimator,
                  ", which has no critic; leave it out, or set algorithm.adv_estimator=gae");
}

std::string RunOptions::obstacle_to_group_training() const {
  if (rollout.tensor_model_parallel_size == 1) return "";
  if (model.has_adapter()) return "an adapter (model.lora_rank or model.lora_adapter_path)";
  if (actor.use_distributed_optimizer) return "actor.use_distributed_optimizer";
  if (actor.optim.is_muon()) return "actor.optim.optimizer=Muon";
  if (algorithm.has_critic()) return "algorithm.adv_estimator=gae";
  if (distillation.is_exact()) return "distillation.loss_mode=" + distillation.loss_mode;
  return "";
}

void RunOptions::check() const {
  model.check();
  data.check();
  rollout.check();
  speculative.check();
  algorithm.check(rollout.n);
  critic.check();
  trainer_options().check();
  reward.check();
  environment.check();
  trainer.check();
  TLT_CHECK_INPUT(!model.has_adapter() || !actor.optim.is_muon(),
                  "actor.optim.optimizer=Muon trains the matrices of the layers, and an adapter's "
                  "factors are none of them; set actor.optim.optimizer=AdamW, or train the weights "
                  "(model.lora_rank=0)");
  check_estimator();
  TLT_CHECK_INPUT(!distillation.is_on() || (!actor.loss.use_kl_loss && !algorithm.use_kl_in_reward),
                  "distillation.teacher takes the place of the reference policy; set ",
                  actor.loss.use_kl_loss ? "actor.use_kl_loss" : "algorithm.use_kl_in_reward",
                  "=false");
  TLT_CHECK_INPUT(!environment.is_on() || speculative.train.idle.consolidate_below <= 0,
                  "speculative.train.consolidate_below is ",
                  speculative.train.idle.consolidate_below,
                  ", and with environment.command unfinished episodes do not migrate: the program "
                  "that has their state stays with its worker; leave it out");
  TLT_CHECK_INPUT(!distillation.is_remote() || rollout.sampling.rule().logprob_temperature() == 1,
                  "distillation.teacher is a server, whose logprobs are of temperature 1, and ",
                  "rollout.temperature is ", rollout.sampling.temperature,
                  "; set rollout.temperature=1, or give the teacher's folder");
  TLT_CHECK_INPUT(rollout.engine.max_running > 0 && data.train_batch_size > 0,
                  "data.train_batch_size is ", data.train_batch_size, "; give at least 1");
  TLT_CHECK_INPUT(actor.ppo_mini_batch_size <= data.train_batch_size,
                  "actor.ppo_mini_batch_size is ", actor.ppo_mini_batch_size,
                  ", more than data.train_batch_size ", data.train_batch_size);
  TLT_CHECK_INPUT(algorithm.filter_groups.enable || data.gen_batch_size == 0 ||
                      data.gen_batch_size == data.train_batch_size,
                  "data.gen_batch_size is ", data.gen_batch_size, " and data.train_batch_size ",
                  data.train_batch_size,
                  "; they differ only with algorithm.filter_groups.enable=true");
}

}  // namespace tlt::run
