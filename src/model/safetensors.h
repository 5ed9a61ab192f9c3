// Safetensors files as tensors: reading one file, reading a folder of shards, writing either.
//
// Owns       open files.
// Not here   the checks of the header (safetensors_index.h); the names of a model's tensors
//            (hf_folder.h).
// Threading  one thread at a time.
//
//   SafetensorsFolder weights("models/Qwen3-0.6B");
//   at::Tensor norm = weights.read("model.norm.weight");  // a copy on the CPU, in the file's type
//
//   write_safetensors("state.safetensors", {TensorSource::of("step", step)});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "model/safetensors_index.h"

namespace tlt::model {

class SafetensorsFile {
 public:
  // Throws InputError if the file is incomplete.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsIndex& index() const { return index_; }

  // REQUIRES: an entry of this file. Throws InputError for a type that tensors do not have.
  at::Tensor read(const TensorEntry& entry);
  // Throws InputError if the file has no such tensor.
  at::Tensor read(const std::string& name);

 private:
  FileHandle file_;
  SafetensorsIndex index_;
};

// All tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);

  const std::string& path() const { return path_; }
  // In the order of the files.
  const std::vector<std::string>& names() const { return names_; }
  // nullptr: there is none.
  const TensorEntry* find(const std::string& name) const;
  at::Tensor read(const std::string& name);
  // The file with the tensor, for messages. REQUIRES: there is one.
  const std::string& file_of(const std::string& name) const;

 private:
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;
  std::map<std::string, size_t> file_index_;
};

// A tensor to write. `values` is called when it is written, so that a model is never in memory
// twice.
struct TensorSource {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  std::function<at::Tensor()> values;

  // Keeps `tensor` alive; does not copy it.
  static TensorSource of(const std::string& name, const at::Tensor& tensor);
  int64_t bytes() const;
};

// Writes one file, atomically. Tensors are ordered by element size, then as given, so that each is
// aligned to its type.
void write_safetensors(const std::string& path, std::vector<TensorSource> sources);

// Writes model.safetensors, or numbered shards and their index if larger than max_shard_bytes, and
// removes the files of an earlier save with other shards.
void write_safetensors_folder(const std::string& folder, std::vector<TensorSource> sources,
                              int64_t max_shard_bytes = int64_t{5'000'000'000});

}  // namespace tlt::model
