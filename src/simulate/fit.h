// Fit: compares the cost model with a table of measurements, and finds the constants with the
// smallest relative error.
//
// A line of the table is one of
//   {"device": "H100", "model": "Qwen2.5-7B", "tensor_parallel": 1, "tokens_per_second": 164.65}
//   {"device": …, "batch": 1, "strategy": "10_8_64", "accept_length": 8.21, "speedup": 3.62}
// The first is decoding of one sequence without speculation. The second is relative to decoding as
// many sequences without it; "batch" is 1 and "context" kTableContext where they are missing.
//
// Threading  pure functions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drafter/strategy.h"
#include "simulate/devices.h"
#include "simulate/model_shapes.h"

namespace tlt::simulate {

// The paper does not state the context of its tables; its table 4 is met within 12 % rms with any
// from 1,000 to 6,000 tokens (cost_model_test.cpp).
inline constexpr double kTableContext = 2000;

struct Measurement {
  DeviceSpec device;
  ModelShape model;
  int64_t tensor_parallel = 1;
  double batch = 1, context = kTableContext;
  std::optional<drafter::Strategy> strategy;  // nullopt: without speculation
  double accept_length = 1;
  double value = 0;  // speedup, or tokens per second without speculation
};

// InputError names the line.
std::vector<Measurement> read_measurements(const std::string& path);

double predict(const Measurement& measurement, const CostConstants& constants);

// Root mean square of predicted / measured - 1.
double rms_error(const std::vector<Measurement>& measurements, const CostConstants& constants);

// Varies compute_efficiency, layer_seconds, level_seconds and cycle_seconds, from `start`, by the
// simplex method of Nelder and Mead. memory_efficiency is kept: one device's ratios and a single
// absolute time hardly tell it from layer_seconds, and a copy of a large buffer measures it.
CostConstants fit_constants(const std::vector<Measurement>& measurements, CostConstants start);

}  // namespace tlt::simulate
