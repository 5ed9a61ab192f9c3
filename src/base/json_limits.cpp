// SPDX-License-Identifier: Apache-2.0
#include "base/json_limits.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"

namespace tlt {
namespace {

// Greatest nesting depth, most members of one object, and values (a few more for empty lists and
// objects); counting ends beyond kMaxJsonDepth.
struct Extent {
  int64_t depth = 0, members = 0, values = 1;

  bool is_allowed() const {
    return depth <= kMaxJsonDepth && members <= kMaxJsonMembers && values <= kMaxJsonValues;
  }
};

Extent extent_of(std::string_view text) {
  Extent extent;
  std::vector<int64_t> members;  // of the open lists and objects; a list has none
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {  // brackets in a string do not count
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '[' || text[i] == '{') {
      members.push_back(0);
      ++extent.values;
      extent.depth = std::max<int64_t>(extent.depth, std::ssize(members));
      if (extent.depth > kMaxJsonDepth) break;
    } else if (members.empty()) {
      continue;
    } else if (text[i] == ',') {
      ++extent.values;
    } else if (text[i] == ']' || text[i] == '}') {
      members.pop_back();
    } else if (text[i] == ':') {
      extent.members = std::max(extent.members, ++members.back());
    }
  }
  return extent;
}

void check_depth(const Extent& extent, const std::string& place) {
  TLT_CHECK_INPUT(extent.depth <= kMaxJsonDepth, place, ": lists and objects nested more than ",
                  kMaxJsonDepth, " deep are not supported");
}

}  // namespace

bool is_too_deep_json(std::string_view text) { return extent_of(text).depth > kMaxJsonDepth; }

void check_json_depth(std::string_view text, const std::string& place) {
  check_depth(extent_of(text), place);
}

void check_json_limits(std::string_view text, const std::string& place) {
  const Extent extent = extent_of(text);
  check_depth(extent, place);
  TLT_CHECK_INPUT(extent.members <= kMaxJsonMembers, place, ": an object with more than ",
                  kMaxJsonMembers, " members is not supported");
  TLT_CHECK_INPUT(extent.values <= kMaxJsonValues, place, ": more than ", kMaxJsonValues,
                  " values in lists and objects are not supported");
}

nlohmann::ordered_json parse_limited_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  if (!extent_of(text).is_allowed()) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace tlt
