// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/sentence.h"
#include "model/model_config.h"

namespace tlt::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr size_t kMaxNameBytes = 512;  // of a tensor in an index
constexpr const char* kShardIndex = "model.safetensors.index.json";

constexpr std::pair<DataType, at::ScalarType> kTensorTypes[] = {
    {DataType::kBool, at::kBool}, {DataType::kU8, at::kByte},       {DataType::kI8, at::kChar},
    {DataType::kI16, at::kShort}, {DataType::kI32, at::kInt},       {DataType::kI64, at::kLong},
    {DataType::kF16, at::kHalf},  {DataType::kBF16, at::kBFloat16}, {DataType::kF32, at::kFloat},
    {DataType::kF64, at::kDouble}};

std::optional<at::ScalarType> try_scalar_type(DataType type) {
  for (const auto& [ours, torch] : kTensorTypes)
    if (ours == type) return torch;
  return std::nullopt;
}

DataType data_type(at::ScalarType type) {
  for (const auto& [ours, torch] : kTensorTypes)
    if (torch == type) return ours;
  TLT_CHECK(false, "no safetensors type for ", c10::toString(type));
}

SafetensorsIndex read_index(FileHandle& file) {
  const auto file_bytes = static_cast<uint64_t>(file.size_bytes());
  constexpr uint64_t kFirstBytes = 64;
  std::string head(std::min(kFirstBytes, file_bytes), '\0');
  head.resize(file.read_at(0, head.data(), head.size()));
  check_no_lfs_pointer(head, file.path());
  head.resize(SafetensorsIndex::header_end(head, file_bytes, file.path()));
  head.resize(file.read_at(0, head.data(), head.size()));
  return SafetensorsIndex::parse(head, file_bytes, file.path());
}

// File names of the shards, and the tensors that the index lists for each.
std::map<std::string, std::set<std::string>> read_shard_index(const std::string& path) {
  const nlohmann::json index = read_json_object(path);
  TLT_CHECK_INPUT(index.contains("weight_map") && index["weight_map"].is_object(), path,
                  ": no weight_map; copy the file again");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    TLT_CHECK_INPUT(name.size() <= kMaxNameBytes, path, ": the name of tensor ",
                    one_sentence(name, 100), " has ", name.size(), " bytes; at most ",
                    kMaxNameBytes, " are supported");
    TLT_CHECK_INPUT(file.is_string() && !file.get<std::string>().empty() &&
                        file.get<std::string>().size() <= NAME_MAX &&
                        file.get<std::string>().find('/') == std::string::npos,
                    path, ": the file of ", one_sentence(name, 200), " is ",
                    one_sentence(file.dump(), 200),
                    "; it must be the name of a file next to the index");
    shards[file.get<std::string>()].insert(name);
  }
  return shards;
}

bool is_model_file(const std::string& name) {
  return name == kSingleFile || name == kShardIndex ||
         (name.starts_with("model-") && name.ends_with(".safetensors") &&
          name.find("-of-") != std::string::npos);
}

void remove_other_model_files(const std::string& folder, const std::set<std::string>& keep) {
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_model_file(name) && !keep.contains(name)) old.push_back(entry.path());
  }
  for (const auto& path : old) std::filesystem::remove(path);
}

// As many consecutive tensors per shard as fit; a tensor above the limit has a shard of its own.
std::vector<std::vector<TensorSource>> split(std::vector<TensorSource> sources, int64_t max_bytes) {
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t bytes = 0;
  for (TensorSource& source : sources) {
    if (!shards.back().empty() && bytes + source.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += source.bytes();
    shards.back().push_back(std::move(source));
  }
  return shards;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(open_file(path)), index_(read_index(file_)) {}

at::Tensor SafetensorsFile::read(const TensorEntry& entry) {
  const auto type = try_scalar_type(entry.type);
  TLT_CHECK_INPUT(type, path(), ": tensor ", entry.name, " has type ", data_type_name(entry.type),
                  ", which is not supported; save it as F32 or BF16");
  at::Tensor tensor = at::empty(entry.shape, *type);
  const size_t bytes = entry.end - entry.begin;
  const size_t got = file_.read_at(static_cast<int64_t>(entry.begin),
                                   static_cast<char*>(tensor.data_ptr()), bytes);
  TLT_CHECK_INPUT(got == bytes, path(),
                  ": the file became shorter while it was read; copy it again");
  return tensor;
}

at::Tensor SafetensorsFile::read(const std::string& name) {
  const TensorEntry* entry = index_.find(name);
  TLT_CHECK_INPUT(entry, path(), ": no tensor ", name, "; copy or save the file again");
  return read(*entry);
}

SafetensorsFolder::SafetensorsFolder(const std::string& folder) : path_(folder) {
  std::map<std::string, std::set<std::string>> shards;
  if (std::filesystem::exists(folder + "/" + kSingleFile)) {
    shards[kSingleFile];
  } else {
    TLT_CHECK_INPUT(std::filesystem::exists(folder + "/" + kShardIndex), folder, ": neither ",
                    kSingleFile, " nor ", kShardIndex,
                    "; give a Hugging Face model folder with safetensors");
    shards = read_shard_index(folder + "/" + kShardIndex);
  }
  for (const auto& [file_name, promised] : shards) {
    const SafetensorsFile& file = files_.emplace_back(folder + "/" + file_name);
    for (const std::string& name : promised)
      TLT_CHECK_INPUT(file.index().find(name), file.path(), ": no tensor ", name, ", which ",
                      kShardIndex, " has there; copy both files again");
    for (const TensorEntry& entry : file.index().entries) {
      const bool fresh = file_index_.emplace(entry.name, files_.size() - 1).second;
      TLT_CHECK_INPUT(fresh, file.path(), ": tensor ", entry.name,
                      " is in another shard too; save the model again");
      names_.push_back(entry.name);
    }
  }
}

const TensorEntry* SafetensorsFolder::find(const std::string& name) const {
  const auto found = file_index_.find(name);
  return found == file_index_.end() ? nullptr : files_[found->second].index().find(name);
}

at::Tensor SafetensorsFolder::read(const std::string& name) {
  const auto found = file_index_.find(name);
  TLT_CHECK_INPUT(found != file_index_.end(), path_, ": no tensor ", name,
                  "; copy or save the model again");
  return files_[found->second].read(name);
}

const std::string& SafetensorsFolder::file_of(const std::string& name) const {
  const auto found = file_index_.find(name);
  TLT_CHECK(found != file_index_.end(), name);
  return files_[found->second].path();
}

TensorSource TensorSource::of(const std::string& name, const at::Tensor& tensor) {
  return {name, tensor.scalar_type(), tensor.sizes().vec(), [tensor] { return tensor; }};
}

int64_t TensorSource::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), static_cast<int64_t>(c10::elementSize(type)),
                         std::multiplies<>());
}

void write_safetensors(const std::string& path, std::vector<TensorSource> sources) {
  std::stable_sort(sources.begin(), sources.end(),
                   [](const TensorSource& a, const TensorSource& b) {
                     return c10::elementSize(a.type) > c10::elementSize(b.type);
                   });
  std::vector<TensorEntry> entries;
  for (const TensorSource& source : sources)
    entries.push_back({source.name, data_type(source.type), source.shape});
  AtomicFile file(path);
  file.append(make_safetensors_header(entries, {{"format", "pt"}}));
  for (const TensorSource& source : sources) {
    const at::Tensor values = source.values().cpu().contiguous();
    TLT_CHECK(values.scalar_type() == source.type && values.sizes() == source.shape, source.name);
    file.append(
        {static_cast<const char*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  }
  file.commit();
}

void write_safetensors_folder(const std::string& folder, std::vector<TensorSource> sources,
                              int64_t max_shard_bytes) {
  TLT_CHECK(max_shard_bytes > 0);
  make_folder(folder);
  auto shards = split(std::move(sources), max_shard_bytes);
  if (shards.size() == 1) {
    write_safetensors(folder + "/" + kSingleFile, std::move(shards[0]));
    remove_other_model_files(folder, {kSingleFile});
    return;
  }
  std::set<std::string> files = {kShardIndex};
  nlohmann::ordered_json weight_map;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    files.insert(name);
    for (const TensorSource& source : shards[i]) {
      weight_map[source.name] = name;
      total += source.bytes();
    }
    write_safetensors(folder + "/" + name, std::move(shards[i]));
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", weight_map}};
  write_file_atomic(folder + "/" + kShardIndex, index.dump(2) + "\n");
  remove_other_model_files(folder, files);
}

}  // namespace tlt::model
