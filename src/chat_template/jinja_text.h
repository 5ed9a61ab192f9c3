// Strings with the semantics of Python's str: counted in code points, with Python's definitions of
// whitespace, of printable characters and of numbers. Strings are valid UTF-8.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::chat_template::python {

int64_t length(std::string_view text);

// The characters.
std::vector<std::string_view> characters(std::string_view text);

// The character in UTF-8. REQUIRES: a valid code point.
void append(std::string& out, char32_t character);

bool is_space(char32_t character);

enum class Side { kBoth, kLeft, kRight };
// Strips whitespace, or any of `characters`, at that side.
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, std::string_view characters, Side side = Side::kBoth);

// Position of a part in the text, or npos. Takes linear time; std::string_view::find takes n^2.
size_t position_of(std::string_view text, std::string_view part);

using VisitPart = std::function<void(std::string_view)>;
// Splits at runs of whitespace, or at a separator that is not empty; at most `limit` times (-1: no
// limit). Calls visit(part) for each part, in order.
void split(std::string_view text, int64_t limit, const VisitPart& visit);
void split(std::string_view text, std::string_view separator, int64_t limit,
           const VisitPart& visit);
void split_lines(std::string_view text, const VisitPart& visit);

// Replaces the first `limit` occurrences (-1: all).
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);
int64_t count(std::string_view text, std::string_view part);

// JinjaFault: a character whose other case is more than one character ("ß").
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

std::string repr(std::string_view text);
std::string repr(double value);
std::string escape_html(std::string_view text);

// The value of a string as int() and float() parse it; nullopt: not a number, or beyond 64 bits.
std::optional<int64_t> try_integer(std::string_view text);
std::optional<double> try_float(std::string_view text);

// The positions that a slice visits: first, first + stride … before last.
struct SlicePlaces {
  int64_t first, last, stride = 1;
  bool has(int64_t at) const { return stride > 0 ? at < last : at > last; }
};
// REQUIRES: size >= 0, step != 0.
SlicePlaces slice_places(int64_t size, std::optional<int64_t> begin, std::optional<int64_t> end,
                         int64_t step);
// The characters at these positions of the text. REQUIRES: it has them.
std::string slice(std::string_view text, const SlicePlaces& places);

}  // namespace tlt::chat_template::python
