// KL divergence from a reference policy, estimated from the sampled tokens (J. Schulman,
// "Approximating KL divergence"; verl's kl_penalty).
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tlt::train {

enum class KlType { kK1, kAbs, kK2, kK3 };

// Parses kl or k1; abs; mse or k2; low_var_kl or k3. Throws InputError with `key` for other names.
KlType parse_kl_type(const std::string& name, std::string_view key);

struct KlEstimate {
  double value = 0;
  double slope = 0;  // derivative by the logprob
};

// The estimate for one token. Against overflow k3's difference is clamped to +-20 and its value to
// 10, as in verl.
KlEstimate estimate_kl(KlType type, double logprob, double reference);

}  // namespace tlt::train
