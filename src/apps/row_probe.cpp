// SPDX-License-Identifier: Apache-2.0
#include "apps/row_probe.h"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <numeric>

#include "base/check.h"
#include "model/activations.h"
#include "model/policy_model.h"
#include "rollout/sequence.h"

namespace tlt::apps {
namespace {

constexpr int64_t kRows = 37;  // three pages, the last one partly filled

// Sizes that are not multiples of the kernels' tiles.
model::ModelConfig probe_config() {
  model::ModelConfig config;
  config.family = model::Family::kQwen3;
  config.vocabulary = 200;
  config.hidden = 144;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_size = 32;
  config.intermediate = 272;
  config.max_positions = 64;
  config.tied = true;
  config.check("probe");
  return config;
}

// Logits [kRows, V] of one sequence, computed `rows_at_once` token rows at a time.
at::Tensor logits(const model::PolicyModel& policy, const std::vector<int32_t>& tokens,
                  int32_t rows_at_once) {
  kv::KvCache cache(policy.device(), policy.kv_shape(), ops::pages_for(kRows));
  std::vector<ops::PageId> pages(static_cast<size_t>(cache.pages()));
  std::iota(pages.begin(), pages.end(), 0);
  model::Activations activations(policy, kRows);
  at::Tensor all = policy.device().empty({kRows, policy.config().vocabulary}, at::kFloat);
  ops::Batch batch;
  for (int32_t first = 0; first < kRows; first += rows_at_once) {
    const int32_t rows = std::min(rows_at_once, static_cast<int32_t>(kRows) - first);
    batch.clear();
    batch.add(tokens.data() + first, rows, first, pages.data());
    at::Tensor part = all.narrow(0, first, rows);
    policy.logits(policy.forward(batch, cache, activations), part);
  }
  return all;
}

}  // namespace

std::string first_row_difference(const Device& device, at::ScalarType type) {
  model::PolicyModel policy(probe_config(), device, type);
  policy.initialize(/*seed=*/1);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kRows; ++i)
    tokens.push_back((i * 67 + 13) % static_cast<int32_t>(policy.config().vocabulary));
  const at::Tensor together = logits(policy, tokens, kRows);
  for (const int32_t rows_at_once : {1, 2, 5, 16}) {
    const at::Tensor apart = logits(policy, tokens, rows_at_once);
    for (int64_t row = 0; row < kRows; ++row)
      if (!at::equal(together[row], apart[row]))
        return fmt::format("token row {} of {} differs in a forward pass of {} rows", row, kRows,
                           rows_at_once);
  }
  return "";
}

namespace {

std::string text_of(const char* product, const ops::ProductPlan& plan) {
  std::string text = product;
  if (plan.slices > 1) text += fmt::format(" in {} slices", plan.slices);
  if (plan.least_rows > 1) text += fmt::format(", padded to {} rows", plan.least_rows);
  return text;
}

}  // namespace

std::vector<TriedMatrix> try_products(const Device& device, at::ScalarType type,
                                      const simulate::ModelShape& shape) {
  const int64_t q = shape.query_heads * shape.head_size, k = shape.kv_heads * shape.head_size;
  const struct {
    const char* name;
    int64_t rows, columns;
  } matrices[] = {{"qkv", q + 2 * k, shape.hidden},
                  {"output", shape.hidden, q},
                  {"gate_up", 2 * shape.intermediate, shape.hidden},
                  {"down", shape.hidden, shape.intermediate},
                  {"head", shape.vocabulary, shape.hidden}};
  std::vector<TriedMatrix> tried;
  for (const auto& [name, rows, columns] : matrices) {
    TriedMatrix& matrix = tried.emplace_back();
    matrix.name = fmt::format("{} [{}, {}] {}", name, rows, columns,
                              type == at::kFloat ? "float32" : "bfloat16");
    try {
      const ops::Weight weight(device, rows, columns, type);
      matrix.text = "rows keep their bits: " + text_of("forward", weight.plans().forward) + "; " +
                    text_of("backward", weight.plans().backward);
      matrix.is_good = true;
    } catch (const InputError& error) {
      matrix.text = error.what();
    }
  }
  return tried;
}

}  // namespace tlt::apps
