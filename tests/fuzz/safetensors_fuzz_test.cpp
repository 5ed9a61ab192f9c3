// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_index.h"
#include "tests/support/fuzz.h"

namespace tlt::tests {
namespace {

using model::DataType;
using model::SafetensorsIndex;
using model::TensorEntry;

constexpr size_t kLengthBytes = 8;

std::string file_of(std::vector<TensorEntry> entries,
                    const std::map<std::string, std::string>& metadata) {
  const std::string header = make_safetensors_header(entries, metadata);
  return header + std::string(entries.empty() ? 0 : entries.back().end - header.size(), 'x');
}

std::string with_length(const std::string& header) {
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header;
}

std::string header_of(const std::string& file) {
  const uint64_t end = SafetensorsIndex::header_end(file, file.size(), "");
  return file.substr(kLengthBytes, end - kLengthBytes);
}

// Another header before the same data, with the correct length; or any bytes changed.
std::string mutate(Mutator& mutator, const std::string& file, const std::string& other) {
  if (mutator.one_in(4)) return mutator.bytes(file, other);
  try {
    const std::string header = header_of(file);
    const std::string changed = mutator.one_in(3) ? mutator.bytes(header, header_of(other))
                                                  : mutator.json(header, header_of(other));
    return with_length(changed) + file.substr(kLengthBytes + header.size());
  } catch (const InputError&) {
    return mutator.bytes(file, other);
  }
}

std::string parse(const std::string& file) {
  const auto index = SafetensorsIndex::parse(file, file.size(), "a.safetensors");
  std::string sketch;
  for (const TensorEntry& entry : index.entries) {
    TLT_CHECK(entry.begin <= entry.end && entry.end <= file.size(), entry.name);
    TLT_CHECK(entry.end - entry.begin ==
                  static_cast<uint64_t>(entry.elements() * model::data_type_bytes(entry.type)),
              entry.name);
    TLT_CHECK(index.find(entry.name) == &entry, entry.name);
    sketch += std::string(model::data_type_name(entry.type)) + " of rank " +
              std::string(entry.shape.size(), '.') + ",";
  }
  return sketch;
}

TEST(SafetensorsFuzzTest, FilesAreCompleteOrRejected) {
  fuzz({.name = "safetensors",
        .corpus = {file_of({{"a", DataType::kF32, {2, 3}},
                            {"bc", DataType::kBF16, {4}},
                            {"d", DataType::kI64, {}}},
                           {{"format", "pt"}}),
                   file_of({{"model.norm.weight", DataType::kF16, {0, 5}}}, {}),
                   file_of({{"x", DataType::kBool, {7}}, {"y", DataType::kF8E4M3, {1, 1, 3}}}, {}),
                   file_of({}, {})},
        .dictionary = {"dtype", "shape", "data_offsets", "__metadata__", "F32", "BF16", "I64",
                       "BOOL", "F8_E5M2", "U8", "{", "}", "[", "]", ",", ":", "\"", "[0,0]",
                       "\\u0000"},
        .inputs = 20000,
        .mutate = mutate},
       parse);
}

}  // namespace
}  // namespace tlt::tests
