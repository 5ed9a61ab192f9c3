// SPDX-License-Identifier: Apache-2.0
#include "cli/verl_import.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "base/sentence.h"
#include "run/dropped_options.h"

namespace tlt::cli {
namespace {

using Json = nlohmann::json;

// Names of verl (without actor_rollout_ref) with another name in tlt.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"actor.grad_clip", "actor.optim.clip_grad"},
    {"actor.optim.warmup_style", "actor.optim.lr_scheduler_type"},
    {"model.enable_gradient_checkpointing", "actor.enable_gradient_checkpointing"},
    {"actor.megatron.use_distributed_optimizer", "actor.use_distributed_optimizer"},
    {"rollout.dtype", "model.dtype"},
    {"trainer.max_actor_ckpt_to_keep", "trainer.max_ckpt_to_keep"},
    {"algorithm.dynamic_filter.enable", "algorithm.filter_groups.enable"},
    {"algorithm.dynamic_filter.metric", "algorithm.filter_groups.metric"},
    {"algorithm.dynamic_filter.max_num_gen_batches", "algorithm.filter_groups.max_num_gen_batches"},
    {"algorithm.rollout_is", "algorithm.rollout_correction.rollout_is"},
    {"algorithm.rollout_is_threshold", "algorithm.rollout_correction.rollout_is_threshold"},
    {"reward_model.overlong_buffer.len", "reward.overlong_buffer.len"},
    {"reward_model.reward_kwargs.overlong_buffer_cfg.len", "reward.overlong_buffer.len"},
    {"speculative.spec_strategy", "speculative.drafters"},
};

// Why a key, or every key with this prefix, has no option. The first match counts.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"critic", "the critic is trained with the actor's options, but for its learning rate"},
    {"algorithm.pf_ppo", "not supported"},
    {"algorithm.rollout_correction.rollout_rs",
     "not needed: the rollout's logprobs are the trainer's"},
    {"algorithm.rollout_correction.rollout_is_batch_normalize", "weights are not normalized"},
    {"actor.clip_ratio", "set actor.clip_ratio_low and actor.clip_ratio_high"},
    {"actor.tis_imp_ratio_cap",
     "the rollout's logprobs are the trainer's, so these weights are 1; for later mini-batches see "
     "algorithm.rollout_correction"},
    {"actor.ppo_micro_batch_size",
     "not needed: batches are packed to actor.ppo_max_token_len_per_gpu tokens"},
    {"actor.use_dynamic_bsz",
     "always on: batches are packed to actor.ppo_max_token_len_per_gpu tokens"},
    {"actor.use_remove_padding", "always on: there is no padding"},
    {"model.use_remove_padding", "always on: there is no padding"},
    {"rollout.log_prob_", "not needed: the rollout's logprobs are the trainer's"},
    {"ref.log_prob_", "the reference shares actor.ppo_max_token_len_per_gpu"},
    {"rollout.calculate_log_probs", "always on: the rollout's logprobs are the trainer's"},
    {"rollout.gpu_memory_utilization", "give bytes: rollout.kv_memory_bytes"},
    {"trainer.n_gpus_per_node", "give the number of workers: --workers, torchrun, mpirun or srun"},
    {"trainer.nnodes", "give the number of workers: --workers, torchrun, mpirun or srun"},
    {"rollout.do_sample", "greedy decoding is rollout.temperature=0"},
    {"rollout.val_kwargs.do_sample", "greedy decoding is rollout.val_kwargs.temperature=0"},
    {"rollout.prompt_length", "use data.max_prompt_length"},
    {"rollout.response_length", "use data.max_response_length"},
    {"rollout.name", "the engine is tlt's own"},
    {"rollout.engine_kwargs", "the engine is tlt's own"},
    {"rollout.multi_turn", "several turns are those of a program: environment.command"},
    {"rollout.agent", "several turns are those of a program: environment.command"},
    {"actor.rollout_n", "use rollout.n"},
    {"ref.rollout_n", "use rollout.n"},
    {"actor.optim.optimizer_impl", "the optimizers are tlt's own: actor.optim.optimizer"},
    {"actor.checkpoint", "a checkpoint always has model, optimizer and state"},
    {"actor.strategy", "weights are not sharded: each worker has its own"},
    {"actor.fsdp_config",
     "weights are not sharded: each worker has its own; actor.use_distributed_optimizer shards the "
     "optimizer's state"},
    {"ref.strategy", "weights are not sharded: each worker has its own"},
    {"ref.fsdp_config", "weights are not sharded: each worker has its own"},
    {"model.lora.", "Megatron's adapters; give model.lora_rank, lora_alpha and target_modules"},
    {"model.exclude_modules", "not supported; list the modules to adapt in model.target_modules"},
    {"custom_reward_function.path",
     "set reward.functions=[\"command\"] and reward.command=\"python3 tools/verl_reward.py FILE\""},
    {"custom_reward_function", "used only with a custom_reward_function.path"},
    {"reward_model.reward_kwargs.max_resp_len", "use data.max_response_length"},
    {"reward_model.reward_manager", "there is one manager; for verl's dapo see the reward length"},
    {"reward_model", "reward models are not supported; see reward.functions"},
    {"trainer.default_hdfs_dir", "the run folder is local: trainer.default_local_dir"},
    {"trainer.rollout_data_dir", "rollouts are written to the run folder: trainer.dump_rollouts"},
    {"speculative.train.batch_size_per_gpu", "another size: speculative.train.step_tokens"},
    {"speculative.train.optim.warmup_style",
     "it is cosine in tlt draft, and constant on idle workers"},
    {"ray", "there is no Ray"},
    {"trainer.ray", "there is no Ray"},
    {"hydra", "there is no Hydra"},
    {"defaults",
     "the files it names are not read; give the whole configuration, as verl prints it with --cfg "
     "job"},
};

std::string_view reason_for(std::string_view key) {
  for (const auto& [prefix, reason] : kReasons)
    if (key.starts_with(prefix)) return reason;
  return key.find("profile") != std::string::npos ? "there is no profiler; see timeline.json" : "";
}

std::string short_name(std::string_view key) { return std::string(without_verl_prefix(key)); }

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ---- values

bool try_read(const Json& value, bool& result) {
  return value.is_boolean() && (result = value.get<bool>(), true);
}

bool try_read(const Json& value, int64_t& result) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!(number > -9e15 && number < 9e15) ||
      number != static_cast<double>(static_cast<int64_t>(number)))
    return false;
  result = value.is_number_integer() ? value.get<int64_t>() : static_cast<int64_t>(number);
  return true;
}

bool try_read(const Json& value, double& result) {
  return value.is_number() && (result = value.get<double>(), true);
}

bool try_read(const Json& value, std::string& result) {
  if (value.is_object() || value.is_array()) return false;
  result = text_of(value);
  return true;
}

template <class T>
bool try_read(const Json& value, std::vector<T>& result) {
  std::vector<T> items;
  for (const Json& item : value.is_array() ? value : Json::array({value}))
    if (!try_read(item, items.emplace_back())) return false;
  result = std::move(items);
  return true;
}

// Expands "~/", which a recipe does not have.
Json without_tilde(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(without_tilde(item));
    return list;
  }
  const char* home = std::getenv("HOME");
  if (!value.is_string() || home == nullptr) return value;
  const auto text = value.get<std::string>();
  return text.starts_with("~/") ? home + text.substr(1) : text;
}

// Replaces unsupported loggers by file and tensorboard.
Json known_loggers(const Json& value) {
  const Json asked = value.is_array() ? value : Json::array({value});
  Json loggers = Json::array();
  for (const Json& logger : asked)
    if (run::is_logger(text_of(logger))) loggers.push_back(logger);
  if (loggers.size() == asked.size()) return loggers;
  for (const char* logger : {"file", "tensorboard"})
    if (std::ranges::find(loggers, logger) == loggers.end()) loggers.push_back(logger);
  return loggers;
}

constexpr std::string_view kBypassMode = "algorithm.rollout_correction.bypass_mode";
// FastRL's first strategy (depth, width, tokens to verify); its mab_configs has the further ones.
constexpr std::array<std::string_view, 3> kFirstStrategy = {"speculative.eagle.spec_steps",
                                                            "speculative.eagle.spec_topk",
                                                            "speculative.eagle.spec_verify_tokens"};
constexpr const char* kStrategies = "speculative.eagle.mab_configs";
constexpr std::string_view kCustomReward = "custom_reward_function.";

// The value at "a.b" of an object, created if missing.
Json& place_of(std::string_view key, Json& object) {
  const size_t dot = key.find('.');
  Json& place = object[std::string(key.substr(0, dot))];
  return dot == key.npos ? place : place_of(key.substr(dot + 1), place);
}

// Converts verl's value of an option to tlt's.
Json converted(std::string_view name, const Json& value) {
  const bool is_negative = value.is_number() && value.get<double>() < 0;
  if ((name == "trainer.save_freq" || name == "trainer.test_freq") && is_negative) return 0;
  if (name == "trainer.logger") return known_loggers(value);
  if (name == "model.dtype" && (value == "float16" || value == "half")) return "bfloat16";
  if (name == "data.train_files" || name == "data.val_files" || name == "model.path" ||
      name == "model.lora_adapter_path" || name == "trainer.default_local_dir" ||
      name == "speculative.eagle.spec_model_path" || name == "critic.model.path")
    return without_tilde(value);
  return value;
}

// As to_text() of an option writes it: a list with blanks.
std::string option_text(const Json& value) {
  if (!value.is_array()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string list;
  for (const Json& item : value) list += (list.empty() ? "" : ", ") + option_text(item);
  return "[" + list + "]";
}

// ---- the import

class Importer {
 public:
  explicit Importer(run::RunOptions& options)
      : options_(options), refs_(collect_options(options)) {}

  VerlImport run(const std::vector<VerlEntry>& entries) {
    for (const VerlEntry& entry : entries)
      if (!is_nothing(entry)) keys_.insert(short_name(entry.key));
    collect_custom_reward(entries);
    for (const VerlEntry& entry : entries)
      has_bypass_ |= short_name(entry.key) == kBypassMode && entry.value == true;
    std::vector<const VerlEntry*> refused;
    for (const VerlEntry& entry : entries)
      if (!try_take(entry, /*is_last_time=*/false)) refused.push_back(&entry);
    for (const VerlEntry* entry : refused) try_take(*entry, /*is_last_time=*/true);
    if (has_overlong_buffer_) add_overlong_buffer();
    if (has_first_strategy_) add_first_strategy();
    for (const OptionRef& ref : refs_)
      if (set_.contains(ref.name)) result_.options.push_back(ref.name);
    for (const VerlEntry& entry : entries)
      if (const auto note = notes_.find(&entry); note != notes_.end())
        result_.notes.push_back(entry.place + ": " + entry.key + " = " + text_of(entry.value) +
                                ": " + note->second);
    return std::move(result_);
  }

 private:
  static bool is_nothing(const VerlEntry& entry) {
    return entry.value.is_null() || entry.key.ends_with("_target_") ||
           (entry.value.is_structured() && entry.value.empty());
  }

  // False: the value is not valid together with the options set so far.
  bool try_take(const VerlEntry& entry, bool is_last_time) {
    if (is_nothing(entry)) return true;
    const std::string key = short_name(entry.key);
    if (entry.is_open || entry.value == "???") {
      leave_out(entry, entry.is_open ? "the value of ${…} is not in the file" : "no value");
      return true;
    }
    if (try_special(entry, key)) return true;
    const OptionRef* ref = find(name_of(key));
    if (ref == nullptr) {
      std::string reason(reason_for(key));
      if (run::is_dropped_value(key, option_text(entry.value))) return true;
      if (reason.empty()) reason = run::dropped_option(key);
      leave_out(entry, reason.empty() ? "no such option" : reason);
      return true;
    }
    const std::string problem = set(*ref, converted(ref->name, entry.value));
    if (problem.empty()) {
      remark(entry, *ref);
      return true;
    }
    if (is_last_time) leave_out(entry, problem);
    return false;
  }

  // Keys that do not map to one option.
  bool try_special(const VerlEntry& entry, const std::string& key) {
    if (key == "actor.clip_ratio") {
      for (const char* name : {"actor.clip_ratio_low", "actor.clip_ratio_high"})
        if (!keys_.contains(name)) set(*find(name), entry.value);
      return true;
    }
    if (key == "rollout.do_sample" || key == "rollout.val_kwargs.do_sample") {
      const std::string name = key.substr(0, key.rfind('.')) + ".temperature";
      if (entry.value == false) {
        set(*find(name), 0);
        fixed_.insert(name);
      }
      return true;
    }
    if (key == "reward_model.overlong_buffer.enable" ||
        key == "reward_model.reward_kwargs.overlong_buffer_cfg.enable") {
      has_overlong_buffer_ = has_overlong_buffer_ || entry.value == true;
      return entry.value.is_boolean();
    }
    if (key == "reward_model.overlong_buffer.penalty_factor" ||
        key == "reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor")
      return try_read(entry.value, overlong_penalty_);
    if (const auto* part = std::ranges::find(kFirstStrategy, key); part != kFirstStrategy.end()) {
      has_first_strategy_ = true;
      return try_read(entry.value,
                      first_strategy_[static_cast<size_t>(part - kFirstStrategy.begin())]);
    }
    if (key == kBypassMode) return entry.value.is_boolean();
    if (key == "algorithm.rollout_correction.loss_type") return try_loss_type(entry);
    if (key == "trainer.rollout_data_dir") set(*find("trainer.dump_rollouts"), true);
    if (key.starts_with(kCustomReward) && !custom_reward_.empty()) {
      // Each of the two options is invalid without the other, so they are set without a check.
      options_.reward.functions = {"command"};
      options_.reward.command = custom_reward_;
      set_.insert({"reward.functions", "reward.command"});
      return true;
    }
    return false;
  }

  // verl's loss_type is the loss only with bypass_mode.
  bool try_loss_type(const VerlEntry& entry) {
    if (entry.value != "reinforce") return entry.value == "ppo_clip";
    if (has_bypass_)
      set(*find("actor.policy_loss.loss_mode"), entry.value);
    else
      notes_[&entry] = "not used by verl without bypass_mode=true";
    return true;
  }

  // DAPO's penalty is the reward length.
  void add_overlong_buffer() {
    run::RunOptions& o = options_;
    if (overlong_penalty_ != 1) {
      o.reward.weights.resize(o.reward.functions.size(), 1.0);
      o.reward.weights.push_back(overlong_penalty_);
      set_.insert("reward.weights");
    }
    o.reward.functions.push_back("length");
    set_.insert("reward.functions");
  }

  void add_first_strategy() {
    std::vector<std::string>& all = options_.speculative.eagle.mab_configs;
    const auto& [steps, width, verify] = first_strategy_;
    if (!set_.contains(kStrategies)) all.erase(all.begin());  // tlt's own first one
    all.insert(all.begin(),
               std::to_string(steps) + "_" + std::to_string(width) + "_" + std::to_string(verify));
    set_.insert(kStrategies);
  }

  // Converts verl's custom reward function to a reward command.
  void collect_custom_reward(const std::vector<VerlEntry>& entries) {
    std::string path, name;
    Json arguments = Json::object();
    for (const VerlEntry& entry : entries) {
      if (is_nothing(entry) || entry.is_open || !entry.key.starts_with(kCustomReward)) continue;
      const std::string part = entry.key.substr(kCustomReward.size());
      if (part == "path") path = text_of(without_tilde(entry.value));
      if (part == "name") name = text_of(entry.value);
      if (part.starts_with("reward_kwargs."))
        place_of(std::string_view(part).substr(part.find('.') + 1), arguments) = entry.value;
    }
    if (path.empty()) return;
    custom_reward_ = "python3 tools/verl_reward.py " + shell_word(path);
    if (!name.empty()) custom_reward_ += " --name " + shell_word(name);
    if (!arguments.empty()) custom_reward_ += " --kwargs " + shell_word(arguments.dump());
  }

  // The option's name for verl's key, unless the configuration also has a key of that name.
  std::string name_of(const std::string& key) const {
    for (const auto& [theirs, ours] : kOtherNames)
      if (key == theirs && !keys_.contains(std::string(ours))) return std::string(ours);
    return key;
  }

  const OptionRef* find(std::string_view name) const {
    const auto found = std::ranges::find(refs_, name, &OptionRef::name);
    return found == refs_.end() ? nullptr : &*found;
  }

  // The error of the value; empty: the option is set.
  std::string set(const OptionRef& ref, const Json& value) {
    if (fixed_.contains(ref.name)) return "";
    return std::visit(
        [&](auto* place) -> std::string {
          const auto before = *place;
          if (!try_read(value, *place)) return "not a value of " + ref.name;
          const std::string problem = complaint();
          if (problem.empty()) {
            set_.insert(ref.name);
          } else {
            *place = before;
          }
          return problem;
        },
        ref.value);
  }

  std::string complaint() const {
    run::RunOptions checked = options_;
    if (checked.model.path.empty()) checked.model.path = "model";
    try {
      checked.check();
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  }

  void leave_out(const VerlEntry& entry, const std::string& reason) {
    notes_[&entry] = reason;
    ++result_.unmapped;
  }

  // Notes on options whose meaning differs from verl's.
  void remark(const VerlEntry& entry, const OptionRef& ref) {
    const Json loggers = known_loggers(entry.value);
    if (ref.name == "trainer.logger" && loggers != entry.value && loggers.size() > 1)
      notes_[&entry] =
          "tlt writes " + text_of(loggers) + "; other loggers can read the TensorBoard files";
    if (ref.name == "speculative.bs_threshold")
      notes_[&entry] =
          "used only by speculative.eagle.tune_algorithm=BEG; ADAPTIVE, the default, learns when "
          "to speculate";
    if (ref.name == "speculative.train.training_interval_steps")
      notes_[&entry] = "0, the default, trains the draft model while that makes it better";
    if (ref.name == "model.dtype" && (entry.value == "float16" || entry.value == "half"))
      notes_[&entry] = "tlt computes in bfloat16 or float32; set to bfloat16";
  }

  run::RunOptions& options_;
  const std::vector<OptionRef> refs_;
  std::set<std::string> keys_;  // keys of the configuration with a value
  std::set<std::string> set_;   // options
  std::string custom_reward_;   // reward.command; empty: there is none
  bool has_overlong_buffer_ = false, has_bypass_ = false;
  double overlong_penalty_ = 1;
  bool has_first_strategy_ = false;
  std::array<int64_t, 3> first_strategy_ = {8, 4, 48};  // FastRL's defaults
  std::set<std::string> fixed_;  // options that later entries must not change
  std::map<const VerlEntry*, std::string> notes_;
  VerlImport result_;
};

}  // namespace

std::string verl_hint(std::string_view name) {
  for (const auto& [theirs, ours] : kOtherNames)
    if (name == theirs)
      return "verl's " + std::string(theirs) + " is " + std::string(ours) + " here";
  return std::string(reason_for(name));
}

VerlImport import_verl(const std::vector<VerlEntry>& entries, run::RunOptions& options) {
  return Importer(options).run(entries);
}

}  // namespace tlt::cli
