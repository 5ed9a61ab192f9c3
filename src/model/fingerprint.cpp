// SPDX-License-Identifier: Apache-2.0
#include "model/fingerprint.h"

#include <filesystem>
#include <set>

#include "base/checksum.h"
#include "base/files.h"
#include "model/safetensors.h"

namespace tlt::model {
namespace {

namespace fs = std::filesystem;

std::string line(const std::string& path, const std::string& sha256) {
  return fs::path(path).filename().string() + " " + std::to_string(fs::file_size(path)) + " " +
         sha256 + "\n";
}

}  // namespace

std::string fingerprint(const std::string& folder, bool has_weights) {
  const std::string config = folder + "/config.json";
  std::string lines = line(config, sha256_of_file(config));
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "hot_token_id.json"})
    if (const std::string path = folder + "/" + name; fs::exists(path))
      lines += line(path, sha256_of_file(path));
  if (!has_weights) return sha256(lines);
  const SafetensorsFolder weights(folder);
  std::set<std::string> files;
  for (const std::string& name : weights.names()) files.insert(weights.file_of(name));
  for (const std::string& file : files) lines += line(file, sha256_of_blocks(file));
  return sha256(lines);
}

}  // namespace tlt::model
