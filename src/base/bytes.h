// ByteWriter and ByteReader: values and lists as bytes, for processes of the same program.
//
// Threading  one thread at a time.
//
//   ByteWriter out;
//   out.value(uint32_t{7});
//   out.list(std::vector<float>{1, 2});
//   ByteReader in(bytes);
//   const auto seven = in.value<uint32_t>();
//   const auto list = in.list<std::vector<float>>();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace tlt {

class ByteWriter {
 public:
  template <class T>
  void value(const T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  template <class List>
  void list(const List& items) {
    static_assert(std::is_trivially_copyable_v<typename List::value_type>);
    value<uint64_t>(items.size());
    bytes_.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(items[0]));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws Error when the bytes end too early.
class ByteReader {
 public:
  // REQUIRES: the bytes outlive this.
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T x;
    std::memcpy(&x, take(sizeof x).data(), sizeof x);
    return x;
  }
  template <class List>
  List list() {
    static_assert(std::is_trivially_copyable_v<typename List::value_type>);
    List items;
    const auto count = value<uint64_t>();
    TLT_CHECK(count <= bytes_.size() / sizeof(items[0]), "a list of ", count, " items in ",
              bytes_.size(), " bytes");
    items.resize(count);
    const std::string_view taken = take(count * sizeof(items[0]));
    if (count > 0) std::memcpy(items.data(), taken.data(), taken.size());
    return items;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(size_t count) {
    TLT_CHECK(count <= bytes_.size(), count, " bytes of ", bytes_.size());
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace tlt
