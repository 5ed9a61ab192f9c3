// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tlt::model {
namespace {

void scale_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const double positions = static_cast<double>(rope.original_max_positions);
  for (float& frequency : frequencies) {
    const double wave_length = 2 * std::numbers::pi / frequency;
    const double smooth = (positions / wave_length - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    if (wave_length > positions / rope.low_freq_factor)
      frequency = static_cast<float>(frequency / rope.factor);
    else if (wave_length >= positions / rope.high_freq_factor)
      frequency = static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
  }
}

// Frequencies that turn often within the original length are unchanged, those that turn less than
// once are divided by the factor; in between the two are mixed linearly by the frequency's index
// (YaRN, eq. 18-23).
void scale_yarn(const RopeConfig& rope, int64_t head_size, std::vector<float>& frequencies) {
  const auto size = static_cast<double>(head_size);
  const auto number_of = [&](double turns) {
    return size *
           std::log(static_cast<double>(rope.original_max_positions) /
                    (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = number_of(rope.beta_fast), high = number_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = static_cast<float>(frequencies[i] * (share / rope.factor + (1 - share)));
  }
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_size) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < head_size; i += 2)
    frequencies.push_back(static_cast<float>(
        1.0 / std::pow(rope.theta, static_cast<double>(i) / static_cast<double>(head_size))));
  if (rope.type == "llama3") scale_llama3(rope, frequencies);
  if (rope.type == "yarn") scale_yarn(rope, head_size, frequencies);
  if (rope.type == "linear")
    for (float& frequency : frequencies) frequency = static_cast<float>(frequency / rope.factor);
  return frequencies;
}

}  // namespace

at::Tensor rope_table(const RopeConfig& rope, int64_t head_size, int64_t positions) {
  const std::vector<float> frequencies = inverse_frequencies(rope, head_size);
  at::Tensor table = at::empty({positions, head_size}, at::kFloat);
  float* row = table.data_ptr<float>();
  const int64_t half = head_size / 2;
  for (int64_t position = 0; position < positions; ++position, row += head_size)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(rope.attention_factor * std::cos(static_cast<double>(angle)));
      row[half + i] =
          static_cast<float>(rope.attention_factor * std::sin(static_cast<double>(angle)));
    }
  return table;
}

const at::Tensor& RopeTable::reach(const Device& device, const ops::Batch& batch) {
  int64_t needed = 0;
  for (const ops::Segment& segment : batch.segments)
    needed = std::max<int64_t>(needed, segment.end_position());
  const int64_t have = table_.defined() ? table_.size(0) : 0;
  if (needed > have)
    table_ = rope_table(rope_, head_size_, std::max<int64_t>({needed, 2 * have, 2048}))
                 .to(device.torch());
  return table_;
}

}  // namespace tlt::model
