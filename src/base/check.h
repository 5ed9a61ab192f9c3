// Checks: the two ways in which a function reports failure.
//
//   TLT_CHECK(free > 0, "release of free page ", page);          // a bug: Error
//   TLT_CHECK_INPUT(rows > 0, path, ": no rows; give a JSONL file with one prompt per line");
//                                                                // the user's mistake: InputError
//
// An Error has file, line and condition in its message. apps/main.cpp catches both: Error is exit
// code 1, InputError exit code 2. The message of an InputError is one sentence: what is wrong,
// where, and what to type instead.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tlt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wrong option, file or weight shape: something that the user can correct. The text may quote
// strings of any length and with any bytes: the message is one_sentence() of it.
class InputError : public Error {
 public:
  explicit InputError(const std::string& text);
};

namespace check_internal {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  ((void)(out << parts), ...);
  return out.str();
}

[[noreturn]] void fail(const char* file, int line, const char* condition, const std::string& text);

}  // namespace check_internal
}  // namespace tlt

#define TLT_CHECK(condition, ...)                                              \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::tlt::check_internal::fail(__FILE__, __LINE__, #condition,              \
                                  ::tlt::check_internal::concat(__VA_ARGS__)); \
  } while (false)

#define TLT_CHECK_INPUT(condition, ...)                                    \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      throw ::tlt::InputError(::tlt::check_internal::concat(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define TLT_DCHECK(condition, ...) \
  do {                             \
  } while (false)
#else
#define TLT_DCHECK(condition, ...) TLT_CHECK(condition, __VA_ARGS__)
#endif
