// Units of measure after numbers: `15\mbox{ cm}^2`, `5.4 \text{ cents}`, `36\%`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::math_equal {

// numerator/denominator of dimension^power: a litre is 1/1000 of length^3. A percent has no
// dimension; a degree, pi/180, is the only unit that is not a fraction.
struct Unit {
  int64_t numerator = 1;
  int64_t denominator = 1;
  std::string_view dimension = {};
  int power = 1;
  bool times_pi = false;
};

// One factor of a phrase: `per second` is {"second", -1}, `square inches` {"inch", 2}.
struct UnitFactor {
  std::string name;  // known to find_unit
  int exponent = 1;
};

// By singular, plural or abbreviation; nullptr: unknown.
const Unit* find_unit(std::string_view name);
inline bool is_unit_name(std::string_view name) { return find_unit(name) != nullptr; }

// `miles per hour`, `sq. cm`, `km/h`, `cm^3`; nullopt: a word is not a unit.
[[nodiscard]] std::optional<std::vector<UnitFactor>> try_unit_phrase(std::string_view phrase);

}  // namespace tlt::math_equal
