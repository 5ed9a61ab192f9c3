// SPDX-License-Identifier: Apache-2.0
#include "run/run_options.h"

#include <algorithm>
#include <array>

namespace tlt::run {

void RunControlOptions::check() const {
  TLT_CHECK_INPUT(!experiment_name.empty() && experiment_name.find('/') == std::string::npos,
                  "trainer.experiment_name is '", experiment_name, "'; give a name without '/'");
  TLT_CHECK_INPUT(total_training_steps >= 0 && total_epochs >= 0 && save_freq >= 0 &&
                      test_freq >= 0 && max_ckpt_to_keep >= 0,
                  "trainer.total_training_steps, total_epochs, save_freq, test_freq and "
                  "max_ckpt_to_keep must not be negative");
  TLT_CHECK_INPUT(resume_mode == "auto" || resume_mode == "disable", "trainer.resume_mode is '",
                  resume_mode, "'; use auto or disable");
  constexpr std::array<std::string_view, 3> kLoggers = {"console", "file", "tensorboard"};
  for (const std::string& name : logger)
    TLT_CHECK_INPUT(
        std::find(kLoggers.begin(), kLoggers.end(), name) != kLoggers.end(), "trainer.logger has '",
        name,
        "'; use console, file and tensorboard (a W&B run can be made from the TensorBoard files)");
  TLT_CHECK_INPUT(timeout_seconds > 0, "trainer.timeout_seconds must be positive");
  TLT_CHECK_INPUT(on_worker_loss == "continue" || on_worker_loss == "stop",
                  "trainer.on_worker_loss is '", on_worker_loss, "'; use continue or stop");
  TLT_CHECK_INPUT(heartbeat_timeout_seconds >= 3, "trainer.heartbeat_timeout_seconds is ",
                  heartbeat_timeout_seconds,
                  " and workers send a message each second; give at least 3");
  TLT_CHECK_INPUT(watchdog_timeout_seconds >= 0, "trainer.watchdog_timeout_seconds is ",
                  watchdog_timeout_seconds, "; give 0 for no watchdog, or seconds");
}

double RunControlOptions::watchdog_seconds() const {
  return watchdog_timeout_seconds == 0 ? 0
                                       : std::max(watchdog_timeout_seconds, 1.1 * timeout_seconds);
}

void RunOptions::check() const {
  model.check();
  data.check();
  rollout.check();
  speculative.check();
  algorithm.check(rollout.n);
  trainer_options().check();
  reward.check();
  trainer.check();
  TLT_CHECK_INPUT(!distillation.is_on() || (!actor.loss.use_kl_loss && !algorithm.use_kl_in_reward),
                  "distillation.teacher takes the place of the reference policy; set ",
                  actor.loss.use_kl_loss ? "actor.use_kl_loss" : "algorithm.use_kl_in_reward",
                  "=false");
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
