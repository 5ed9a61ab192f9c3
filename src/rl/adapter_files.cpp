// SPDX-License-Identifier: Apache-2.0
#include "rl/adapter_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/options.h"
#include "train/lora_folder.h"

namespace tlt::rl {

AdapterFiles::AdapterFiles(const train::LoraAdapter& adapter, std::string base_path)
    : adapter_(adapter),
      base_path_(std::move(base_path)),
      base_checksum_(adapter.base_checksum()) {}

std::string AdapterFiles::describe() const {
  const train::LoraConfig& config = adapter_.config();
  std::string targets;
  for (const std::string& target : config.targets) targets += (targets.empty() ? "" : ",") + target;
  return fmt::format(
      "the adapter's rank = {}\nlora_alpha = {}\nuse_rslora = {}\ntarget_modules = {}\n"
      "the base model's sha256 = {}\n",
      config.rank, config.alpha, config.use_rslora, targets, base_checksum_);
}

void AdapterFiles::check_same(const std::optional<std::string>& saved,
                              const std::string& checkpoint) const {
  TLT_CHECK_INPUT(saved, checkpoint, ": all weights were trained there, and no adapter; leave ",
                  "model.lora_adapter_path out, or set trainer.resume_mode=disable to start again");
  const std::string difference = first_difference(describe(), *saved);
  TLT_CHECK_INPUT(difference.empty(), checkpoint, " is of another adapter or another base model (",
                  difference, "); set trainer.resume_mode=disable to start again");
}

std::function<void(const std::string& folder)> AdapterFiles::snapshot() const {
  const auto copy = std::make_shared<train::LoraSnapshot>(train::snapshot_lora(
      adapter_, std::filesystem::absolute(base_path_).lexically_normal().string(), base_checksum_));
  return [copy](const std::string& folder) { train::save_lora(*copy, folder + "/adapter"); };
}

}  // namespace tlt::rl
