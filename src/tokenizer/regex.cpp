// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 4096;  // published ones have up to 600
constexpr size_t kMinJitStackBytes = 32 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;

constexpr int64_t kCalloutSteps = 8;
constexpr int64_t kTestsPerStep = 32;  // of one position against parts of a pattern
constexpr int64_t kFreeChoices = 16;   // ways to match a pattern without a callout
constexpr uint32_t kMaxRepeats = 255;  // PCRE2's limit of callout numbers, and …
constexpr uint32_t kNoRepeat = 255;    // … the number of a callout that ends no greedy repeat

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

// Counts the steps of matching in callouts, which the Translator adds wherever a pattern can match
// in many ways. The work between two callouts is bounded by the pattern's length, except for the
// characters that a greedy repeat takes; the callout after it counts those.
struct Meter {
  int64_t steps = 0;                       // left
  int64_t base_cost = 0;                   // of a callout
  std::array<size_t, kMaxRepeats> last{};  // where the last callout of each repeat was

  static int count(pcre2_callout_block* block, void* data) {
    auto& meter = *static_cast<Meter*>(data);
    const size_t at = block->current_position, begin = block->start_match;
    meter.steps -= meter.base_cost;
    if (block->callout_number != kNoRepeat) {
      size_t& last = meter.last[block->callout_number];
      const bool gives_back = at < last && last - at <= 4;  // the repeat drops one character
      if (!gives_back && at > begin) meter.steps -= static_cast<int64_t>(at - begin);
      last = at;
    }
    return meter.steps < 0 ? PCRE2_ERROR_CALLOUT : 0;
  }
};

// Translates one pattern, left to right.
class Translator {
 public:
  Translator(std::string_view pattern, bool with_newer, bool is_metered)
      : pattern_(pattern),
        with_newer_(with_newer),
        is_metered_(is_metered),
        tests_(std::ssize(pattern)) {}

  // Upper limit of the steps at one position, without repeats that have a callout. After run().
  int64_t base_cost() const { return kCalloutSteps + tests_ / kTestsPerStep; }

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
  static constexpr int64_t kUnbounded = INT64_MAX;
  struct Quantifier {
    int64_t least = 1, most = 1;
    bool is_lazy = false;
  };
  struct Group {
    size_t begin;  // of its content, in out_
    int64_t alternatives = 1;
  };

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

  // Size of the quantifier here, without a suffix; 0: there is none.
  size_t quantifier_size() const {
    if (peek(0) == '*' || peek(0) == '+' || peek(0) == '?') return 1;
    if (peek(0) != '{') return 0;
    const size_t end = pattern_.find_first_not_of("0123456789, ", at_ + 1);
    return end != std::string_view::npos && pattern_[end] == '}' ? end + 1 - at_ : 0;
  }

  // Copies the quantifier that is here, if any.
  Quantifier copy_quantifier() {
    const std::string_view sign = pattern_.substr(at_, quantifier_size());
    if (sign.empty()) return {};
    const bool is_counted = sign[0] == '{';
    Quantifier found = {.least = sign == "+" ? 1 : 0, .most = sign == "?" ? 1 : kUnbounded};
    if (is_counted) found = counted(sign);
    copy(sign.size());
    if (is_counted && peek(0) == '+') refuse("a counted repeat followed by +");
    found.is_lazy = peek(0) == '?';
    if (found.is_lazy || peek(0) == '+') copy(1);
    return found;
  }

  static Quantifier counted(std::string_view sign) {  // {2}, {2,} or {2,3}
    const auto number = [](std::string_view digits) {
      int64_t value = 0;
      for (const char c : digits)
        if (c >= '0' && c <= '9') value = std::min<int64_t>(10 * value + (c - '0'), 1 << 16);
      return value;
    };
    const size_t comma = sign.find(',');
    const int64_t least = number(sign.substr(0, comma));
    if (comma == std::string_view::npos) return {.least = least, .most = least};
    const int64_t most = number(sign.substr(comma));
    return {.least = least, .most = most == 0 ? kUnbounded : most};
  }

  // After the quantifier of a character or set: a callout, unless there are few choices.
  void repeat_character() {
    const Quantifier repeat = copy_quantifier();
    tests_ += repeat.most == kUnbounded ? repeat.least : repeat.most;
    if (!is_metered_) return;
    if (repeat.most == kUnbounded) {
      callout_at(out_.size(), repeat.is_lazy ? kNoRepeat : next_repeat());
    } else if (!try_choose(repeat.most - repeat.least + 1)) {
      callout_at(out_.size(), kNoRepeat);
    }
  }

  // The content of a group begins with a callout if it is repeated, or unless there are few choices.
  void close_group() {
    copy(1);
    if (groups_.empty()) return;  // PCRE2 refuses the pattern
    const Group group = groups_.back();
    groups_.pop_back();
    const Quantifier repeat = copy_quantifier();
    const int64_t choices = group.alternatives + (repeat.least == 0 ? 1 : 0);
    if (is_metered_ && (repeat.most > 1 || !try_choose(choices)))
      callout_at(group.begin, kNoRepeat);
  }

  // False if parts without a callout could match in too many ways together.
  bool try_choose(int64_t choices) {
    if (choices_ * choices > kFreeChoices) return false;
    choices_ *= choices;
    return true;
  }

  uint32_t next_repeat() {
    TLT_CHECK_INPUT(repeats_ < kMaxRepeats, "a pattern of the pre-tokenizer has more than ",
                    kMaxRepeats, " repeats");
    return repeats_++;
  }

  void callout_at(size_t place, uint32_t number) {
    out_.insert(place, "(?C" + std::to_string(number) + ")");
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
        open_group();
        return;
      case ')':
        close_group();
        return;
      case '|':
        if (!groups_.empty()) ++groups_.back().alternatives;
        copy(1);
        return;
      case '*':
      case '+':
      case '?':
      case '{':
        if (quantifier_size() == 0) return copy(1);
        return repeat_character();
      case '}':
        if (peek(1) == '+') refuse("a counted repeat followed by +");
        copy(1);
        return;
      default:
        copy(1);
    }
  }

  void open_group() {
    size_t head = peek(1) == '?' || peek(1) == '*' ? 0 : 1;
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (pattern_.substr(at_).starts_with(known)) head = known.size();
    }
    if (pattern_.substr(at_).starts_with("(?i)")) return copy(4);  // not a group
    if (head == 0) refuse(pattern_.substr(at_, 4));
    copy(head);
    groups_.push_back({.begin = out_.size()});
  }

  std::string_view pattern_;
  bool with_newer_, is_metered_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
  std::vector<Group> groups_;  // open ones
  uint32_t repeats_ = 0;       // greedy and unbounded, each with its callout
  int64_t choices_ = 1;        // of all parts that have no callout
  int64_t tests_;              // of one position, at most
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

std::string to_pcre2(std::string_view pattern, bool with_newer, bool is_metered) {
  return Translator(pattern, with_newer, is_metered).run();
}

struct Regex::Code {
  explicit Code(const std::string& pattern, int64_t cost = kCalloutSteps) : base_cost(cost) {
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
  int64_t base_cost;  // steps of a callout, and of a position where a match may begin
};

struct Regex::Scratch {
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  Meter meter;
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
  pcre2_set_callout(scratch_->context, Meter::count, &scratch_->meter);
}

Regex::Regex(const Regex& other) {
  if (other.code_) *this = Regex(other.code_, other.newer_code_);
  literal_ = other.literal_;
}

Regex::Regex(std::string_view pattern) {
  TLT_CHECK_INPUT(pattern.size() <= kMaxPatternBytes, "a pattern of the pre-tokenizer has ",
                  pattern.size(), " bytes; the limit is ", kMaxPatternBytes);
  const auto compiled = [&](bool with_newer) {
    Translator translator(pattern, with_newer, /*is_metered=*/true);
    const std::string translated = "(*LF)" + translator.run();
    return std::make_shared<Code>(translated, translator.base_cost());
  };
  *this = Regex(compiled(false), compiled(true));
}

Regex Regex::read(const nlohmann::json& description) {
  if (description.contains("String")) return literal(description.at("String").get<std::string>());
  return Regex(description.at("Regex").get<std::string>());
}

Regex Regex::from_pcre2(const std::string& pattern) {
  const auto code = std::make_shared<Code>(pattern);
  return Regex(code, code);
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.literal_ = text;
  return regex;
}

const Regex::Code* Regex::code_for(std::string_view text) const {
  if (!code_) return nullptr;
  return may_be_newer(text) ? newer_code_.get() : code_.get();
}

// std::string_view::find takes n^2 steps; memmem is linear.
std::optional<Regex::Match> Regex::find_literal(std::string_view text, size_t from) const {
  const void* found =
      memmem(text.data() + from, text.size() - from, literal_.data(), literal_.size());
  if (found == nullptr) return std::nullopt;
  const auto begin = static_cast<size_t>(static_cast<const char*>(found) - text.data());
  return Match{begin, begin + literal_.size()};
}

std::optional<Regex::Match> Regex::find(const Code& code, std::string_view text, size_t from,
                                        RegexBudget& budget) {
  scratch_->meter.steps = budget.steps;
  scratch_->meter.base_cost = code.base_cost;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int found = code.has_jit
                        ? pcre2_jit_match(code.code.get(), subject, text.size(), from, 0,
                                          scratch_->match, scratch_->context)
                        : pcre2_match(code.code.get(), subject, text.size(), from,
                                      PCRE2_NO_UTF_CHECK, scratch_->match, scratch_->context);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->match);
  const size_t tried = found >= 0 ? bounds[0] + 1 - from : text.size() - from;
  budget.steps = scratch_->meter.steps - code.base_cost * static_cast<int64_t>(tried);
  TLT_CHECK_INPUT(found != PCRE2_ERROR_CALLOUT && budget.steps >= 0,
                  "a pattern of tokenizer.json takes more than ", RegexBudget::kStepsPerByte,
                  " steps for each byte of the text; use the tokenizer.json that the model was "
                  "published with");
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  TLT_CHECK_INPUT(found >= 0, "the pre-tokenizer's pattern cannot be matched against a text of ",
                  text.size(), " bytes: ", error_text(found));
  return Match{bounds[0], bounds[1]};
}

}  // namespace tlt::tokenizer
