// SPDX-License-Identifier: Apache-2.0
#include "simulate/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace tlt::simulate {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
// ConnectX-7 of a DGX H100: 400 Gb/s a device; A100: 200 Gb/s; others: 100 Gb/s Ethernet.
constexpr double kNdr = 50 * kGiga, kHdr = 25 * kGiga, kEthernet = 12.5 * kGiga;

// Fitted to the table "A step of the tail" of docs/performance.md: within 10 % for
// rows of a draft tree and 11 % for a sequence each. A thread reads 39 GB/s where a part of
// 50 MB of weights stays in the cache and 21 GB/s from memory. Updates: `tlt bench train` with the
// headline's model and mean length, in two processes.
const CostConstants kCpu = {.memory_efficiency = 0.95,
                            .context_efficiency = 0.54,
                            .compute_efficiency = 0.74,
                            .overlap = 3,
                            .layer_seconds = 4e-6,
                            .level_seconds = 0,
                            .cycle_seconds = 1e-4,
                            .collective_seconds = 1e-5,
                            .train_efficiency = 0.6};

std::vector<DeviceSpec> make_devices() {
  return {
      {"H100", 989 * kTera, 3.35 * kTera, 80 * kGiga, 450 * kGiga, kNdr,
       "NVIDIA H100 data sheet, SXM"},
      {"H200", 989 * kTera, 4.8 * kTera, 141 * kGiga, 450 * kGiga, kNdr, "NVIDIA H200 data sheet"},
      {"H20", 148 * kTera, 4.0 * kTera, 96 * kGiga, 450 * kGiga, kNdr,
       "published comparisons; NVIDIA has no public data sheet"},
      {"A100", 312 * kTera, 2.039 * kTera, 80 * kGiga, 300 * kGiga, kHdr,
       "NVIDIA A100 data sheet, SXM 80 GB"},
      {"B200", 2250 * kTera, 8 * kTera, 180 * kGiga, 900 * kGiga, kNdr,
       "NVIDIA HGX B200 data sheet, per GPU"},
      {"GB200", 2500 * kTera, 8 * kTera, 186 * kGiga, 900 * kGiga, kNdr,
       "NVIDIA GB200 NVL72 data sheet, per GPU"},
      {"L40S", 362 * kTera, 0.864 * kTera, 48 * kGiga, 32 * kGiga, kEthernet,
       "NVIDIA L40S data sheet; PCIe 4.0 x16"},
      {"RTX5090", 209.5 * kTera, 1.792 * kTera, 32 * kGiga, 64 * kGiga, kEthernet,
       "NVIDIA Blackwell architecture paper; PCIe 5.0 x16"},
      {"RTX4090", 165.2 * kTera, 1.008 * kTera, 24 * kGiga, 32 * kGiga, kEthernet,
       "NVIDIA Ada architecture paper, float32 accumulation; PCIe 4.0 x16"},
      {"RTX3090", 71 * kTera, 0.936 * kTera, 24 * kGiga, 32 * kGiga, kEthernet,
       "NVIDIA Ampere GA102 architecture paper, float32 accumulation; PCIe 4.0 x16"},
      {"MI300X", 1307.4 * kTera, 5.3 * kTera, 192 * kGiga, 448 * kGiga, kNdr,
       "AMD Instinct MI300X data sheet"},
      // One core, and the share of memory of its worker.
      {"cpu", 0.233 * kTera, 39 * kGiga, 4 * kGiga, 10 * kGiga, 1 * kGiga,
       "one Zen 4 core, docs/performance.md; network: sum of the gradients of two processes of one "
       "host; memory and link are assumptions",
       kCpu}};
}

// Above 1 for `cpu`, whose peak is that of one core, in a worker that has several.
constexpr double kMostShare = 64;

}  // namespace

void CostConstants::check() const {
  CostConstants copy = *this;
  for (const OptionRef& ref : collect_options(copy)) {
    const double value = *std::get<double*>(ref.value);
    const bool is_share = ref.name.ends_with("efficiency");
    TLT_CHECK_INPUT(
        is_share ? value > 0 && value <= kMostShare : value >= 0 && value <= 1e3, "costs.",
        ref.name, " is ", value,
        is_share ? "; give a share above 0, at most 64" : "; give a number from 0 to 1000");
  }
  TLT_CHECK_INPUT(overlap >= 1, "costs.overlap is ", overlap, "; give at least 1");
}

std::span<const DeviceSpec> devices() {
  static const std::vector<DeviceSpec> all = make_devices();
  return all;
}

std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known) {
  std::vector<OptionRef> refs;
  for (const std::string& one : known)
    refs.push_back({one, Affects::kPlace, "", static_cast<bool*>(nullptr)});
  const std::string near = nearest_option(refs, name);
  return fmt::format("unknown {} {}; {}", what, name,
                     near.empty() ? fmt::format("known: {}", fmt::join(known, ", "))
                                  : "did you mean " + near + "?");
}

const DeviceSpec& find_device(const std::string& name) {
  const auto found = std::ranges::find(devices(), name, &DeviceSpec::name);
  std::vector<std::string> known;
  for (const DeviceSpec& device : devices()) known.push_back(device.name);
  TLT_CHECK_INPUT(found != devices().end(), unknown_name("device", name, known));
  return *found;
}

}  // namespace tlt::simulate
