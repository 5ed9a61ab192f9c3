// Estimate: a weighted mean. Its owner makes it forget by reducing the weight; a prior is a mean
// with a weight.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tlt::drafter {

struct Estimate {
  double mean = 0;
  double weight = 0;  // number of observations that the mean is based on

  void add(double number, double number_weight) {
    if (number_weight <= 0) return;
    weight += number_weight;
    mean += (number - mean) * number_weight / weight;
  }
};

inline void to_json(nlohmann::json& json, const Estimate& estimate) {
  json = {estimate.mean, estimate.weight};
}
inline void from_json(const nlohmann::json& json, Estimate& estimate) {
  estimate = {json.at(0).get<double>(), json.at(1).get<double>()};
}

}  // namespace tlt::drafter
