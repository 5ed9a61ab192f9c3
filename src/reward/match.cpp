// SPDX-License-Identifier: Apache-2.0
#include "reward/match.h"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/text.h"

namespace tlt::reward {

namespace {

// Backtracking points of one start position (measured: a million take about 20 ms) and memory for
// them.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimitKibibytes = 64 * 1024;

struct Deleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

void check_ground_truth(const RewardInput& row, std::string_view reward) {
  TLT_CHECK_INPUT(!trimmed(row.ground_truth).empty(), "a row has no ground truth; the reward ",
                  reward, " compares with reward_model.ground_truth, so give each row one");
}

}  // namespace

RewardResult ExactReward::score(const RewardInput& input) const {
  return {.score = trimmed(input.response) == trimmed(input.ground_truth) ? 1.0 : 0.0,
          .answer = std::string(trimmed(input.response))};
}

void ExactReward::check_row(const RewardInput& row) const { check_ground_truth(row, name()); }

// Immutable after construction; PCRE2 lets threads share both.
struct Pattern::Compiled {
  std::unique_ptr<pcre2_code, Deleter> code;
  std::unique_ptr<pcre2_match_context, Deleter> limits;
  bool has_group = false;
};

Pattern::Pattern(const std::string& option, const std::string& pattern)
    : option_(option), compiled_([&] {
        auto compiled = std::make_unique<Compiled>();
        int error = 0;
        size_t offset = 0;
        compiled->code.reset(pcre2_compile(bytes(pattern), pattern.size(),
                                           PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error,
                                           &offset, nullptr));
        TLT_CHECK_INPUT(compiled->code, option, " `", pattern,
                        "` is not a valid PCRE2 pattern: ", message_of(error), " at byte ", offset,
                        "; correct it there");
        compiled->limits.reset(pcre2_match_context_create(nullptr));
        TLT_CHECK(compiled->limits, "no memory for a match context");
        pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
        pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKibibytes);
        uint32_t groups = 0;
        pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
        compiled->has_group = groups > 0;
        return compiled;
      }()) {}

Pattern::~Pattern() = default;

bool Pattern::has_group() const { return compiled_->has_group; }

std::optional<Pattern::Match> Pattern::try_find(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, Deleter> found(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  TLT_CHECK(found, "no memory for match data");
  const int code = pcre2_match(compiled_->code.get(), bytes(text), text.size(), /*start=*/0,
                               /*options=*/0, found.get(), compiled_->limits.get());
  if (code == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (code < 0)
    throw Error(option_ + " on " + std::to_string(text.size()) + " bytes: " + message_of(code));
  const size_t* ends = pcre2_get_ovector_pointer(found.get());
  if (code < 2 || ends[2] == PCRE2_UNSET) return Match{};
  return Match{.group = text.substr(ends[2], ends[3] - ends[2])};
}

RewardResult RegexReward::score(const RewardInput& input) const {
  const auto match = pattern_.try_find(input.response);
  if (!match) return {};
  if (!pattern_.has_group()) return {.score = 1};
  const bool equal = match->group && trimmed(*match->group) == trimmed(input.ground_truth);
  return {.score = equal ? 1.0 : 0.0, .answer = std::string(trimmed(match->group.value_or("")))};
}

void RegexReward::check_row(const RewardInput& row) const {
  if (pattern_.has_group()) check_ground_truth(row, name());
}

RewardResult FormatReward::score(const RewardInput& input) const {
  return {.score = pattern_.try_find(input.response) ? 1.0 : 0.0};
}

}  // namespace tlt::reward
