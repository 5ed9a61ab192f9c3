// SPDX-License-Identifier: Apache-2.0
#include "tinker/wire.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace tlt::tinker {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kBroken =
    "the body is not a protocol buffer of the Tinker API; use the official client";

}  // namespace

uint64_t WireReader::read_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw InputError(kBroken);
}

std::string_view WireReader::take(size_t size) {
  TLT_CHECK_INPUT(size <= rest_.size(), kBroken);
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

bool WireReader::next() {
  if (rest_.empty()) return false;
  const uint64_t key = read_varint();
  TLT_CHECK_INPUT(key >> 3 >= 1 && key >> 3 < 1 << 20, kBroken);
  field_ = static_cast<int64_t>(key >> 3);
  type_ = static_cast<Type>(key & 7);
  switch (type_) {
    case Type::kVarint:
      varint_ = read_varint();
      return true;
    case Type::kDouble:
      bytes_ = take(8);
      return true;
    case Type::kFloat:
      bytes_ = take(4);
      return true;
    case Type::kBytes:
      bytes_ = take(read_varint());
      return true;
  }
  throw InputError(kBroken);
}

uint64_t WireReader::varint() const {
  TLT_CHECK_INPUT(type_ == Type::kVarint, kBroken);
  return varint_;
}

double WireReader::number() const {
  TLT_CHECK_INPUT(type_ == Type::kDouble, kBroken);
  double value = 0;
  std::memcpy(&value, bytes_.data(), sizeof(value));
  return value;
}

std::string_view WireReader::bytes() const {
  TLT_CHECK_INPUT(type_ == Type::kBytes, kBroken);
  return bytes_;
}

void WireReader::append_integers(std::vector<int64_t>& integers) const {
  if (type_ == Type::kVarint) return integers.push_back(static_cast<int64_t>(varint_));
  for (WireReader packed(bytes()); !packed.rest_.empty();)
    integers.push_back(static_cast<int64_t>(packed.read_varint()));
}

void WireWriter::append_varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

void WireWriter::varint(int64_t field, uint64_t value) {
  append_varint(static_cast<uint64_t>(field) << 3);
  append_varint(value);
}

void WireWriter::number(int64_t field, double value) {
  append_varint(static_cast<uint64_t>(field) << 3 | 1);
  text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void WireWriter::bytes(int64_t field, std::string_view value) {
  append_varint(static_cast<uint64_t>(field) << 3 | 2);
  append_varint(value.size());
  text_ += value;
}

}  // namespace tlt::tinker
