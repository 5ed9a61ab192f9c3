// Tokens of a mathematical answer: LaTeX as models and data sets write it, or plain text such as
// `sqrt(2)/2`.
//
// Removes what only changes the layout (`\left`, `\,`, `$`, `\displaystyle`); every sign has one
// spelling (`\times`, `\cdot`, `×` and `*` are `*`); a number is one token without its thousands
// separators. Time is linear in the text.
//
// Not here   the meaning of the tokens together (latex_parser.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::math_equal {

enum class TokenKind {
  kNumber,  // 1234.5, 6e23; `repeat` has the digits under a bar
  kLetter,  // x, alpha, pi, infty, `mathbb R`
  kName,    // frac, sqrt, sin, begin …: names with arguments
  kText,    // the content of \text{…}, and plain words
  kSign,    // + - * / ^ _ ! % deg dollar ( ) [ ] { } \{ \} , ; : = < <= in cup | & \\ …
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text = {};
  std::string repeat = {};
};

// The tokens, the last of which is kEnd. nullopt: an unknown command or character.
[[nodiscard]] std::optional<std::vector<Token>> try_tokenize_latex(std::string_view text);

// sin, arctan, ln, floor …
bool is_function_name(std::string_view name);

}  // namespace tlt::math_equal
