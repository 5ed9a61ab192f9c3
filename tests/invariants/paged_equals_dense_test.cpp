// Invariant: the forward pass over the paged cache gives the logits of a dense decoder,
// bit-identical for any division into chunks and any placement of pages.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "model/activations.h"
#include "tests/support/dense_model.h"
#include "tests/support/every_model.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt::tests {
namespace {

using model::Family;

constexpr int64_t kPages = 40;

class PagedEqualsDense : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType>> {
 protected:
  Family family() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  // A row's error, relative to the row's size. bfloat16 has eight bits, rounded about twenty times.
  double allowed() const { return type() == at::kFloat ? 1e-5 : 3e-2; }

  std::vector<std::vector<int32_t>> sequences() const {
    std::vector<std::vector<int32_t>> sequences;
    for (const int64_t length : {1, 2, 15, 16, 17, 47, 64, 130})
      sequences.push_back(random_tokens(3, static_cast<uint32_t>(sequences.size()), length,
                                        tiny_config(family()).vocabulary));
    return sequences;
  }

  // Passes the rows of one forward pass to the cache, then damages it.
  using Damage =
      std::function<void(int64_t pass, kv::KvCache&, const std::vector<std::vector<ops::PageId>>&)>;

  // Logits [T, V] of each sequence, computed in chunks of 1 to `max_chunk` rows, all sequences
  // interleaved, in pages assigned by `seed`.
  std::vector<at::Tensor> paged(uint64_t seed, int64_t max_chunk, const Damage& damage = {}) const {
    const auto all = sequences();
    RandomStream random(seed, {});
    std::vector<ops::PageId> free(kPages);
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<ops::PageId>(i);
    random.shuffle(free);
    std::vector<std::vector<ops::PageId>> pages(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto count = static_cast<std::ptrdiff_t>((all[i].size() + 15) / 16);
      pages[i].assign(free.end() - count, free.end());
      free.resize(free.size() - static_cast<size_t>(count));
    }
    kv::KvCache cache(model_->device(), model_->kv_shape(), kPages);
    model::Activations activations(*model_, 64);
    std::vector<std::vector<at::Tensor>> logits(all.size());
    std::vector<size_t> done(all.size());
    for (int64_t pass = 0;; ++pass) {
      ops::Batch batch;
      std::vector<size_t> whose;
      for (size_t i = 0; i < all.size(); ++i) {
        const size_t rows = std::min<size_t>(all[i].size() - done[i],
                                             1 + random.below(static_cast<uint64_t>(max_chunk)));
        if (rows == 0) continue;
        batch.add(&all[i][done[i]], static_cast<int32_t>(rows), static_cast<int32_t>(done[i]),
                  pages[i].data());
        whose.push_back(i);
        done[i] += rows;
      }
      if (whose.empty()) break;
      const at::Tensor& hidden = model_->forward(batch, cache, activations);
      at::Tensor out = at::empty({batch.rows(), model_->config().vocabulary}, at::kFloat);
      model_->logits(hidden, out);
      for (size_t i = 0; i < whose.size(); ++i)
        logits[whose[i]].push_back(
            out.narrow(0, batch.segments[i].first_row, batch.segments[i].rows).clone());
      if (damage) damage(pass, cache, pages);
    }
    std::vector<at::Tensor> joined;
    for (const auto& pieces : logits) joined.push_back(at::cat(pieces));
    return joined;
  }

  // The largest |got - want| / |want| of any row of logits.
  double distance(const std::vector<at::Tensor>& got, const DenseModel& dense) const {
    double worst = 0;
    const auto all = sequences();
    for (size_t i = 0; i < all.size(); ++i) {
      const at::Tensor want = dense.logits(all[i]);
      const at::Tensor errors = (got[i] - want).norm(2, {1}) / want.norm(2, {1});
      worst = std::max(worst, errors.max().item<double>());
    }
    return worst;
  }

  const std::unique_ptr<model::PolicyModel> model_ = make_tiny_model(tiny_config(family()), type());
};

TEST_P(PagedEqualsDense, InOnePassAndInChunks) {
  const DenseModel dense(*model_);
  EXPECT_LT(distance(paged(/*seed=*/1, /*max_chunk=*/1000), dense), allowed());
  EXPECT_LT(distance(paged(/*seed=*/2, /*max_chunk=*/9), dense), allowed());
}

TEST_P(PagedEqualsDense, ChunksAndPagesAreBitIdentical) {
  const std::vector<at::Tensor> want = paged(/*seed=*/1, /*max_chunk=*/1000);
  for (const int64_t chunk : {1, 3, 16, 40}) {
    const std::vector<at::Tensor> got = paged(/*seed=*/10 + static_cast<uint64_t>(chunk), chunk);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::equal(got[i], want[i])) << "chunk " << chunk << ", sequence " << i << ": "
                                              << tensors_equal(got[i], want[i]).message();
  }
}

TEST_P(PagedEqualsDense, DetectsOneWrongPosition) {
  DenseModel dense(*model_);
  dense.misplaced = 5;
  EXPECT_GT(distance(paged(/*seed=*/1, /*max_chunk=*/1000), dense), 2 * allowed());
}

TEST_P(PagedEqualsDense, DetectsOneStaleSlot) {
  const auto forget_a_value = [&](int64_t pass, kv::KvCache& cache, const auto& pages) {
    if (pass != 0) return;
    const auto& shape = cache.shape();
    cache.layer(0)
        .storage[pages[5][0]][0]
        .select(1, 1)
        .view({shape.kv_heads, 16, shape.head_size})
        .select(1, 0)
        .zero_();
  };
  EXPECT_GT(distance(paged(/*seed=*/2, /*max_chunk=*/9, forget_a_value), DenseModel(*model_)),
            2 * allowed());
}

INSTANTIATE_TEST_SUITE_P(Models, PagedEqualsDense, every_model(), model_name);

}  // namespace
}  // namespace tlt::tests
