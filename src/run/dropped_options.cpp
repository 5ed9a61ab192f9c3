// SPDX-License-Identifier: Apache-2.0
#include "run/dropped_options.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlt::run {
namespace {

constexpr std::string_view kGenerateOnly =
    "the responses could not be trained on otherwise; tlt generate has --accept-threshold-single "
    "and --accept-threshold-acc";
constexpr std::string_view kOnlyLr = "set speculative.train.optim.lr";
// What took the place of the three options that described one strategy.
constexpr std::string_view kFirstStrategy =
    "speculative.eagle.mab_configs: 8_4_48 has depth 8, width 4 and 48 tokens to verify";

constexpr std::string_view kMemory = "speculative.memory_bytes, of which it is a part";

constexpr DroppedOption kDropped[] = {
    {"rollout.prefill_chunk", "512", "set rollout.max_num_batched_tokens"},
    {"speculative.accept_threshold_single", "1.0", kGenerateOnly},
    {"speculative.accept_threshold_acc", "1.0", kGenerateOnly},
    {"speculative.eagle.window", "128", ""},
    {"speculative.eagle.mab_reward", "\"paper\"", ""},
    {"speculative.eagle.mab_window", "300", ""},
    {"speculative.eagle.mab_epsilon", "0.1", ""},
    {"speculative.eagle.common_random_numbers", "true", ""},
    {"speculative.eagle.adaptive_configs", R"(["1_1_2", "3_1_4", "6_1_7", "10_8_64"])",
     "set speculative.eagle.mab_configs"},
    {"speculative.suffix.min_match", "1", ""},
    {"speculative.suffix.min_probability", "0.05", ""},
    {"speculative.suffix.history", "16", "set speculative.memory_bytes"},
    {"speculative.ngram.branch_length", "18", ""},
    {"speculative.ngram.max_window", "12", ""},
    {"speculative.ngram.min_window", "1", ""},
    {"speculative.ngram.max_breadth", "10", ""},
    {"speculative.ngram.min_breadth", "1", ""},
    {"speculative.ngram.mode", "\"bfs\"", ""},
    {"speculative.ngram.nodes", "10000000", ""},
    {"speculative.train.min_workers_for_training", "1", ""},
    {"speculative.train.hidden_weight", "1.0", "set speculative.train.logits_weight"},
    {"speculative.train.noise", "0.0", ""},
    {"speculative.train.pass_decay", "0.8", ""},
    {"speculative.train.loss_positions", "\"response\"", ""},
    {"speculative.train.seed", "0", ""},
    {"speculative.train.optim.betas", "[0.9, 0.95]", kOnlyLr},
    {"speculative.train.optim.eps", "1e-08", kOnlyLr},
    {"speculative.train.optim.weight_decay", "0.0", kOnlyLr},
    {"speculative.train.optim.clip_grad", "0.5", kOnlyLr},
    {"speculative.train.optim.lr_warmup_steps", "-1", kOnlyLr},
    {"speculative.train.optim.lr_warmup_steps_ratio", "0.03", kOnlyLr},
    {"speculative.train.optim.min_lr_ratio", "0.03", kOnlyLr},
    {"speculative.train.val_steps", "8", ""},
    {"speculative.train.window", "512", "set speculative.train.step_tokens"},
    {"actor.optim.eps", "1e-08", ""},
    {"algorithm.kl_ctrl.type", "\"fixed\"", "set algorithm.kl_ctrl.kl_coef"},
    {"speculative.gate", "\"learned\"",
     "speculative.eagle.tune_algorithm: BEG has the paper's gate, ADAPTIVE learns when to "
     "speculate",
     true},
    {"speculative.eagle.kv_memory_bytes", "268435456", kMemory, true},
    {"speculative.eagle.prompt_memory_bytes", "268435456", kMemory, true},
    {"speculative.suffix.memory_bytes", "1073741824", kMemory, true},
    {"speculative.train.buffer_bytes", "536870912", kMemory, true},
    {"speculative.train.trigger", "\"drift\"",
     "speculative.train.training_interval_steps: above 0 for interval, 0 for drift", true},
    {"speculative.train.compare_frozen", "false",
     "speculative.train.frozen_after_steps: 10 for true, -1 for false", true},
    {"speculative.train.max_token_len_per_gpu", "8192", ""},
    {"speculative.train.slice_milliseconds", "50.0", ""},
    {"speculative.train.publish_margin", "0.02", ""},
    {"speculative.train.val_share", "0.05", ""},
    {"data.val_batch_size", "0", ""},
    {"data.tools_key", "\"tools\"", ""},
    {"data.messages_key", "\"messages\"", ""},
    {"actor.max_skipped_steps", "5", ""},
    {"actor.loss_scale_factor", "0.0", "data.max_response_length", true},
    {"algorithm.rollout_correction.bypass_mode", "false",
     "actor.policy_loss.loss_mode: reinforce for bypass_mode=true with loss_type=reinforce", true},
    {"algorithm.rollout_correction.loss_type", "\"ppo_clip\"",
     "actor.policy_loss.loss_mode: reinforce for bypass_mode=true with loss_type=reinforce", true},
    {"reward.gsm8k_method", "\"strict\"", "reward.functions: gsm8k_flexible for flexible", true},
    {"reward.math_method", "\"flexible\"", "reward.functions: math_strict for strict", true},
    {"reward.code.partial", "false", "reward.functions: code_partial for true", true},
    {"reward.code.test_seconds", "4.0", "reward.timeout_seconds: a test has four tenths of it",
     true},
    {"reward.overlong_buffer.penalty_factor", "1.0", "set the weight of length in reward.weights"},
    {"reward.failed_score", "0.0", ""},
    {"trainer.heartbeat_timeout_seconds", "60.0", "trainer.timeout_seconds: a tenth of it", true},
    {"trainer.watchdog_timeout_seconds", "600.0", "trainer.timeout_seconds: 1.1 times as long",
     true},
    {"trainer.replay_responses", "8", ""},
    {"speculative.eagle.spec_steps", "8", kFirstStrategy, true},
    {"speculative.eagle.spec_topk", "4", kFirstStrategy, true},
    {"speculative.eagle.spec_verify_tokens", "48", kFirstStrategy, true},
    {"speculative.eagle.mab_bs_threshold", "[1, 2, 5, 21]", "set speculative.eagle.mab_configs"},
    {"speculative.train.optim.lr_scheduler_type", "\"cosine\"", kOnlyLr},
    {"speculative.train.hidden_states_bytes", "17179869184",
     "data.train_max_samples: the folder has the states of all prompts", true},
    {"reward.code.memory_megabytes", "512", ""},
    {"reward.countdown_format_score", "0.1", ""},
    {"reward.repetition.ngram_size", "3", ""},
    {"reward.repetition.max_penalty", "1.0", "set the weight of repetition in reward.weights"},
};

const DroppedOption* find(std::string_view name) {
  const auto* const found = std::ranges::find(kDropped, name, &DroppedOption::name);
  return found == std::end(kDropped) ? nullptr : found;
}

}  // namespace

std::span<const DroppedOption> dropped_options() { return kDropped; }

std::string dropped_option(std::string_view name) {
  const DroppedOption* option = find(name);
  if (!option) return "";
  if (option->is_merged) return fmt::format("replaced by {}", option->instead);
  return fmt::format("it is always {} now{}{}", option->value, option->instead.empty() ? "" : "; ",
                     option->instead);
}

bool is_dropped_value(std::string_view name, std::string_view value) {
  const DroppedOption* option = find(name);
  return option && option->value == value;
}

std::string without_dropped_options(std::string_view digest) {
  std::string kept;
  while (!digest.empty()) {
    const size_t end = std::min(digest.find('\n'), digest.size() - 1) + 1;
    const std::string_view line = digest.substr(0, end);
    digest.remove_prefix(end);
    const size_t equals = line.find(" = "), length = line.find('\n');
    if (equals == line.npos ||
        !is_dropped_value(line.substr(0, equals), line.substr(equals + 3, length - equals - 3)))
      kept += line;
  }
  return kept;
}

}  // namespace tlt::run
