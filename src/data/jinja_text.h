// Text as Python's str treats it: counted in code points, with Python's idea of whitespace, of
// printable characters and of numbers as text. Texts are valid UTF-8.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::data::python {

int64_t length(std::string_view text);

// Each character.
std::vector<std::string_view> characters(std::string_view text);

// The character in UTF-8. REQUIRES: it is one.
void append(std::string& out, char32_t character);

bool is_space(char32_t character);

enum class Side { kBoth, kLeft, kRight };
// Without whitespace, or without any of `characters`, at that side.
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, std::string_view characters, Side side = Side::kBoth);

// Split at runs of whitespace, or at a separator that is not empty; at most `limit` times (-1: as
// often as it occurs), from the right where asked.
std::vector<std::string_view> split(std::string_view text, int64_t limit);
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t limit, bool from_right = false);
std::vector<std::string_view> split_from_right(std::string_view text, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// The first `limit` occurrences (-1: all).
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);
int64_t count(std::string_view text, std::string_view part);

// JinjaFault: a character whose other case is more than one character ("ß").
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

// What every character must be, of at least one.
enum class Class { kDigit, kAlphabetic, kAlphanumeric, kSpace };
bool is_all(std::string_view text, Class wanted);
// There is a letter with case, and all that have case have this one.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

std::string repr(std::string_view text);
std::string repr(double value);
std::string escape_html(std::string_view text);

// Of a text as int() and float() read it; nullopt: they would not, or it is beyond 64 bits.
std::optional<int64_t> try_integer(std::string_view text, int64_t base = 10);
std::optional<double> try_float(std::string_view text);

// The places a slice visits, in order. A step of 0 is none. REQUIRES: size >= 0, step != 0.
std::vector<int64_t> slice_places(int64_t size, std::optional<int64_t> begin,
                                  std::optional<int64_t> end, int64_t step);

}  // namespace tlt::data::python
