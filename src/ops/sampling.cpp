// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/cpu/bridge.h"
#include "ops/device_rows.h"

namespace tlt::ops {
namespace {

// The only computation of a logprob: the engine's and the trainer's are the same value.
float row_logprob(const RowStatistic& row, float logit, float inverse_temperature) {
  const float z = (logit - row.top) * inverse_temperature;
  return z - row.log_sum;
}

float lse_of(const RowStatistic& row, float inverse_temperature) {
  const float shift = row.top * inverse_temperature;
  return shift + row.log_sum;
}

struct Candidate {
  float z;  // (logit - largest logit) / temperature
  int32_t id;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.z > b.z || (a.z == b.z && a.id < b.id);
}

// The logits of the ids that may be sampled.
struct Choice {
  const float* logits;
  int64_t count;
  float top;  // the largest
  float inverse_temperature;
};

// Leaves in `kept` the candidates that top-k, top-p and min-p allow, most likely first.
void truncate(const Choice& choice, const SamplingRule& rule, std::vector<Candidate>& kept) {
  const int64_t count = choice.count;
  const int64_t k = rule.top_k > 0 ? std::min(rule.top_k, count) : count;
  const auto collect = [&](float threshold) {
    kept.clear();
    for (int64_t i = 0; i < count; ++i) {
      const float z = (choice.logits[i] - choice.top) * choice.inverse_temperature;
      if (z >= threshold) kept.push_back({z, static_cast<int32_t>(i)});
    }
  };
  const auto mass_of = [&] {
    double mass = 0;
    for (const Candidate& candidate : kept) mass += std::exp(static_cast<double>(candidate.z));
    return mass;
  };
  collect(-INFINITY);
  if (k < count) {
    std::nth_element(kept.begin(), kept.begin() + k, kept.end(), likelier);
    kept.resize(static_cast<size_t>(k));
  }
  double mass = mass_of();
  // Sorting a whole vocabulary is slow: candidates e^-16 times as likely as the first rarely matter
  // to top-p.
  if (rule.top_p < 1.0 && k == count) {
    collect(-16.0f);
    if (mass_of() < rule.top_p * mass) collect(-INFINITY);
  }
  std::sort(kept.begin(), kept.end(), likelier);
  if (rule.top_p < 1.0) {
    double reached = 0;
    size_t keep = 0;
    while (keep < kept.size() && (keep == 0 || reached < rule.top_p * mass))
      reached += std::exp(static_cast<double>(kept[keep++].z));
    kept.resize(keep);
  }
  if (rule.min_p > 0) {
    const double threshold = std::log(rule.min_p);
    while (kept.size() > 1 && kept.back().z < threshold) kept.pop_back();
  }
}

// `row`: statistic of the distribution that logprobs are of.
void list_top(const Choice& choice, const RowStatistic& row, const SampleRow& asked) {
  thread_local std::vector<int32_t> ids;
  ids.resize(static_cast<size_t>(choice.count));
  std::iota(ids.begin(), ids.end(), 0);
  const int64_t wanted = std::min(asked.top_count, choice.count);
  const auto more_likely = [&](int32_t a, int32_t b) {
    return choice.logits[a] > choice.logits[b] || (choice.logits[a] == choice.logits[b] && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + wanted, ids.end(), more_likely);
  asked.top->clear();
  for (int64_t i = 0; i < wanted; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    asked.top->push_back(
        {.token = id, .logprob = row_logprob(row, choice.logits[id], choice.inverse_temperature)});
  }
}

// `row`: as above.
Sampled sample_truncated(const Choice& choice, const RowStatistic& row, const SamplingRule& rule,
                         double u) {
  thread_local std::vector<Candidate> kept;
  truncate(choice, rule, kept);
  double mass = 0;
  for (const Candidate& candidate : kept) mass += std::exp(static_cast<double>(candidate.z));
  double reached = 0;
  size_t chosen = 0;
  for (; chosen + 1 < kept.size(); ++chosen) {
    reached += std::exp(static_cast<double>(kept[chosen].z));
    if (reached > u * mass) break;
  }
  const int32_t token = kept[chosen].id;
  return {token, row_logprob(row, choice.logits[token], choice.inverse_temperature), row.entropy};
}

// Samples by a TargetOnlyRule. Reads the whole vocabulary, whatever is truncated.
Sampled sample_target_only(const Choice& choice, const RowStatistic& statistic,
                           const SampleRow& row) {
  thread_local std::vector<Candidate> kept;
  truncate(choice, row.rule, kept);
  double mass = 0;
  for (const Candidate& candidate : kept) mass += std::exp(static_cast<double>(candidate.z));
  const auto sampled = [&](const Candidate& chosen) {
    return Sampled{chosen.id,
                   row_logprob(statistic, choice.logits[chosen.id], choice.inverse_temperature),
                   statistic.entropy};
  };
  double reached = 0, rest = mass;
  for (const int32_t draft_token : row.draft_tokens) {
    const auto found = std::ranges::find(kept, draft_token, &Candidate::id);
    if (found == kept.end()) continue;
    const double own = std::exp(static_cast<double>(found->z));
    reached += own;
    if (row.uniform <= reached / mass / row.target_only->threshold_acc ||
        own / mass >= row.target_only->threshold_single)
      return sampled(*found);
    rest -= own;
  }
  const Candidate* last = nullptr;  // of the other tokens
  double passed = 0;
  for (const Candidate& candidate : kept) {
    if (std::ranges::find(row.draft_tokens, candidate.id) != row.draft_tokens.end()) continue;
    last = &candidate;
    passed += std::exp(static_cast<double>(candidate.z));
    if (passed > row.rest_uniform * rest) break;
  }
  return sampled(last ? *last : kept.front());  // no other token: only rounding leads here
}

// Not TLT_CHECK: the sentence is for the user, and no place in the program helps.
void check_finite(bool is_finite) {
  if (is_finite) return;
  throw Error(
      "the model's logits are not finite: its weights are broken, or its learning rate was too "
      "high; start a run again with the same command and --override actor.optim.lr=… (a lower "
      "one), and if it ends here again, delete its newest checkpoint first");
}

Sampled sample_row(const float* logits, int64_t vocabulary, const SampleRow& asked) {
  const SamplingRule& rule = asked.rule;
  const double u = asked.uniform;
  const Kernels& kernels = cpu_kernels();
  const float inverse = static_cast<float>(1.0 / rule.logprob_temperature());
  const RowStatistic row =
      kernels.row_statistic(logits, vocabulary, inverse, /*with_entropy=*/true);
  check_finite(std::isfinite(row.top) && std::isfinite(row.log_sum));
  const int64_t count = asked.tokens > 0 ? std::min(asked.tokens, vocabulary) : vocabulary;
  // Statistic over the ids that may be sampled.
  const RowStatistic allowed =
      count < vocabulary && rule.temperature > 0
          ? kernels.row_statistic(logits, count, inverse, /*with_entropy=*/false)
          : row;
  const Choice choice{logits, count, allowed.top, inverse};
  if (asked.top) list_top(choice, row, asked);
  if (rule.temperature > 0 && asked.target_only) return sample_target_only(choice, row, asked);
  if (rule.temperature > 0 && rule.truncates()) return sample_truncated(choice, row, rule, u);
  const int32_t token = rule.temperature > 0
                            ? kernels.pick(logits, count, inverse, lse_of(allowed, inverse), u)
                            : kernels.arg_max(logits, count);
  return {token, row_logprob(row, logits[token], inverse), row.entropy};
}

}  // namespace

void sample_rows(const Device& device, const RowsToSample& asked, std::span<Sampled> sampled) {
  const at::Tensor& logits = asked.logits;
  const int64_t vocabulary = asked.vocabulary;
  const std::span<const SampleRow> rows = asked.rows;
  TLT_CHECK(logits.size(1) >= vocabulary && sampled.size() == rows.size());
  if (samples_on_device(device, rows)) {
    const at::Tensor on_device = device.empty({std::ssize(rows), kSampledWords}, at::kInt);
    launch_sample_rows(device, asked, on_device);
    return read_sampled(on_device, sampled);
  }
  // Other rules: the logits are copied to the host.
  at::Tensor own_host;
  at::Tensor& host = asked.host ? *asked.host : own_host;
  if (!host.defined()) host = logits.cpu();
  device.pool().run(std::ssize(rows), [&](int64_t i) {
    const SampleRow& row = rows[static_cast<size_t>(i)];
    TLT_CHECK(row.row >= 0 && row.row < host.size(0), "row ", row.row, " of logits");
    sampled[static_cast<size_t>(i)] =
        sample_row(host.data_ptr<float>() + row.row * host.stride(0), vocabulary, row);
  });
  // The same logprobs whatever rows are sampled together: those of the device's kernel, for all.
  if (const DeviceRows* own = device_rows(device); own && !logits.is_cpu()) {
    const at::Tensor on_device = device.empty({std::ssize(rows), kSampledWords}, at::kInt);
    own->sample(logits, vocabulary, rows, on_device, sampled);
    read_sampled(on_device, sampled);
  }
}

bool samples_on_device(const Device& device, std::span<const SampleRow> rows) {
  return device_rows(device) && std::ranges::all_of(rows, DeviceRows::is_sampled);
}

void launch_sample_rows(const Device& device, const RowsToSample& rows, const at::Tensor& sampled) {
  const DeviceRows* own = device_rows(device);
  TLT_CHECK(own, "no kernels of ", device.name());
  own->sample(rows.logits, rows.vocabulary, rows.rows, sampled);
}

void read_sampled(const at::Tensor& on_device, std::span<Sampled> sampled) {
  const at::Tensor host = on_device.cpu();
  TLT_CHECK(host.is_contiguous() && host.numel() == kSampledWords * std::ssize(sampled));
  std::memcpy(sampled.data(), host.const_data_ptr(), sampled.size_bytes());
  for (const Sampled& one : sampled) check_finite(one.token >= 0);
}

bool finds_top_tokens(const Device& device, int64_t count) {
  return device_rows(device) && count <= cuda::kMostTop;
}

void find_top_tokens(const Device& device, const RowsToSearch& rows, std::vector<TopToken>& top) {
  const DeviceRows* own = device_rows(device);
  TLT_CHECK(own && std::ssize(rows.inverse_temperatures) == rows.logits.size(0) &&
                rows.count <= rows.logits.size(1),
            rows.count, " most likely tokens on ", device.name());
  own->find_top_tokens(rows, top);
}

void row_statistics(const Device& device, const TargetRows& rows, RowStatistics& out) {
  if (const DeviceRows* own = device_rows(device)) return own->row_statistics(rows, out);
  const int64_t count = rows.targets.size(0), vocabulary = rows.vocabulary;
  const at::Tensor host = rows.logits.cpu(), wanted = rows.targets.cpu();
  for (at::Tensor* t : {&out.logprob, &out.lse, &out.entropy}) *t = at::empty({count}, at::kFloat);
  const Kernels& kernels = cpu_kernels();
  const float inverse = static_cast<float>(1.0 / rows.temperature);
  device.pool().run(count, [&](int64_t i) {
    const float* row_logits = host.data_ptr<float>() + i * host.stride(0);
    const int32_t target = wanted.data_ptr<int32_t>()[i];
    TLT_CHECK(target >= 0 && target < vocabulary, "target ", target, " of a vocabulary of ",
              vocabulary);
    const RowStatistic row =
        kernels.row_statistic(row_logits, vocabulary, inverse, /*with_entropy=*/true);
    out.logprob.data_ptr<float>()[i] = row_logprob(row, row_logits[target], inverse);
    out.lse.data_ptr<float>()[i] = lse_of(row, inverse);
    out.entropy.data_ptr<float>()[i] = row.entropy;
  });
}

void logits_backward(const Device& device, const TargetRows& rows, const RowStatistics& statistics,
                     const at::Tensor& d_logprob, const at::Tensor& d_entropy) {
  if (const DeviceRows* own = device_rows(device))
    return own->logits_backward(rows, statistics, d_logprob, d_entropy);
  const at::Tensor wanted = rows.targets.cpu();
  at::Tensor host = rows.logits.cpu();
  const Kernels& kernels = cpu_kernels();
  const float inverse = static_cast<float>(1.0 / rows.temperature);
  device.pool().run(wanted.size(0), [&](int64_t i) {
    kernels.logits_backward({.logits = host.data_ptr<float>() + i * host.stride(0),
                             .count = rows.vocabulary,
                             .columns = host.size(1),
                             .inverse_temperature = inverse,
                             .target = wanted.data_ptr<int32_t>()[i],
                             .lse = statistics.lse.data_ptr<float>()[i],
                             .entropy = statistics.entropy.data_ptr<float>()[i],
                             .d_logprob = d_logprob.data_ptr<float>()[i],
                             .d_entropy = d_entropy.data_ptr<float>()[i]});
  });
  if (!device.is_cpu()) rows.logits.copy_(host);
}

}  // namespace tlt::ops
