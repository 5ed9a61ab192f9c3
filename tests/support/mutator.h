// Mutator: makes an input that is nearly another one, like damaged, outdated or malicious files.
//
// bytes() flips, deletes, repeats and splices bytes and inserts words of a dictionary and numbers
// at the limits of their types. json() does the same with the tree of a JSON text, so that the
// result is still JSON; it changes bytes if the text is not JSON.
//
// Owns       the random state: the same seed gives the same inputs.
//
//   Mutator mutator(/*seed=*/1, {"dtype", "shape"});
//   const std::string damaged = mutator.bytes(whole, /*other=*/another_whole);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tlt::tests {

class Mutator {
 public:
  using Json = nlohmann::ordered_json;

  Mutator(uint64_t seed, std::vector<std::string> dictionary)
      : random_(seed), dictionary_(std::move(dictionary)) {}

  // [0, limit). REQUIRES: limit > 0.
  size_t below(size_t limit) { return random_() % limit; }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }

  // Makes one or a few changes. `other` is a source of parts.
  std::string bytes(std::string text, std::string_view other) {
    do {
      change_bytes(text, other);
    } while (!one_in(3));
    return text;
  }

  std::string json(const std::string& text, const std::string& other) {
    Json tree = parse(text);
    const Json more = parse(other);
    if (tree.is_discarded()) return bytes(text, other);
    do {
      change_node(some_node(tree), more);
    } while (!one_in(3));
    std::string made = tree.dump(-1, ' ', one_in(2), Json::error_handler_t::replace);
    if (const size_t deep = made.find(kDeep); deep != made.npos)
      made.replace(deep - 1, kDeep.size() + 2, nested());
    return made;
  }

 private:
  static constexpr std::string_view kDeep = "(deep)";  // represents nested lists

  static constexpr std::array<std::string_view, 16> kNumbers = {"0",
                                                                "-1",
                                                                "1",
                                                                "255",
                                                                "65536",
                                                                "2147483647",
                                                                "-2147483649",
                                                                "4294967296",
                                                                "9223372036854775807",
                                                                "-9223372036854775808",
                                                                "18446744073709551616",
                                                                "1e308",
                                                                "1e-400",
                                                                "0.5",
                                                                "-0",
                                                                "999999999999999999999999"};

  // Begin and end of a part of the text; short ones are more likely.
  std::pair<size_t, size_t> part(std::string_view text) {
    const size_t begin = below(text.size() + 1);
    const size_t most = std::min(text.size() - begin, size_t{1} << below(12));
    const size_t end = begin + below(most + 1);
    return one_in(2) ? std::pair(begin, end)
                     : std::pair(word_boundary(text, begin), word_boundary(text, end));
  }
  // The next position where a word, a number or a sign ends.
  static size_t word_boundary(std::string_view text, size_t place) {
    const auto is_of_word = [&](size_t i) {
      return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_';
    };
    while (place > 0 && place < text.size() && is_of_word(place - 1) && is_of_word(place)) ++place;
    return place;
  }
  std::string copy_of_part(std::string_view text) {
    const auto [begin, end] = part(text);
    return std::string(text.substr(begin, end - begin));
  }
  std::string repeated(const std::string& text) {
    const size_t times = 1 + below(size_t{1} << below(13));
    std::string result;
    for (size_t i = 0; i < times && result.size() < kMaxGrowth; ++i) result += text;
    return result;
  }
  // Discarded: not JSON, or so deep that writing it, which the library does recursively, would
  // overflow the stack.
  static Json parse(std::string_view text) {
    const auto deeper = [](int depth, Json::parse_event_t, Json&) {
      if (depth > 500) throw std::length_error("deep");
      return true;
    };
    try {
      return Json::parse(text, deeper, /*allow_exceptions=*/false);
    } catch (const std::length_error&) {
      return Json::value_t::discarded;
    }
  }

  std::string nested() {
    const size_t depth = size_t{1} << below(18);
    return std::string(depth, '[') + std::string(depth, ']');
  }
  std::string word() {
    return std::string(dictionary_.empty() || one_in(4) ? one_of(kNumbers)
                                                        : std::string_view(one_of(dictionary_)));
  }

  void change_bytes(std::string& text, std::string_view other) {
    const auto [begin, end] = part(text);
    switch (below(9)) {
      case 0:  // a bit
        if (begin < text.size()) text[begin] = static_cast<char>(text[begin] ^ (1 << below(8)));
        break;
      case 1:  // a byte
        if (begin < text.size()) text[begin] = static_cast<char>(below(256));
        break;
      case 2:
        text.erase(begin, end - begin);
        break;
      case 3:
        text.insert(begin, repeated(text.substr(begin, end - begin)));
        break;
      case 4:  // a part of another input
        text.replace(begin, end - begin, copy_of_part(other));
        break;
      case 5:  // the beginning of this, the end of another
        text.replace(begin, text.npos, other.substr(below(other.size() + 1)));
        break;
      case 6:
        text.insert(begin, one_in(8) ? repeated(word()) : word());
        break;
      case 7:
        change_number(text, begin);
        break;
      default:
        change_integer(text, begin);
    }
  }

  // Replaces the next number in the text.
  void change_number(std::string& text, size_t begin) {
    constexpr std::string_view kDigits = "0123456789";
    const size_t first = text.find_first_of(kDigits, begin);
    if (first == text.npos) return;
    const size_t last = std::min(text.find_first_not_of(kDigits, first), text.size());
    text.replace(first, last - first, one_of(kNumbers));
  }

  // Changes an integer of a binary format, such as a length: little endian, one to eight bytes.
  void change_integer(std::string& text, size_t begin) {
    static constexpr uint64_t kEdges[] = {0,       1,         0x7f,       0x80,       0xff,
                                          0x7fff,  0xffff,    0x7fffffff, 1ULL << 31, UINT32_MAX,
                                          1 << 20, INT64_MAX, 1ULL << 63, UINT64_MAX};
    const uint64_t value = one_of(kEdges) + (one_in(2) ? below(16) : 0);
    const size_t size = size_t{1} << below(4);
    for (size_t i = 0; i < size && begin + i < text.size(); ++i)
      text[begin + i] = static_cast<char>(value >> (8 * i) & 0xff);
  }

  // A random node of the tree, rarely the root.
  Json& some_node(Json& root) {
    Json* node = &root;
    while (node->is_structured() && !node->empty() && !one_in(6)) {
      auto child = node->begin();
      std::advance(child, below(node->size()));
      node = &*child;
    }
    return *node;
  }
  Json copy_of_node(const Json& tree) {
    Json copy = tree.is_discarded() ? Json() : tree;
    return some_node(copy);
  }

  void change_node(Json& node, const Json& other) {
    switch (below(8)) {
      case 0:
        node = copy_of_node(other);
        break;
      case 1:
        node = edge_value();
        break;
      case 2:  // fewer items
        if (node.is_structured() && !node.empty())
          node.erase(std::next(node.begin(), below(node.size())));
        break;
      case 3:  // more items
        if (node.is_array()) {
          const Json item = node.empty() || one_in(2) ? copy_of_node(other) : Json(one_of(node));
          for (size_t i = 1 + below(size_t{1} << below(8)); i > 0; --i) node.push_back(item);
        } else if (node.is_object()) {
          node[word()] = copy_of_node(other);
        }
        break;
      case 4:  // another name for a member
        if (node.is_object() && !node.empty()) {
          const auto item = std::next(node.begin(), below(node.size()));
          const Json value = *item;
          node.erase(item);
          node[one_in(2) ? word() : bytes(word(), word())] = value;
        }
        break;
      case 5:
        node = kDeep;
        break;
      case 6:
        if (node.is_string()) node = bytes(node.get<std::string>(), word());
        break;
      default: {
        Json copy = node;
        node = some_node(copy);
      }
    }
  }
  Json edge_value() {
    const Json values[] = {
        nullptr, true,       false,      0,  -1,     1,   INT64_MAX,     INT64_MIN,
        1e308,   UINT64_MAX, 2147483648, "", word(), 0.5, Json::array(), Json::object()};
    return one_of(values);
  }

  static constexpr size_t kMaxGrowth = 1 << 16;

  std::mt19937_64 random_;
  const std::vector<std::string> dictionary_;
};

}  // namespace tlt::tests
