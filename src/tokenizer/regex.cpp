// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "base/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kMinJitStackBytes = 32 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;

// PCRE2's own \s also matches U+180E, which lost the property White_Space in Unicode 6.3.
constexpr std::string_view kWhiteSpaceRanges =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Letters and numbers of Unicode 15 and 16, which Oniguruma 6.9.10 has; PCRE2 10.42 has those of
// Unicode 14.
constexpr std::string_view kNewerLetters =
    R"(\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
    R"(\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kNewerNumbers =
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Translates one pattern, left to right.
class Translator {
 public:
  Translator(std::string_view pattern, bool with_newer)
      : pattern_(pattern), with_newer_(with_newer) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_character();
      } else {
        outside_character();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(check_internal::concat("pattern ", pattern_, " of the pre-tokenizer uses ",
                                            what,
                                            ", which Oniguruma and PCRE2 read differently; this "
                                            "tokenizer cannot be used"));
  }

  char peek(size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  void copy(size_t count) {
    out_.append(pattern_, at_, count);
    at_ += count;
  }

  void escape() {
    const char letter = peek(1);
    if (letter == 's' || letter == 'S') {
      white_space(letter == 'S');
    } else if (letter == 'p' || letter == 'P') {
      property();
    } else if (letter == 'u') {
      for (size_t i = 2; i < 6; ++i) {
        if (!std::isxdigit(static_cast<unsigned char>(peek(i)))) refuse("a short \\u");
      }
      out_.append("\\x{").append(pattern_, at_ + 2, 4).push_back('}');
      at_ += 6;
    } else if (letter == 'x' && peek(2) != '{') {
      refuse("\\x without braces");
    } else if (letter == '\0' ||
               (std::isalnum(static_cast<unsigned char>(letter)) &&
                std::string_view("dDrntfx").find(letter) == std::string_view::npos)) {
      refuse(std::string("\\") + letter);
    } else {
      copy(2);
    }
  }

  void white_space(bool is_negated) {
    if (in_class_ && is_negated) {
      out_.append("\\P{White_Space}");
    } else if (in_class_) {
      out_.append(kWhiteSpaceRanges);
    } else {
      out_.append(is_negated ? "[^" : "[").append(kWhiteSpaceRanges).push_back(']');
    }
    at_ += 2;
  }

  void property() {
    const size_t close = peek(2) == '{' ? pattern_.find('}', at_) : std::string_view::npos;
    if (close == std::string_view::npos) refuse("\\p without braces");
    const std::string_view whole = pattern_.substr(at_, close + 1 - at_),
                           name = whole.substr(3, whole.size() - 4);
    const bool is_category = !name.empty() && name.size() <= 2 &&
                             std::string_view("LMNPSZC").find(name[0]) != std::string_view::npos;
    if (!is_category) refuse(whole);  // scripts: PCRE2 counts script extensions
    const std::string_view newer = name == "L" ? kNewerLetters : name == "N" ? kNewerNumbers : "";
    const bool is_negated = peek(1) == 'P';
    if (!with_newer_ || newer.empty() || (in_class_ && is_negated)) {
      copy(whole.size());
      return;
    }
    if (!in_class_) out_.append(is_negated ? "[^" : "[");
    out_.append("\\p{").append(name).append("}").append(newer);
    if (!in_class_) out_.push_back(']');
    at_ += whole.size();
  }

  void class_character() {
    if (peek(0) == '[') refuse("a set inside a set");
    if (peek(0) == '&' && peek(1) == '&') refuse("&&");
    if (peek(0) == ']') in_class_ = false;
    copy(1);
  }

  void outside_character() {
    switch (peek(0)) {
      case '^':
      case '$':
        refuse(std::string(1, peek(0)));
      case '[':
        in_class_ = true;
        copy(peek(1) == '^' ? 2 : 1);
        if (peek(0) == ']') refuse("] as the first of a set");
        return;
      case '(':
        if (peek(1) == '?' || peek(1) == '*') group();
        copy(1);
        return;
      case '}':
        if (peek(1) == '+') refuse("a counted repeat followed by +");
        copy(1);
        return;
      default:
        copy(1);
    }
  }

  void group() const {
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"}) {
      if (pattern_.substr(at_).starts_with(known)) return;
    }
    refuse(pattern_.substr(at_, 4));
  }

  std::string_view pattern_;
  bool with_newer_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

// Whether a text may contain one of the newer letters and numbers, by the first byte of its
// characters.
bool may_be_newer(std::string_view text) {
  return std::ranges::any_of(text, [](char character) {
    const auto byte = static_cast<uint8_t>(character);
    return byte == 0xE1 || byte == 0xEA || byte >= 0xF0;
  });
}

}  // namespace

std::string to_pcre2(std::string_view pattern, bool with_newer) {
  return Translator(pattern, with_newer).run();
}

struct Regex::Code {
  explicit Code(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    TLT_CHECK_INPUT(code, "pattern ", pattern, " of the pre-tokenizer: ", error_text(error),
                    " at byte ", offset);
    has_jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  }

  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};
  bool has_jit = false;
};

struct Regex::Scratch {
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

void Regex::Free::operator()(Scratch* scratch) const {
  pcre2_match_data_free(scratch->match);
  pcre2_match_context_free(scratch->context);
  pcre2_jit_stack_free(scratch->stack);
  delete scratch;
}

Regex::Regex(std::shared_ptr<const Code> code, std::shared_ptr<const Code> newer_code)
    : code_(std::move(code)), newer_code_(std::move(newer_code)), scratch_(new Scratch) {
  scratch_->match = pcre2_match_data_create(1, nullptr);
  scratch_->context = pcre2_match_context_create(nullptr);
  scratch_->stack = pcre2_jit_stack_create(kMinJitStackBytes, kMaxJitStackBytes, nullptr);
  TLT_CHECK(scratch_->match && scratch_->context && scratch_->stack, "out of memory");
  pcre2_jit_stack_assign(scratch_->context, nullptr, scratch_->stack);
}

Regex::Regex(const Regex& other) : Regex(other.code_, other.newer_code_) {}

Regex::Regex(std::string_view pattern) {
  TLT_CHECK_INPUT(pattern.size() <= kMaxPatternBytes, "a pattern of the pre-tokenizer has ",
                  pattern.size(), " bytes; the limit is ", kMaxPatternBytes);
  *this = Regex(std::make_shared<Code>("(*LF)" + to_pcre2(pattern, /*with_newer=*/false)),
                std::make_shared<Code>("(*LF)" + to_pcre2(pattern, /*with_newer=*/true)));
}

Regex Regex::from_pcre2(const std::string& pattern) {
  const auto code = std::make_shared<Code>(pattern);
  return Regex(code, code);
}

Regex Regex::literal(std::string_view text) {
  std::string pattern;
  for (const char character : text) {
    if (std::ispunct(static_cast<unsigned char>(character))) pattern.push_back('\\');
    pattern.push_back(character);
  }
  return from_pcre2(pattern);
}

const Regex::Code& Regex::code_for(std::string_view text) const {
  return may_be_newer(text) ? *newer_code_ : *code_;
}

std::optional<Regex::Match> Regex::find(const Code& code, std::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int found = code.has_jit
                        ? pcre2_jit_match(code.code.get(), subject, text.size(), from, 0,
                                          scratch_->match, scratch_->context)
                        : pcre2_match(code.code.get(), subject, text.size(), from,
                                      PCRE2_NO_UTF_CHECK, scratch_->match, scratch_->context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  TLT_CHECK_INPUT(found >= 0, "the pre-tokenizer's pattern cannot be matched against a text of ",
                  text.size(), " bytes: ", error_text(found));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->match);
  return Match{bounds[0], bounds[1]};
}

}  // namespace tlt::tokenizer
