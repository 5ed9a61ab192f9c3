// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/hidden_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "base/log.h"
#include "base/options.h"

namespace tlt::drafter_training {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;
constexpr size_t kMaxOpenFiles = 32;
constexpr const char* kTokens = "tokens";

std::string states_name(int64_t sample) { return fmt::format("states.{}", sample); }

// Reads states from the parts of a store; keeps the files of the last parts open.
class PartReader {
 public:
  at::Tensor read(const std::string& path, const std::string& name) {
    for (auto file = files_.begin(); file != files_.end(); ++file)
      if (file->path() == path) {
        files_.splice(files_.begin(), files_, file);
        return files_.front().read(name);
      }
    if (files_.size() == kMaxOpenFiles) files_.pop_back();
    files_.emplace_front(path);
    return files_.front().read(name);
  }

 private:
  std::list<model::SafetensorsFile> files_;  // last used first
};

// Throws if the file is not the JSON of a part.
nlohmann::json read_facts(const std::string& path) {
  return nlohmann::json::parse(read_file(path, kMaxJsonBytes));
}

constexpr const char* kRemake = "; delete it, and its states are made again";

// The samples of a part with this description, which has no checksum.
void append_samples(const nlohmann::json& facts, const std::string& data,
                    const std::shared_ptr<PartReader>& reader, std::vector<StoredSample>& samples) {
  const at::Tensor tokens = model::SafetensorsFile(data).read(kTokens);
  const auto *next = tokens.const_data_ptr<int32_t>(), *end = next + tokens.numel();
  for (int64_t i = 0; i < std::ssize(facts.at("samples")); ++i) {
    const nlohmann::json& row = facts.at("samples")[static_cast<size_t>(i)];
    auto& [sample, prompt] = samples.emplace_back();
    const auto count = json_count<std::ptrdiff_t>(row, "tokens");
    TLT_CHECK_INPUT(count <= end - next, data, ": its description has a sample of ", count,
                    " tokens", kRemake);
    sample.tokens.assign(next, next + count);
    next += count;
    sample.response_begin = json_count<int32_t>(row, "response_begin");
    sample.id = json_count<uint32_t>(row, "id");
    sample.states = [reader, data, i] { return reader->read(data, states_name(i)); };
    prompt = json_count(row, "prompt");
  }
  TLT_CHECK_INPUT(next == end, data, ": ", end - next, " tokens that its description has not",
                  kRemake);
}

// The difference between two identities, for the message; empty: none.
std::string difference(const StoreIdentity& here, const nlohmann::json& there) {
  if (there.at("target").get<std::string>() != here.target)
    return "another target model (other weights or another dtype)";
  const std::string option = first_difference(here.source, there.at("source").get<std::string>());
  return option.empty() ? "" : "other data: " + option;
}

}  // namespace

std::string target_digest(const model::PolicyModel& target) {
  Sha256 hash;
  for (const model::Parameter& parameter : target.parameters()) {
    hash.update(parameter.name());
    const at::Tensor values = parameter.read(target.device()).cpu().contiguous();
    hash.update({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  }
  hash.update(c10::toString(target.type()));
  return hash.hex();
}

int64_t bytes_of(std::span<const StoredSample> samples) {
  int64_t bytes = 0;
  for (const auto& [sample, prompt] : samples)
    bytes += static_cast<int64_t>(sample.states().nbytes());
  return bytes;
}

HiddenStore::HiddenStore(std::string folder, const StoreIdentity& identity)
    : folder_(std::move(folder)) {
  make_folder(folder_);
  const std::string path = folder_ + "/store.json";
  if (!fs::exists(path)) {
    const nlohmann::ordered_json json = {
        {"format", 1}, {"target", identity.target}, {"source", identity.source}};
    write_file_atomic(path, json.dump(1) + "\n");
    return;
  }
  std::string found;
  try {
    found = difference(identity, read_facts(path));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(
        path, ": not a store of hidden states (", json_fault(error),
        "); delete the folder, or name another with speculative.train.hidden_states_dir"));
  }
  TLT_CHECK_INPUT(found.empty(), folder_, " has the hidden states of ", found,
                  "; delete it, or name another folder with speculative.train.hidden_states_dir");
}

std::string HiddenStore::path(int64_t part, const char* ending) const {
  return fmt::format("{}/part_{:06}.{}", folder_, part, ending);
}

bool HiddenStore::has(int64_t part) const {
  const std::string facts_path = path(part, "json"), data = path(part, "safetensors");
  if (!fs::exists(facts_path)) return false;
  std::string fault;
  try {
    const nlohmann::json facts = read_facts(facts_path);
    if (!fs::exists(data))
      fault = "is missing";
    else if (fs::file_size(data) != json_count<uint64_t>(facts, "bytes"))
      fault = "has another size";
    else if (sha256_of_file(data) != facts.at("sha256").get<std::string>())
      fault = "has another checksum";
  } catch (const nlohmann::json::exception&) {
    fault = "has no readable description";
  }
  if (!fault.empty()) log_warning("{} {}; its states are made again", data, fault);
  return fault.empty();
}

void HiddenStore::remove(int64_t part) {
  fs::remove(path(part, "json"));
  fs::remove(path(part, "safetensors"));
}

int64_t HiddenStore::bytes(int64_t part) const {
  return json_count(read_facts(path(part, "json")), "states_bytes");
}

void HiddenStore::write(int64_t part, std::span<const StoredSample> samples) {
  // The description is removed first and written last: in between the part is absent.
  fs::remove(path(part, "json"));
  std::vector<int32_t> tokens;
  std::vector<model::TensorSource> sources;
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [sample, prompt] : samples) {
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
    sources.push_back(model::TensorSource::of(states_name(std::ssize(sources)), sample.states()));
    rows.push_back({{"tokens", sample.tokens.size()},
                    {"response_begin", sample.response_begin},
                    {"id", sample.id},
                    {"prompt", prompt}});
  }
  sources.push_back(model::TensorSource::of(kTokens, at::tensor(tokens, at::kInt)));
  const std::string data = path(part, "safetensors");
  model::write_safetensors(data, std::move(sources));
  const nlohmann::ordered_json facts = {{"bytes", fs::file_size(data)},
                                        {"sha256", sha256_of_file(data)},
                                        {"states_bytes", bytes_of(samples)},
                                        {"samples", rows}};
  write_file_atomic(path(part, "json"), facts.dump() + "\n");
}

std::vector<StoredSample> HiddenStore::samples(int64_t parts) const {
  std::vector<StoredSample> samples;
  const auto reader = std::make_shared<PartReader>();
  for (int64_t part = 0; part < parts; ++part) {
    const std::string facts = path(part, "json");
    try {
      append_samples(read_facts(facts), path(part, "safetensors"), reader, samples);
    } catch (const nlohmann::json::exception& error) {
      throw InputError(facts + ": does not describe a part (" + json_fault(error) + ")" + kRemake);
    }
  }
  return samples;
}

}  // namespace tlt::drafter_training
