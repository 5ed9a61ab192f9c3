// SafetensorsIndex: the table at the beginning of a safetensors file, parsed from unchecked bytes.
//
// The format: 8 bytes length n (little endian), n bytes of JSON, the data.
//
//   {"model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]},
//    "__metadata__": {"format": "pt"}}
//
// Every entry is checked: known type, the size that type and shape imply, no overlap, no gap, no
// byte left over.
//
// Not here   the data and its tensors (safetensors.h). Needs no torch: a fuzzer can run it.
//
//   const std::string name = "model.safetensors";
//   const uint64_t end = SafetensorsIndex::header_end(first_8_bytes, file_bytes, name);
//   const auto index = SafetensorsIndex::parse(first_bytes_to_end, file_bytes, name);
//   const TensorEntry* norm = index.find("model.norm.weight");   // nullptr: no such tensor
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::model {

enum class DataType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};

// "F32", as in the header.
std::string_view data_type_name(DataType type);
int64_t data_type_bytes(DataType type);
std::optional<DataType> try_parse_data_type(std::string_view name);

struct TensorEntry {
  std::string name;
  DataType type = DataType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;

  // Product of the shape. The entries of an index never overflow.
  int64_t elements() const;
};

struct SafetensorsIndex {
  std::vector<TensorEntry> entries;  // in the order of the data
  std::map<std::string, std::string> metadata;

  // Where the header ends and the data begins. `head` is the first 8 bytes of the file or more, or
  // the whole file.
  static uint64_t header_end(std::string_view head, uint64_t file_bytes, const std::string& where);

  // `head` is the file up to header_end() or more. Throws InputError with `where` and the tensor.
  static SafetensorsIndex parse(std::string_view head, uint64_t file_bytes,
                                const std::string& where);

  const TensorEntry* find(std::string_view name) const;

 private:
  std::map<std::string, size_t, std::less<>> by_name_;
};

// The bytes before the data: length and JSON, padded with spaces to a multiple of 8. Sets begin and
// end of the entries, in the given order.
std::string make_safetensors_header(std::vector<TensorEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace tlt::model
