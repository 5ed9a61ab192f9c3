// SPDX-License-Identifier: Apache-2.0
#include "train/kl.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tlt::train {
namespace {

constexpr double kMaxDifference = 20.0;
constexpr double kMaxK3 = 10.0;

}  // namespace

KlType parse_kl_type(const std::string& name, std::string_view key) {
  if (name == "kl" || name == "k1") return KlType::kK1;
  if (name == "abs") return KlType::kAbs;
  if (name == "mse" || name == "k2") return KlType::kK2;
  if (name == "low_var_kl" || name == "k3") return KlType::kK3;
  throw InputError(check_internal::concat(key, " is '", name, "'; use kl, abs, mse or low_var_kl"));
}

KlEstimate estimate_kl(KlType type, double logprob, double reference) {
  const double difference = logprob - reference;
  switch (type) {
    case KlType::kK1:
      return {difference, 1};
    case KlType::kAbs:
      return {std::abs(difference), static_cast<double>((difference > 0) - (difference < 0))};
    case KlType::kK2:
      return {0.5 * difference * difference, difference};
    case KlType::kK3:
      break;
  }
  const double e = std::clamp(-difference, -kMaxDifference, kMaxDifference);
  const double value = std::exp(e) - e - 1;
  const bool is_free = std::abs(difference) <= kMaxDifference && value <= kMaxK3;
  return {std::min(value, kMaxK3), is_free ? 1 - std::exp(e) : 0};
}

}  // namespace tlt::train
