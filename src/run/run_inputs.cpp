// SPDX-License-Identifier: Apache-2.0
#include "run/run_inputs.h"

#include <filesystem>

#include "base/checksum.h"
#include "model/fingerprint.h"

namespace tlt::run {

std::vector<cluster::Input> fingerprint_inputs(const RunOptions& options) {
  std::vector<cluster::Input> inputs = {
      {"model.path", model::fingerprint(options.model.path,
                                        /*has_weights=*/options.model.random_seed < 0)}};
  const std::string& adapter = options.model.lora_adapter_path;
  if (!adapter.empty())
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      inputs.push_back({"model.lora_adapter_path", sha256_of_blocks(adapter + "/" + file)});
  if (const std::string& drafter = options.speculative.eagle.spec_model_path; !drafter.empty())
    inputs.push_back({"speculative.eagle.spec_model_path", model::fingerprint(drafter)});
  const auto add_files = [&](const std::string& option, const std::vector<std::string>& files) {
    for (const std::string& file : files)
      if (std::filesystem::is_regular_file(file))  // else generated problems
        inputs.push_back({option + ": " + file, sha256_of_blocks(file)});
  };
  add_files("data.train_files", options.data.train_files);
  add_files("data.val_files", options.data.val_files);
  add_files("data.chat_template", {options.data.chat_template});
  return inputs;
}

}  // namespace tlt::run
