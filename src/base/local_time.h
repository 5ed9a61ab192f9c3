// Local time: a date and a time of day without time zone, as Python's datetime.now() has it. What
// chat templates print (strftime_now), so a run keeps the time of its start.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>

namespace tlt {

// In this machine's time zone, which the result does not have.
std::tm local_time(std::time_t seconds);
inline std::tm local_time_now() { return local_time(std::time(nullptr)); }

// "2026-11-25T12:30:59".
std::string time_text(const std::tm& time);
// InputError, beginning with `place`: not such a text.
std::tm parse_local_time(const std::string& text, const std::string& place);

}  // namespace tlt
