// SPDX-License-Identifier: Apache-2.0
#include "run/policy_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/atomic_folder.h"
#include "model/hf_folder.h"
#include "train/lora_folder.h"

namespace tlt::run {

PolicyFiles::PolicyFiles(const RunContext& context, std::string base_path)
    : context_(context),
      base_path_(std::move(base_path)),
      base_checksum_(context.adapter && context.is_first() ? context.adapter->base_checksum()
                                                           : "") {}

std::string PolicyFiles::describe_adapter() const {
  if (!context_.adapter) return "";
  const train::LoraConfig& config = context_.adapter->config();
  return fmt::format(
      "the adapter's rank = {}\nlora_alpha = {}\nuse_rslora = {}\ntarget_modules = {}\n"
      "the base model's sha256 = {}\n",
      config.rank, config.alpha, config.use_rslora, fmt::join(config.targets, ","), base_checksum_);
}

std::function<void(const std::string& folder)> PolicyFiles::snapshot() const {
  const auto policy =
      std::make_shared<model::PolicySnapshot>(model::snapshot_policy(*context_.model));
  return
      [policy, base = base_path_, write_adapter = adapter_snapshot()](const std::string& folder) {
        model::save_policy(*policy, folder + "/policy", base);
        if (write_adapter) write_adapter(folder + "/adapter");
      };
}

void PolicyFiles::write(const std::string& folder) const {
  AtomicFolder policy(folder + "/policy");
  model::save_policy(*context_.model, policy.path(), base_path_);
  policy.commit();
  if (!context_.adapter) return;
  AtomicFolder adapter(folder + "/adapter");
  adapter_snapshot()(adapter.path());
  adapter.commit();
}

std::function<void(const std::string& folder)> PolicyFiles::adapter_snapshot() const {
  if (!context_.adapter) return nullptr;
  const auto copy = std::make_shared<train::LoraSnapshot>(train::snapshot_lora(
      *context_.adapter, std::filesystem::absolute(base_path_).lexically_normal().string(),
      base_checksum_));
  return [copy](const std::string& folder) { train::save_lora(*copy, folder); };
}

}  // namespace tlt::run
