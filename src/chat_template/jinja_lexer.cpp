// SPDX-License-Identifier: Apache-2.0
#include "chat_template/jinja_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/utf8.h"
#include "chat_template/jinja_text.h"

namespace tlt::chat_template {

void fail_template(const std::string& name, int line, const std::string& text) {
  throw InputError(fmt::format("{}: line {}: {}", name, line, text));
}

namespace {

using Kind = JinjaToken::Kind;

constexpr size_t kMaxNameBytes = 100;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_name_begin(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

// Replaces \r\n and \r by \n, and drops one at the end.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      text += source[at];
    } else if (at + 1 >= source.size() || source[at + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : name_(name) {
    if (!is_valid_utf8(source)) throw InputError(name + ": not UTF-8");
    source_ = normalized(source);
  }

  std::vector<JinjaToken> run() {
    while (at_ < source_.size()) lex_text_and_tag();
    tokens_.push_back({.kind = Kind::kEnd, .line = line_, .text = {}});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& text) const { fail_template(name_, line_, text); }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
    if (bytes > 0) line_begins_ = source_[at_ - 1] == '\n';
  }

  void skip_space() { advance(rest().size() - python::strip(rest(), python::Side::kLeft).size()); }

  void push(Kind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }

  // Position of the next tag: "{{", "{%" or "{#".
  size_t find_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    }
    return std::string::npos;
  }

  // The text before a tag that begins with this sign, which may be stripped back to the beginning
  // of a line.
  std::string_view before_tag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return python::strip(text, python::Side::kRight);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_begins_) return text;
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    return python::strip(text.substr(begin)).empty() ? text.substr(0, begin) : text;
  }

  void lex_text_and_tag() {
    const size_t tag = find_tag();
    if (tag == std::string::npos) {
      push(Kind::kText, std::string(rest()));
      advance(source_.size() - at_);
      return;
    }
    const char sort = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view text =
        before_tag(std::string_view(source_).substr(at_, tag - at_), sign, sort == '{');
    if (!text.empty()) push(Kind::kText, std::string(text));
    advance(tag + 2 + (sign != '\0') - at_);
    if (sort == '#') return lex_comment();
    push(sort == '%' ? Kind::kBlockBegin : Kind::kVariableBegin);
    lex_tag(sort == '%');
  }

  void lex_comment() {
    size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment {# is not closed");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_block(sign);
  }

  // After a closed block or comment: drops its newline, or all whitespace after `-`.
  void end_block(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && rest().starts_with('\n')) {
      advance(1);
    }
  }

  void lex_tag(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    while (true) {
      skip_space();
      if (rest().empty()) fail(is_block ? "a block {% is not closed" : "{{ is not closed");
      if (open_.empty() && try_end_tag(close, is_block)) return;
      lex_token();
    }
  }

  bool try_end_tag(std::string_view close, bool is_block) {
    const char sign = rest()[0];
    const bool is_signed = sign == '-' || (is_block && sign == '+');
    if (!rest().substr(is_signed ? 1 : 0).starts_with(close)) return false;
    push(is_block ? Kind::kBlockEnd : Kind::kVariableEnd);
    advance((is_signed ? 1 : 0) + 2);
    if (is_block) {
      end_block(is_signed ? sign : '\0');
    } else if (is_signed) {
      skip_space();
    }
    return true;
  }

  void lex_token() {
    const char byte = rest()[0];
    if (is_digit(byte)) return lex_number();
    if (byte == '\'' || byte == '"') return lex_string(byte);
    if (is_name_begin(byte)) {
      size_t size = 1;
      while (size < rest().size() && (is_name_begin(rest()[size]) || is_digit(rest()[size])))
        ++size;
      if (size > kMaxNameBytes)
        fail(fmt::format("a name of {} letters is not supported; shorten it to {}", size,
                         kMaxNameBytes));
      push(Kind::kName, std::string(rest().substr(0, size)));
      return advance(size);
    }
    lex_operator();
  }

  void lex_number() {
    const auto digits_from = [&](size_t at) {
      while (at < rest().size() && is_digit(rest()[at])) ++at;
      return at;
    };
    size_t size = digits_from(0);
    const bool after_dot = !tokens_.empty() && tokens_.back().text == ".";
    const bool is_float =
        !after_dot && rest().substr(size).starts_with('.') && digits_from(size + 1) > size + 1;
    if (is_float) size = digits_from(size + 1);
    const std::string digits(rest().substr(0, size));
    if (size < rest().size() && is_name_begin(rest()[size]))
      fail(fmt::format("a number like {}{} is not supported; write it with digits and a point only",
                       digits, rest()[size]));
    push(is_float ? Kind::kFloat : Kind::kInteger, digits);
    const auto number = python::try_float(digits);
    const auto integer = python::try_integer(digits);
    if (is_float ? !number : !integer || (digits.size() > 1 && digits[0] == '0'))
      fail(digits + " is not a valid number");
    tokens_.back().number = number.value_or(0);
    tokens_.back().integer = integer.value_or(0);
    advance(size);
  }

  void lex_string(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) fail("a string is not closed");
    push(Kind::kString, unescaped(rest().substr(1, end - 1)));
    advance(end + 1);
  }

  // Like Python's unicode-escape.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\') {
        out += text[at];
        continue;
      }
      ++at;  // the lexer checked that there is one more
      static constexpr std::string_view kLetters = "abfnrtv\\'\"\n";
      static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      const size_t letter = kLetters.find(text[at]);
      if (letter < kMeanings.size()) {
        out += kMeanings[letter];
      } else if (text[at] == 'x' || text[at] == 'u') {
        const size_t digits = text[at] == 'x' ? 2 : 4;
        append_code(out, text.substr(at + 1, digits), digits);
        at += digits;
      } else if (text[at] == 'U' || text[at] == 'N' || is_digit(text[at])) {
        fail(
            fmt::format("\\{} in a string is not supported; write the character or \\u", text[at]));
      } else if (letter == std::string_view::npos) {
        out += '\\';
        out += text[at];
      }  // a newline after a backslash is left out
    }
    return out;
  }

  void append_code(std::string& out, std::string_view digits, size_t size) const {
    uint32_t code = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, code, 16);
    const bool is_good = digits.size() == size && read.ec == std::errc() && read.ptr == end &&
                         !(code >= 0xD800 && code <= 0xDFFF);
    if (!is_good) fail("a string has an invalid escape: " + std::string(digits));
    python::append(out, static_cast<char32_t>(code));
  }

  void lex_operator() {
    static constexpr auto kOperators = std::to_array<std::string_view>(
        {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"});
    for (const std::string_view sign : kOperators) {
      if (!rest().starts_with(sign)) continue;
      balance(sign);
      push(Kind::kOperator, std::string(sign));
      return advance(sign.size());
    }
    fail("an unexpected character: " + std::string(rest().substr(0, next_utf8(rest()).bytes)));
  }

  void balance(std::string_view sign) {
    if (sign == "(") open_ += ')';
    if (sign == "[") open_ += ']';
    if (sign == "{") open_ += '}';
    if (sign != ")" && sign != "]" && sign != "}") return;
    if (open_.empty() || open_.back() != sign[0])
      fail(fmt::format("{} where {} is expected", sign,
                       open_.empty() ? std::string("no bracket") : open_.substr(open_.size() - 1)));
    open_.pop_back();
  }

  const std::string& name_;
  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // the last token ended a line
  std::string open_;         // the expected closing brackets
  std::vector<JinjaToken> tokens_;
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace tlt::chat_template
