// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/json_fault.h"

namespace tlt::model {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr size_t kMaxDimensions = 32;

struct TypeRow {
  DataType type;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array kTypes = {
    TypeRow{DataType::kBool, "BOOL", 1},      TypeRow{DataType::kU8, "U8", 1},
    TypeRow{DataType::kI8, "I8", 1},          TypeRow{DataType::kF8E5M2, "F8_E5M2", 1},
    TypeRow{DataType::kF8E4M3, "F8_E4M3", 1}, TypeRow{DataType::kI16, "I16", 2},
    TypeRow{DataType::kU16, "U16", 2},        TypeRow{DataType::kF16, "F16", 2},
    TypeRow{DataType::kBF16, "BF16", 2},      TypeRow{DataType::kI32, "I32", 4},
    TypeRow{DataType::kU32, "U32", 4},        TypeRow{DataType::kF32, "F32", 4},
    TypeRow{DataType::kI64, "I64", 8},        TypeRow{DataType::kU64, "U64", 8},
    TypeRow{DataType::kF64, "F64", 8}};

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw InputError(where + ": not a whole safetensors file: " + what + "; copy or save it again");
}

// Reads the JSON event by event: only so a duplicate key is seen, and no structure deeper than the
// format's is built.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& where, SafetensorsIndex& index) : where_(where), index_(index) {}

  bool start_object(size_t) override {
    if (level_ == Level::kFile) {
      level_ = Level::kTable;
    } else if (level_ == Level::kTable && !key_.empty()) {
      level_ = key_ == "__metadata__" ? Level::kMetadata : Level::kTensor;
      if (level_ == Level::kTensor) index_.entries.emplace_back().name = key_;
      seen_ = {};
      fields_.clear();
    } else {
      misplaced("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    const bool fresh =
        level_ == Level::kTable ? names_.insert(name).second : fields_.insert(name).second;
    if (!fresh) fail("the key '" + name + "' is given twice");
    if (level_ == Level::kTable && name.empty()) fail("a tensor without a name");
    (level_ == Level::kTable ? key_ : field_) = name;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor && !(seen_.type && seen_.shape && seen_.offsets))
      fail("dtype, shape or data_offsets is missing");
    level_ = level_ == Level::kTable ? Level::kFile : Level::kTable;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::kTensor || (field_ != "shape" && field_ != "data_offsets"))
      misplaced("a list");
    level_ = Level::kList;
    list_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::kTensor;
    TensorEntry& entry = index_.entries.back();
    if (field_ == "shape") {
      if (list_.size() > kMaxDimensions) fail("more than 32 dimensions");
      entry.shape.assign(list_.begin(), list_.end());
      seen_.shape = true;
    } else {
      if (list_.size() != 2) fail("data_offsets is not a pair");
      entry.begin = list_[0];
      entry.end = list_[1];
      seen_.offsets = true;
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (level_ != Level::kList) misplaced("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(field_ + " is too large");
    if (list_.size() <= kMaxDimensions) list_.push_back(value);  // one too many is an error below
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == Level::kMetadata) {
      index_.metadata[field_] = value;
    } else if (level_ == Level::kTensor && field_ == "dtype") {
      const auto type = try_parse_data_type(value);
      if (!type) fail("unknown dtype '" + value + "'");
      index_.entries.back().type = *type;
      seen_.type = true;
    } else {
      misplaced("a string");
    }
    return true;
  }

  bool null() override { misplaced("null"); }
  bool boolean(bool) override { misplaced("a boolean"); }
  bool number_integer(int64_t) override { misplaced("a negative number"); }
  bool number_float(double, const std::string&) override { misplaced("a fraction"); }
  bool binary(binary_t&) override { misplaced("binary data"); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    refuse(where_, std::string("its header is not JSON (") + json_fault(error) + ")");
  }

 private:
  enum class Level { kFile, kTable, kMetadata, kTensor, kList };

  [[noreturn]] void fail(const std::string& what) const {
    refuse(where_, key_.empty() ? what : "tensor " + key_ + ": " + what);
  }
  [[noreturn]] void misplaced(const std::string& what) const {
    fail(what + " where the format has none" + (field_.empty() ? "" : " (" + field_ + ")"));
  }

  const std::string& where_;
  SafetensorsIndex& index_;
  Level level_ = Level::kFile;
  std::string key_, field_;
  std::set<std::string> names_, fields_;
  std::vector<uint64_t> list_;
  struct {
    bool type = false, shape = false, offsets = false;
  } seen_;
};

// Bytes for type and shape; nullopt if they, or the product of the sizes that are not 0, need more
// than 63 bits.
std::optional<uint64_t> try_byte_size(const TensorEntry& entry) {
  int64_t bytes = data_type_bytes(entry.type);
  bool is_empty = false;
  for (const int64_t size : entry.shape) {
    is_empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<uint64_t>(bytes);
}

// Checks that the data is one tensor after the other, from the first byte after the header to the
// last of the file.
void check_layout(std::vector<TensorEntry>& entries, uint64_t data_bytes,
                  const std::string& where) {
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const TensorEntry& entry : entries) {
    const std::string name = "tensor " + entry.name + ": ";
    if (entry.end < entry.begin) refuse(where, name + "it ends before it begins");
    if (entry.end > data_bytes)
      refuse(where, name + "truncated: it extends past the end of the file");
    if (entry.begin < position) refuse(where, name + "it overlaps the previous one");
    if (entry.begin > position) refuse(where, name + "there is a gap before it");
    const auto bytes = try_byte_size(entry);
    if (!bytes || *bytes != entry.end - entry.begin)
      refuse(where, name + "its shape and dtype do not give its " +
                        std::to_string(entry.end - entry.begin) + " bytes");
    position = entry.end;
  }
  if (position != data_bytes)
    refuse(where, std::to_string(data_bytes - position) + " bytes after the last tensor");
}

}  // namespace

std::string_view data_type_name(DataType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row.name;
  TLT_CHECK(false, "data type ", static_cast<int>(type));
}

int64_t data_type_bytes(DataType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row.bytes;
  TLT_CHECK(false, "data type ", static_cast<int>(type));
}

std::optional<DataType> try_parse_data_type(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

int64_t TensorEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

uint64_t SafetensorsIndex::header_end(std::string_view head, uint64_t file_bytes,
                                      const std::string& where) {
  if (file_bytes < kLengthBytes) refuse(where, "it has " + std::to_string(file_bytes) + " bytes");
  TLT_CHECK(head.size() >= kLengthBytes, where, ": ", head.size(), " bytes given");
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    header_bytes |= static_cast<uint64_t>(static_cast<unsigned char>(head[i])) << (8 * i);
  if (header_bytes > kMaxHeaderBytes) refuse(where, "its header claims more than 100 MB");
  if (header_bytes > file_bytes - kLengthBytes)
    refuse(where, "truncated: its header extends past the end of the file");
  return kLengthBytes + header_bytes;
}

SafetensorsIndex SafetensorsIndex::parse(std::string_view head, uint64_t file_bytes,
                                         const std::string& where) {
  const uint64_t data_begin = header_end(head, file_bytes, where);
  TLT_CHECK(head.size() >= data_begin, where, ": ", head.size(), " of ", data_begin,
            " bytes given");
  const std::string_view header = head.substr(kLengthBytes, data_begin - kLengthBytes);
  if (header.empty() || header.front() != '{') refuse(where, "its header does not start with '{'");

  SafetensorsIndex index;
  HeaderReader reader(where, index);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  check_layout(index.entries, file_bytes - data_begin, where);
  for (TensorEntry& entry : index.entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
    index.by_name_.emplace(entry.name, index.by_name_.size());
  }
  return index;
}

const TensorEntry* SafetensorsIndex::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries[found->second];
}

std::string make_safetensors_header(std::vector<TensorEntry>& entries,
                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (TensorEntry& entry : entries) {
    const auto bytes = try_byte_size(entry);
    TLT_CHECK(bytes, "tensor ", entry.name, " is too large");
    TLT_CHECK(!header.contains(entry.name), "tensor ", entry.name, " twice");
    entry.begin = position;
    entry.end = position += *bytes;
    header[entry.name] = {{"dtype", data_type_name(entry.type)},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(json.size() >> (8 * i) & 0xff);
  bytes += json;
  for (TensorEntry& entry : entries) {
    entry.begin += bytes.size();
    entry.end += bytes.size();
  }
  return bytes;
}

}  // namespace tlt::model
