// WireReader, WireWriter: the wire format of protocol buffers, as far as the Tinker API uses it:
// varints, doubles, and byte strings, which are also texts, nested messages and packed lists
// (protobuf.dev/programming-guides/encoding).
//
// Owns       nothing: a reader borrows the bytes.
// Threading  one thread at a time.
//
//   WireReader message(body);
//   while (message.next())
//     if (message.field() == 4) loss = message.bytes();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::tinker {

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // Goes to the next field; false: that was the last one. InputError: not in this format.
  bool next();
  int64_t field() const { return field_; }

  // The value of the field. InputError: it has another type.
  uint64_t varint() const;
  double number() const;
  std::string_view bytes() const;

  // Appends a repeated integer, packed or not.
  void append_integers(std::vector<int64_t>& integers) const;

 private:
  enum class Type { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };

  uint64_t read_varint();
  std::string_view take(size_t size);

  std::string_view rest_;
  int64_t field_ = 0;
  Type type_ = Type::kVarint;
  uint64_t varint_ = 0;
  std::string_view bytes_;
};

class WireWriter {
 public:
  void varint(int64_t field, uint64_t value);
  void number(int64_t field, double value);
  void bytes(int64_t field, std::string_view value);
  void message(int64_t field, const WireWriter& value) { bytes(field, value.text_); }

  const std::string& text() const { return text_; }

 private:
  void append_varint(uint64_t value);

  std::string text_;
};

// The bytes of a list of numbers, little-endian, as the API packs tensors.
template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace tlt::tinker
