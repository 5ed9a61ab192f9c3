// SPDX-License-Identifier: Apache-2.0
#include "base/local_time.h"

#include <array>

#include "base/check.h"

namespace tlt {
namespace {

constexpr const char* kFormat = "%Y-%m-%dT%H:%M:%S";

// %z and %Z are empty then.
std::tm without_zone(std::tm time) {
  time.tm_isdst = -1;
  time.tm_gmtoff = 0;
  time.tm_zone = nullptr;
  return time;
}

}  // namespace

std::tm local_time(std::time_t seconds) {
  std::tm time{};
  localtime_r(&seconds, &time);
  return without_zone(time);
}

std::string time_text(const std::tm& time) {
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), kFormat, &time)};
}

std::tm parse_local_time(const std::string& text, const std::string& place) {
  std::tm time{};
  const char* end = strptime(text.c_str(), kFormat, &time);
  TLT_CHECK_INPUT(end && *end == '\0', place, ": '", text,
                  "' is no time; give one like 2026-11-25T12:30:59");
  timegm(&time);  // sets the day of the week and of the year
  return without_zone(time);
}

}  // namespace tlt
