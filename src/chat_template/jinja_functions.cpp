// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "chat_template/jinja_builtins.h"
#include "chat_template/jinja_operations.h"

namespace tlt::chat_template {
namespace {

JinjaValue dictionary_of(const JinjaArguments& arguments, JinjaHost& host) {
  JinjaValue::Pairs pairs;
  for (const auto& [name, value] : arguments.named) pairs.emplace_back(JinjaValue(name), value);
  host.meter.spend_items(std::ssize(pairs));
  return JinjaValue::dictionary(std::move(pairs));
}

JinjaValue make_namespace(const JinjaArguments& arguments, JinjaHost& host) {
  host.meter.spend_items(std::ssize(arguments.named));
  return JinjaValue(&host.namespaces.emplace_back(JinjaNamespace{arguments.named}));
}

int64_t whole(const JinjaValue& value) {
  check_defined(value);
  const auto integer = value.try_integer();
  if (!integer) throw JinjaFault("range takes integers, not a value of kind " + value.kind());
  return *integer;
}

JinjaValue range(const JinjaArguments& arguments, JinjaHost& host) {
  const JinjaValue::List& given = arguments.positional;
  if (given.empty()) throw JinjaFault("range needs 1 arguments");
  const int64_t begin = given.size() > 1 ? whole(given[0]) : 0;
  const int64_t end = whole(given[given.size() > 1 ? 1 : 0]);
  const int64_t step = given.size() > 2 ? whole(given[2]) : 1;
  if (step == 0) throw JinjaFault("range with a step of 0");
  constexpr int64_t kLongest = 100000;  // Jinja's limit
  JinjaValue::List numbers;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (std::ssize(numbers) >= kLongest) throw JinjaFault("range is too long");
    numbers.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  host.meter.spend_items(std::ssize(numbers));
  return JinjaValue::list(std::move(numbers), JinjaValue::Row::kView);
}

JinjaValue raise(const JinjaArguments& arguments, JinjaHost& host) {
  if (arguments.positional.empty()) throw JinjaFault("raise_exception needs 1 arguments");
  throw JinjaFault("the template refuses: " + to_text(arguments.positional[0], host.meter));
}

JinjaValue time_now(const JinjaArguments& arguments, JinjaHost& host) {
  if (arguments.positional.empty() || !arguments.positional[0].is_text())
    throw JinjaFault("strftime_now takes a string");
  const std::string& format = arguments.positional[0].text();
  std::array<char, 1024> text{};
  if (format.size() >= text.size()) throw JinjaFault("strftime_now: the format is too long");
  host.meter.spend(100);
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &host.now);
  if (size == 0 && !format.empty()) throw JinjaFault("strftime_now: the format is too long");
  return JinjaValue(std::string(text.data(), size));
}

constexpr auto kFunctions = std::to_array<JinjaFunction>({{"dict", 0, true, dictionary_of},
                                                          {"namespace", 0, true, make_namespace},
                                                          {"raise_exception", 1, false, raise},
                                                          {"range", 3, false, range},
                                                          {"strftime_now", 1, false, time_now}});

}  // namespace

const JinjaFunction* try_jinja_function(std::string_view name) {
  const auto found = std::ranges::find(kFunctions, name, &JinjaFunction::name);
  return found == kFunctions.end() ? nullptr : &*found;
}

}  // namespace tlt::chat_template
