// DeviceSpec: what a vendor publishes about a device, and what was fitted to measurements on it.
//
// Threading  constant tables; any thread.
//
//   const DeviceSpec& device = find_device("H100");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"

namespace tlt::simulate {

// What data sheets do not say. The defaults are the result of `tlt simulate --fit` for figure 13 of
// the TLT paper and one line of its table 2 (docs/simulate.md); train_efficiency is from another
// paper.
struct CostConstants {
  double memory_efficiency = 0.9;   // of the published bandwidth, for weights; not fitted
  double context_efficiency = 0.9;  // the same for the KV cache
  double compute_efficiency = 0.8;  // of the published peak, in forward passes
  double overlap = 1;               // p of (reading^p + arithmetic^p)^(1/p); 1: one after the other
  double layer_seconds = 4.74e-5;   // starts and ends of a layer's kernels, whatever its rows
  double level_seconds = 3.44e-4;   // of a draft tree level, apart from its forward pass
  double cycle_seconds = 3.98e-3;   // trees, acceptance, the drafter's extension: of a cycle
  double collective_seconds = 8e-6;  // latency of an all-reduce within a node
  double train_efficiency = 0.4;     // of the peak, in updates

  void visit(auto& v) {
    const auto add = [&](double& value, const char* name, const char* help) {
      v(value, name, Affects::kResults, help);
    };
    add(memory_efficiency, "memory_efficiency", "Share of the bandwidth that weights are read at.");
    add(context_efficiency, "context_efficiency", "The same for the KV cache.");
    add(compute_efficiency, "compute_efficiency", "Share of the peak in forward passes.");
    add(overlap, "overlap", "p of (reading^p + arithmetic^p)^(1/p); 1: one after the other.");
    add(layer_seconds, "layer_seconds", "Seconds per layer whatever its rows.");
    add(level_seconds, "level_seconds", "Seconds per draft tree level besides its forward pass.");
    add(cycle_seconds, "cycle_seconds", "Seconds per engine step that speculates.");
    add(collective_seconds, "collective_seconds", "Latency of an all-reduce within a node.");
    add(train_efficiency, "train_efficiency", "Share of the peak in updates.");
  }
  // Throws InputError if a value is impossible.
  void check() const;
};

struct DeviceSpec {
  std::string name;
  double peak = 0;              // FLOP/s, dense bfloat16
  double memory_bandwidth = 0;  // bytes/s
  double memory_bytes = 0;
  double link_bandwidth = 0;     // bytes/s and direction, to the other devices of the node
  double network_bandwidth = 0;  // bytes/s and direction, to other nodes
  std::string source;
  CostConstants constants = {};

  double ridge() const { return peak / memory_bandwidth; }
};

std::span<const DeviceSpec> devices();
// InputError with the nearest name or all names.
const DeviceSpec& find_device(const std::string& name);

// "unknown device H1OO; did you mean H100?", or the list of names.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known);

}  // namespace tlt::simulate
