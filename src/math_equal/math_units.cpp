// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_units.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace tlt::math_equal {

namespace {

const std::map<std::string_view, Unit> kUnits = {
    {"percent", {1, 100, "", 1}},
    {"degree", {1, 180, "", 1, /*times_pi=*/true}},
    {"deg", {1, 180, "", 1, /*times_pi=*/true}},
    {"radian", {1, 1, "", 1}},
    {"rad", {1, 1, "", 1}},
    {"dollar", {1, 1, "money", 1}},
    {"cent", {1, 100, "money", 1}},
    {"m", {1, 1, "length", 1}},
    {"meter", {1, 1, "length", 1}},
    {"metre", {1, 1, "length", 1}},
    {"cm", {1, 100, "length", 1}},
    {"centimeter", {1, 100, "length", 1}},
    {"mm", {1, 1000, "length", 1}},
    {"millimeter", {1, 1000, "length", 1}},
    {"km", {1000, 1, "length", 1}},
    {"kilometer", {1000, 1, "length", 1}},
    {"inch", {127, 5000, "length", 1}},
    {"inche", {127, 5000, "length", 1}},  // the plural without its s
    {"in", {127, 5000, "length", 1}},
    {"foot", {381, 1250, "length", 1}},
    {"feet", {381, 1250, "length", 1}},
    {"ft", {381, 1250, "length", 1}},
    {"yard", {1143, 1250, "length", 1}},
    {"yd", {1143, 1250, "length", 1}},
    {"mile", {201168, 125, "length", 1}},
    {"mi", {201168, 125, "length", 1}},
    {"liter", {1, 1000, "length", 3}},
    {"litre", {1, 1000, "length", 3}},
    {"ml", {1, 1000000, "length", 3}},
    {"milliliter", {1, 1000000, "length", 3}},
    {"second", {1, 1, "time", 1}},
    {"sec", {1, 1, "time", 1}},
    {"s", {1, 1, "time", 1}},
    {"minute", {60, 1, "time", 1}},
    {"min", {60, 1, "time", 1}},
    {"hour", {3600, 1, "time", 1}},
    {"hr", {3600, 1, "time", 1}},
    {"h", {3600, 1, "time", 1}},
    {"day", {86400, 1, "time", 1}},
    {"week", {604800, 1, "time", 1}},
    {"year", {1, 1, "year", 1}},  // of no fixed length
    {"kg", {1, 1, "mass", 1}},
    {"kilogram", {1, 1, "mass", 1}},
    {"g", {1, 1000, "mass", 1}},
    {"gram", {1, 1000, "mass", 1}},
    {"lb", {45359237, 100000000, "mass", 1}},
    {"pound", {45359237, 100000000, "mass", 1}},
    {"unit", {1, 1, "unit", 1}}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// The words of a phrase; `/` and `^` are separate words, points and commas are removed.
std::vector<std::string> unit_words_of(std::string_view phrase) {
  std::vector<std::string> words(1);
  for (const char c : phrase) {
    if (c == '/' || c == '^') {
      words.emplace_back(1, c);
      words.emplace_back();
    } else if (c == ' ' || c == '.' || c == ',' || c == '{' || c == '}' || c == '~') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
}

}  // namespace

const Unit* find_unit(std::string_view name) {
  const std::string small = lower(name);
  auto found = kUnits.find(small);
  if (found == kUnits.end() && small.size() > 2 && small.ends_with('s')) {
    found = kUnits.find(std::string_view(small).substr(0, small.size() - 1));
  }
  return found == kUnits.end() ? nullptr : &found->second;
}

std::optional<std::vector<UnitFactor>> try_unit_phrase(std::string_view phrase) {
  std::vector<UnitFactor> factors;
  int sign = 1, power = 1;
  bool raises = false;
  for (const std::string& word : unit_words_of(phrase == "mph" ? "miles per hour" : phrase)) {
    const std::string small = lower(word);
    if (raises) {
      if (small != "2" && small != "3") return std::nullopt;
      factors.back().exponent = std::clamp(factors.back().exponent, -99, 99) * (small[0] - '0');
      raises = false;
    } else if (small == "per" || small == "/") {
      sign = -1;
    } else if (small == "square" || small == "sq" || small == "cubic" || small == "cu") {
      power = small.starts_with("sq") ? 2 : 3;
    } else if ((small == "squared" || small == "cubed" || small == "^") && !factors.empty()) {
      raises = small == "^";
      if (!raises)
        factors.back().exponent =
            std::clamp(factors.back().exponent, -99, 99) * (small == "squared" ? 2 : 3);
    } else if (is_unit_name(small)) {
      factors.push_back({small, sign * power});
      sign = power = 1;
    } else {
      return std::nullopt;
    }
  }
  if (factors.empty() || raises || sign != 1 || power != 1) return std::nullopt;
  constexpr int kLargestExponent = 12;
  const auto is_sane = [](const UnitFactor& f) { return std::abs(f.exponent) <= kLargestExponent; };
  if (!std::ranges::all_of(factors, is_sane)) return std::nullopt;
  return factors;
}

}  // namespace tlt::math_equal
