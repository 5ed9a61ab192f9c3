// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "tokenizer/nfc.h"

namespace tlt::tokenizer {
namespace {

constexpr size_t kMaxNormalizers = 16;

}  // namespace

Normalizer::Normalizer(const nlohmann::json& description) {
  if (!description.is_null()) add_steps(description);
}

void Normalizer::add_steps(const nlohmann::json& description) {
  TLT_CHECK_INPUT(steps_.size() < kMaxNormalizers, "normalizer: more than ", kMaxNormalizers,
                  " steps");
  const auto type = description.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& part : description.at("normalizers")) add_steps(part);
  } else if (type == "NFC") {
    steps_.push_back({.is_nfc = true});
  } else if (type == "Prepend") {
    steps_.push_back({.prefix = description.at("prepend").get<std::string>()});
  } else if (type == "Replace") {
    steps_.push_back({.replacement = Replacement(description)});
  } else {
    throw InputError("normalizer of type " + type +
                     " is not supported; known: NFC, Prepend, Replace, Sequence");
  }
}

bool Normalizer::try_change(Step& step, std::string_view text, const RewriteLimits& limits,
                            std::string& out) {
  if (step.is_nfc) {
    if (is_surely_nfc(text)) return false;
    out = to_nfc(text);
    return true;
  }
  if (step.replacement) return step.replacement->try_apply(text, limits, out);
  if (text.empty()) return false;
  limits.check(step.prefix.size() + text.size());
  out = step.prefix;
  out += text;
  return true;
}

std::string_view Normalizer::apply(std::string_view text, RegexBudget& budget,
                                   std::string& buffer) {
  const RewriteLimits limits("normalizer", text, budget);
  for (Step& step : steps_) {
    if (!try_change(step, text, limits, spare_)) continue;
    std::swap(spare_, buffer);
    text = buffer;
  }
  return text;
}

}  // namespace tlt::tokenizer
