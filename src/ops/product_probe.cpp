// SPDX-License-Identifier: Apache-2.0
#include "ops/product_probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "ops/device_product.h"
#include "ops/padded_rows.h"

namespace tlt::ops {
namespace {

// Tiles of 128 columns that occupy a card of 132 multiprocessors well, and the least part of a sum
// that is worth a block of its own. To be measured on a card.
constexpr int64_t kTileColumns = 128, kEnoughTiles = 96, kLeastSlice = 512, kMostFirstSlices = 4;
// Tried where the first plan fails.
constexpr int64_t kMostSlices = 16, kSliceMultiple = 64;
constexpr int64_t kPaddings[] = {16, 64};
constexpr uint64_t kSeed = 1;
// Numbers of rows that are tried where a trial of all takes seconds for each matrix.
constexpr int64_t kFewCounts[] = {1, 2, 4, 8, 16, 40, 136, kMostPaddedRows};

// Random numbers on the device of `like`, of its type.
at::Tensor random_vector(const at::Tensor& like, uint32_t name, int64_t size) {
  at::Tensor out = at::empty({size}, at::kFloat);
  RandomStream random(kSeed, {.prompt = name});
  for (int64_t i = 0; i < size; ++i) out.data_ptr<float>()[i] = static_cast<float>(random.normal());
  return out.to(like.device(), like.scalar_type());
}

// values [R, …] of any strides: random, and row R - 1 - i is row i times `sign`.
void fill_mirrored(const at::Tensor& values, uint32_t name, double sign) {
  const int64_t half = values.size(0) / 2;
  values.zero_();
  if (half == 0) return;
  at::Tensor first = values.narrow(0, 0, half);
  at::mul_out(first, random_vector(values, name, half).unsqueeze(1),
              random_vector(values, name + 1, values.size(1)).unsqueeze(0));
  values.narrow(0, values.size(0) - half, half).copy_(first.flip(0) * sign);
}

// What a call of device_product() looks like, apart from its rows.
struct Form {
  at::ScalarType type;  // of the result
  bool adds_bias = false, adds_residual = false;
};

class Trial {
 public:
  Trial(const at::Tensor& right, std::span<const int64_t> counts) : right_(right), counts_(counts) {
    const int64_t most = counts_.back();
    const at::Tensor first = at::empty({kMostPaddedRows, right.size(0)}, right.options());
    fill_mirrored(first.t(), /*name=*/1, /*sign=*/-1);
    fill_mirrored(right, /*name=*/3, /*sign=*/1);
    x_ = at::cat(std::vector<at::Tensor>(static_cast<size_t>(most / kMostPaddedRows), first));
    // Zeros: larger numbers would hide the errors of the sums.
    bias_ = at::zeros({right.size(1)}, right.options().dtype(at::kFloat));
    residual_ = at::zeros({most, right.size(1)}, right.options());
  }

  // Whether rows keep their bits in every form of a call, each of which may be a kernel of its own.
  bool passes(const ProductPlan& plan, ProductKind kind) const {
    const at::ScalarType type = right_.scalar_type();
    std::vector<Form> forms;
    if (plan.slices == 1) forms = {{type}, {type, false, /*adds_residual=*/true}};
    if (plan.slices > 1 || kind == ProductKind::kForward)
      forms.push_back({at::kFloat, /*adds_bias=*/true});  // float32 sums, then the rest
    if (plan.slices == 1 && kind == ProductKind::kForward && type != at::kFloat)
      forms.push_back({at::kFloat});
    return std::ranges::all_of(forms, [&](const Form& form) { return keeps_rows(plan, form); });
  }

 private:
  at::Tensor product(const ProductPlan& plan, const Form& form, int64_t rows) const {
    // The last of the first 512 rows, so that a row is at another place of the call; or all.
    const int64_t first = std::max<int64_t>(0, kMostPaddedRows - rows);
    const at::Tensor x = x_.narrow(0, first, rows), residual = residual_.narrow(0, 0, rows);
    at::Tensor out = at::empty({rows, right_.size(1)}, right_.options().dtype(form.type));
    device_product({x, right_, plan}, out,
                   {.bias = form.adds_bias ? &bias_ : nullptr,
                    .residual = form.adds_residual ? &residual : nullptr});
    return out;
  }

  bool keeps_rows(const ProductPlan& plan, const Form& form) const {
    const at::Tensor want = product(plan, form, kMostPaddedRows);
    return std::ranges::all_of(counts_, [&](int64_t rows) {
      const at::Tensor got = product(plan, form, rows);
      const int64_t own = std::min(rows, kMostPaddedRows);
      const at::Tensor wanted = want.narrow(0, kMostPaddedRows - own, own);
      for (int64_t first = 0; first < rows; first += own)
        if (!at::equal(got.narrow(0, first, own), wanted)) return false;
      return true;
    });
  }

  const at::Tensor& right_;
  const std::span<const int64_t> counts_;
  at::Tensor x_, bias_, residual_;
};

// The plans to try, the cheapest first. A backward product has the rows of a training pass, which
// occupy a card.
std::vector<ProductPlan> candidates(int64_t sum, int64_t columns, ProductKind kind) {
  const ProductPlan first =
      kind == ProductKind::kForward ? first_plan(sum, columns) : ProductPlan{};
  std::vector<ProductPlan> all = {first};
  for (int64_t slices = 2 * first.slices; slices <= kMostSlices; slices *= 2)
    if (sum % (slices * kSliceMultiple) == 0) all.push_back({.slices = slices});
  for (const int64_t rows : kPaddings) all.push_back({first.slices, rows});
  return all;
}

}  // namespace

ProductPlan first_plan(int64_t sum, int64_t columns) {
  const int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
  ProductPlan plan;
  while (plan.slices < kMostFirstSlices && tiles * plan.slices < kEnoughTiles &&
         sum % (2 * plan.slices * kSliceMultiple) == 0 && sum / (2 * plan.slices) >= kLeastSlice)
    plan.slices *= 2;
  return plan;
}

std::optional<ProductPlan> find_plan(const at::Tensor& right, ProductKind kind,
                                     std::span<const int64_t> counts) {
  const Trial trial(right, counts);
  for (const ProductPlan& plan : candidates(right.size(0), right.size(1), kind))
    if (trial.passes(plan, kind)) return plan;
  return std::nullopt;
}

std::string name_of_matrix(const at::Tensor& weight) {
  return "[" + std::to_string(weight.size(0)) + ", " + std::to_string(weight.size(1)) + "] " +
         (weight.scalar_type() == at::kFloat ? "float32" : "bfloat16");
}

ProductPlans plan_products(at::Tensor& weight) {
  using Key = std::tuple<std::string, at::ScalarType, int64_t, int64_t>;
  static std::mutex mutex;
  static std::map<Key, ProductPlans> known;  // a property of the machine, not of a model
  const std::lock_guard lock(mutex);
  const Key key{weight.device().str(), weight.scalar_type(), weight.size(0), weight.size(1)};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto find = [&](const at::Tensor& right, ProductKind kind) {
    const std::vector<int64_t> all = row_counts(right.size(1));
    return find_plan(
        right, kind,
        weight.is_cuda() ? std::span<const int64_t>(all) : std::span<const int64_t>(kFewCounts));
  };
  const std::optional<ProductPlan> forward = find(weight.t(), ProductKind::kForward),
                                   backward = forward ? find(weight, ProductKind::kBackward)
                                                      : std::nullopt;
  weight.zero_();
  TLT_CHECK_INPUT(backward, "products with a matrix ", name_of_matrix(weight), " on ",
                  weight.device().str(),
                  " depend on the number of rows in a call, in slices and with padding too, so "
                  "results would depend on the batch; give --device cpu (trainer.device=cpu)");
  return known[key] = {*forward, *backward};
}

}  // namespace tlt::ops
