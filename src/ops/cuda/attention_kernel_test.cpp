// The attention kernel over emulated blocks: against a reference in double precision, and bit by
// bit against itself in other batches, chunks, trees, splits and thread orders.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ops/cuda/elements.h"
#include "ops/cuda/emulated_block.h"
#include "ops/cuda/kernels_emulated.h"

namespace tlt::ops::cuda {
namespace {

struct Heads {
  int kv_heads = 1, group = 1, head_size = 64;
  int heads() const { return kv_heads * group; }
};

// Rows of one sequence: at positions context, context + 1 …; or, where parents are given, the nodes
// of a tree (parent -1: the root). What its tokens are depends on the id alone.
struct Sequence {
  uint32_t id = 0;
  int context = 0, rows = 1;
  std::vector<int> parents = {};

  bool is_tree() const { return !parents.empty(); }
  int row_count() const { return is_tree() ? static_cast<int>(parents.size()) : rows; }
  // The rows of the tree from the root to this one.
  std::vector<int> path(int row) const {
    std::vector<int> path;
    for (int node = row; node >= 0; node = parents[static_cast<size_t>(node)]) path.push_back(node);
    std::reverse(path.begin(), path.end());
    return path;
  }
  int position(int row) const {
    return context + (is_tree() ? static_cast<int>(path(row).size()) - 1 : row);
  }
  // A row of a tree as a token of a sequence without: the tokens of its path, in the pages.
  int tree_row = -1;
};

enum Part : uint32_t { kQuery, kKey, kValue };

// Elements of a token's query, key or value, the same wherever it is.
std::vector<float> numbers(uint32_t id, uint32_t token, Part part, int count) {
  std::seed_seq seed{id, token, static_cast<uint32_t>(part)};
  std::mt19937 random(seed);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return x;
}

// The token at a position of a sequence, or of a row of its tree.
uint32_t context_token(int position) { return static_cast<uint32_t>(position); }
uint32_t tree_token(int row) { return 1'000'000U + static_cast<uint32_t>(row); }

struct How {
  int tile_rows = 1, tiles = 1;
  bool in_parts = false;
  ThreadOrder order = ThreadOrder::kForward;
};

struct Result {
  std::vector<float> out, lse;  // [rows, N, H], [rows, N]
  bool operator==(const Result&) const = default;
};

template <class T>
class Problem {
 public:
  Problem(const Heads& heads, const std::vector<Sequence>& sequences) : heads_(heads) {
    for (const Sequence& sequence : sequences) add(sequence);
  }

  Result run(const How& how) {
    const int64_t h = heads_.head_size;
    std::vector<T> out(static_cast<size_t>(rows() * heads_.heads() * h));
    std::vector<float> lse(static_cast<size_t>(rows() * heads_.heads()), NAN);
    AttentionRowsOf call = call_of(how);
    std::vector<float> parts(
        how.in_parts ? static_cast<size_t>(rows() * call.splits * heads_.heads() * (h + 2)) : 0,
        NAN);
    call.out = out.data();
    call.lse = lse.data();
    if (how.in_parts) call.parts = parts.data();
    set_thread_order(how.order);
    emulated_kernels().attention.forward(kType, call);
    set_thread_order(ThreadOrder::kForward);
    Result result{{}, lse};
    for (const T& x : out) result.out.push_back(to_float(x));
    return result;
  }

  // Of sequences without context: the gradients of q, k and v, in this order, where
  // those of the outputs are as the values of other tokens.
  std::vector<float> gradient(const How& how) {
    const auto n = static_cast<size_t>(rows() * heads_.heads()), h = size_t(heads_.head_size),
               k = static_cast<size_t>(rows() * heads_.kv_heads) * h;
    const Result forward = run({});
    std::vector<T> out, d_out;
    append(out, forward.out);
    append(d_out, d_out_);
    std::vector<float> lse = forward.lse, deltas(n, NAN), d(n * h + 2 * k, NAN);
    AttentionGradientOf call{.rows = call_of(how),
                             .d_out = d_out.data(),
                             .deltas = deltas.data(),
                             .d_q = d.data(),
                             .d_k = d.data() + n * h,
                             .d_v = d.data() + n * h + k};
    call.rows.out = out.data();
    call.rows.lse = lse.data();
    call.tiles = tiles_.data();
    call.ends = call.seen_until = ends_.data();
    call.key_tiles = std::ssize(tiles_);
    set_thread_order(how.order);
    emulated_kernels().attention.backward(kType, call);
    set_thread_order(ThreadOrder::kForward);
    return d;
  }

  std::vector<float> reference_gradient() const {
    const auto n = rows_.size() * size_t(heads_.heads()), h = size_t(heads_.head_size),
               k = rows_.size() * size_t(heads_.kv_heads) * h;
    std::vector<double> d(n * h + 2 * k);
    for (size_t row = 0; row < rows_.size(); ++row)
      for (int head = 0; head < heads_.heads(); ++head)
        add_reference_gradient(row, size_t(head), d);
    return {d.begin(), d.end()};
  }

  // By the definition.
  Result reference() const {
    Result result;
    for (const Row& row : rows_)
      for (int head = 0; head < heads_.heads(); ++head) add_reference(row, head, result);
    return result;
  }

 private:
  static constexpr int64_t kLayers = 2, kSlots = 16;
  static constexpr Type kType = sizeof(T) == 2 ? Type::kBf16 : Type::kFloat;

  AttentionRowsOf call_of(const How& how) const {
    AttentionRowsOf call{.qkv = qkv_.data(), .pages = pages_.data(), .tree = tree_.data()};
    call.lists = lists_.data();
    call.positions = positions_.data();
    call.tables = tables_.data();
    call.roots = roots_.data();
    call.paths = paths_.data();
    call.page_stride = kLayers * layer_stride();
    call.layer_offset = layer_stride();
    call.rows = rows();
    call.splits = splits_for(longest_);
    call.heads = heads_.heads();
    call.kv_heads = heads_.kv_heads;
    call.head_size = heads_.head_size;
    call.tile_rows = how.tile_rows;
    call.tiles = how.tiles;
    call.scale = kLog2OfE / std::sqrt(static_cast<float>(heads_.head_size));
    return call;
  }

  struct Row {
    std::vector<float> q;                          // [N, H]
    std::vector<std::vector<float>> keys, values;  // by position, [K, H]
  };

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t layer_stride() const { return heads_.kv_heads * 2 * kSlots * heads_.head_size; }

  static std::vector<float> rounded(std::vector<float> x) {
    for (float& value : x) {
      T stored;
      set(stored, value);
      value = to_float(stored);
    }
    return x;
  }
  std::vector<float> vector_of(uint32_t id, uint32_t token, Part part) const {
    return rounded(numbers(id, token, part,
                           (part == kQuery ? heads_.heads() : heads_.kv_heads) * heads_.head_size));
  }

  static void append(std::vector<T>& to, const std::vector<float>& from) {
    for (const float x : from) {
      to.emplace_back();
      set(to.back(), x);
    }
  }

  // Pages of another order than their numbers; what is not stored is NaN.
  int64_t add_page() {
    const size_t count = pages_.size() + static_cast<size_t>(kLayers * layer_stride());
    T nan;
    set(nan, NAN);
    pages_.resize(count, nan);
    return static_cast<int64_t>(count) / (kLayers * layer_stride()) - 1;
  }

  void store(int64_t page, int64_t slot, const std::vector<float>& key,
             const std::vector<float>& value) {
    const int64_t h = heads_.head_size;
    for (int64_t k = 0; k < heads_.kv_heads; ++k)
      for (int64_t i = 0; i < h; ++i) {
        const int64_t at =
            page * kLayers * layer_stride() + layer_stride() + (k * 2 * kSlots + slot) * h + i;
        set(pages_[static_cast<size_t>(at)], key[static_cast<size_t>(k * h + i)]);
        set(pages_[static_cast<size_t>(at + kSlots * h)], value[static_cast<size_t>(k * h + i)]);
      }
  }

  // What the pages of a sequence hold, by position, and where its table of pages is.
  struct Context {
    std::vector<std::vector<float>> keys, values;
    int64_t table = 0;
  };

  Context add_context(const Sequence& sequence) {
    std::vector<uint32_t> stored;  // the tokens in the pages
    for (int i = 0; i < sequence.context + (sequence.is_tree() ? 0 : sequence.rows); ++i)
      stored.push_back(context_token(i));
    if (sequence.tree_row >= 0)
      for (const int node : sequence.path(sequence.tree_row)) stored.push_back(tree_token(node));

    Context context{{}, {}, std::ssize(lists_)};
    std::vector<int64_t> own(static_cast<size_t>((std::ssize(stored) + kSlots - 1) / kSlots));
    for (int64_t& page : own) page = add_page();
    std::reverse(own.begin(), own.end());
    lists_.insert(lists_.end(), own.begin(), own.end());
    if (own.empty()) lists_.push_back(-1);  // never read
    for (size_t i = 0; i < stored.size(); ++i) {
      context.keys.push_back(vector_of(sequence.id, stored[i], kKey));
      context.values.push_back(vector_of(sequence.id, stored[i], kValue));
      store(own[i / kSlots], static_cast<int64_t>(i % kSlots), context.keys.back(),
            context.values.back());
    }
    return context;
  }

  void add(const Sequence& sequence) {
    const Context context = add_context(sequence);
    if (sequence.context == 0 && !sequence.is_tree()) add_key_rows(sequence.rows);
    const auto first_tree_row =
        static_cast<int64_t>(tree_.size()) / (2 * heads_.kv_heads * heads_.head_size);
    for (int row = 0; row < sequence.row_count(); ++row) {
      if (sequence.tree_row >= 0 && row != sequence.tree_row) continue;
      const int position = sequence.position(row);
      const uint32_t token = sequence.is_tree() ? tree_token(row) : context_token(position);
      Row own{vector_of(sequence.id, token, kQuery), context.keys, context.values};
      own.keys.resize(std::min(static_cast<size_t>(position + 1), own.keys.size()));
      own.values.resize(own.keys.size());
      paths_.push_back(std::ssize(lists_));
      const bool as_tree = sequence.is_tree() && sequence.tree_row < 0;
      if (as_tree) add_path(sequence, row, first_tree_row, own);
      positions_.push_back(position);
      tables_.push_back(context.table);
      roots_.push_back(as_tree ? sequence.context : INT32_MAX);
      longest_ = std::max<int64_t>(longest_, position + 1);
      add_inputs(sequence.id, row, own);
      rows_.push_back(std::move(own));
    }
  }

  // The entries of a tree's row: those before it are there.
  void add_path(const Sequence& sequence, int row, int64_t first_tree_row, Row& own) {
    for (const int node : sequence.path(row)) {
      lists_.push_back(first_tree_row + node);
      own.keys.push_back(vector_of(sequence.id, tree_token(node), kKey));
      own.values.push_back(vector_of(sequence.id, tree_token(node), kValue));
    }
    append(tree_, own.keys.back());
    append(tree_, own.values.back());
  }

  // A row of qkv, and the gradient of its output.
  void add_inputs(uint32_t id, int row, const Row& own) {
    const std::vector<float> none(static_cast<size_t>(heads_.kv_heads * heads_.head_size));
    append(qkv_, own.q);
    append(qkv_, own.keys.empty() ? none : own.keys.back());
    append(qkv_, own.keys.empty() ? none : own.values.back());
    const std::vector<float> d = rounded(numbers(id, 2'000'000U + static_cast<uint32_t>(row),
                                                 kQuery, heads_.heads() * heads_.head_size));
    d_out_.insert(d_out_.end(), d.begin(), d.end());
  }

  // For the gradient.
  void add_key_rows(int count) {
    for (int row = 0; row < count; row += static_cast<int>(kKeyRows))
      tiles_.push_back(rows() + row);
    ends_.resize(rows_.size() + static_cast<size_t>(count), rows() + count);
  }

  // Weights of the keys of a row.
  std::vector<double> weights_of(const Row& row, size_t head) const {
    const auto h = size_t(heads_.head_size), kv = head / size_t(heads_.group);
    std::vector<double> weights;
    double sum = 0;
    for (const auto& key : row.keys) {
      double score = 0;
      for (size_t i = 0; i < h; ++i) score += double{row.q[head * h + i]} * key[kv * h + i];
      weights.push_back(std::exp(score / std::sqrt(double(h))));
      sum += weights.back();
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  void add_reference_gradient(size_t row, size_t head, std::vector<double>& d) const {
    const auto h = size_t(heads_.head_size), kv = head / size_t(heads_.group);
    const size_t first = row - static_cast<size_t>(positions_[row]);
    const size_t d_k = rows_.size() * size_t(heads_.heads()) * h,
                 d_v = d_k + rows_.size() * size_t(heads_.kv_heads) * h;
    const std::vector<double> weights = weights_of(rows_[row], head);
    const size_t at = (row * size_t(heads_.heads()) + head) * h;
    std::vector<double> d_weights(weights.size());
    double mean = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < h; ++i)
        d_weights[k] += double{d_out_[at + i]} * rows_[row].values[k][kv * h + i];
      mean += weights[k] * d_weights[k];
    }
    for (size_t k = 0; k < weights.size(); ++k) {
      const double d_score = weights[k] * (d_weights[k] - mean) / std::sqrt(double(h));
      const size_t key = ((first + k) * size_t(heads_.kv_heads) + kv) * h;
      for (size_t i = 0; i < h; ++i) {
        d[at + i] += d_score * rows_[row].keys[k][kv * h + i];
        d[d_k + key + i] += d_score * rows_[row].q[head * h + i];
        d[d_v + key + i] += weights[k] * d_out_[at + i];
      }
    }
  }

  void add_reference(const Row& row, int head, Result& result) const {
    const int h = heads_.head_size, kv = head / heads_.group;
    std::vector<double> scores, out(static_cast<size_t>(h));
    for (const auto& key : row.keys) {
      double score = 0;
      for (int i = 0; i < h; ++i)
        score +=
            double{row.q[static_cast<size_t>(head * h + i)]} * key[static_cast<size_t>(kv * h + i)];
      scores.push_back(score / std::sqrt(double(h)));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (size_t k = 0; k < scores.size(); ++k) {
      const double weight = std::exp(scores[k] - top);
      sum += weight;
      for (int i = 0; i < h; ++i)
        out[static_cast<size_t>(i)] += weight * row.values[k][static_cast<size_t>(kv * h + i)];
    }
    for (const double x : out) result.out.push_back(static_cast<float>(x / sum));
    result.lse.push_back(static_cast<float>(top + std::log(sum)));
  }

  const Heads heads_;
  std::vector<Row> rows_;
  std::vector<T> qkv_, pages_, tree_;
  std::vector<int64_t> lists_, positions_, tables_, roots_, paths_, tiles_, ends_;
  std::vector<float> d_out_;
  int64_t longest_ = 1;
};

// A node hangs below one of the last few, so the tree has long and short branches.
std::vector<int> parents_of(int nodes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int> parents = {-1};
  for (int i = 1; i < nodes; ++i)
    parents.push_back(std::max(0, i - 1 - static_cast<int>(random() % 4)));
  return parents;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}

std::vector<How> ways(const Heads& heads) {
  const int most = 16 / heads.group;
  return {{1, 1, false, ThreadOrder::kForward},
          {most, 4, false, ThreadOrder::kReverse},
          {std::max(1, most / 2), 3, true, ThreadOrder::kShuffled},
          {1, 1, true, ThreadOrder::kShuffledAgain}};
}

struct ForFloat {
  using T = float;
  static constexpr float kTolerance = 1e-5f, kLseTolerance = 2e-6f;
};
struct ForBf16 {
  using T = Bf16;
  static constexpr float kTolerance = 1e-2f, kLseTolerance = 1e-5f;
};

template <class Of>
class AttentionKernelTest : public ::testing::Test {
 protected:
  using T = typename Of::T;
  // Near the reference, and the same bits in all ways.
  void check(const Heads& heads, const std::vector<Sequence>& sequences) {
    SCOPED_TRACE(::testing::Message() << heads.kv_heads << " KV heads of " << heads.group
                                      << " heads of " << heads.head_size);
    Problem<T> problem(heads, sequences);
    const Result want = problem.reference(), got = problem.run({});
    EXPECT_LE(largest_difference(got.out, want.out), Of::kTolerance);
    float most = 1;
    for (const float x : want.lse) most = std::max(most, std::abs(x));
    EXPECT_LE(largest_difference(got.lse, want.lse), most * Of::kLseTolerance);
    for (const How& how : ways(heads))
      EXPECT_EQ(problem.run(how), got)
          << how.tile_rows << " rows of a warp, " << how.tiles << " warps, parts " << how.in_parts;
  }
};
using Types = ::testing::Types<ForFloat, ForBf16>;
TYPED_TEST_SUITE(AttentionKernelTest, Types);

TYPED_TEST(AttentionKernelTest, GroupsAndHeadSizes) {
  for (const int head_size : {16, 32, 64, 128})
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8})
      if (head_size >= 64 || group == 3)
        this->check({2, group, head_size}, {{.id = 1, .context = 21, .rows = 5},
                                            {.id = 2, .context = 40, .rows = 1},
                                            {.id = 3, .context = 17, .parents = {-1, 0, 1, 1, 0}}});
}

TYPED_TEST(AttentionKernelTest, Contexts) {
  std::vector<Sequence> sequences;
  for (const int context : {0, 1, 14, 15, 16, 17, 63, 64, 254, 255, 256, 257, 511, 513})
    sequences.push_back({.id = static_cast<uint32_t>(context), .context = context});
  this->check({1, 2, 64}, sequences);
}

TYPED_TEST(AttentionKernelTest, LongContext) {
  this->check({1, 7, 64}, {{.id = 1, .context = 4999}, {.id = 2, .context = 100}});
  this->check({1, 4, 128}, {{.id = 1, .context = 1500, .parents = parents_of(6, 1)}});
}

// Keys of a tree begin and end anywhere in a page, a stage and a split.
TYPED_TEST(AttentionKernelTest, TreesOfUpTo64Rows) {
  for (const int nodes : {1, 2, 17, 64})
    for (const int context : {0, 15, 250})
      this->check({1, 2, 64}, {{.id = 5, .context = context, .parents = parents_of(nodes, 3)},
                               {.id = 6, .context = 3, .parents = parents_of(nodes / 2 + 1, 4)}});
}

// A row of a tree has the bits of the same token in non-speculative decoding.
TYPED_TEST(AttentionKernelTest, ATreeRowIsTheLastTokenOfItsPath) {
  using T = typename TypeParam::T;
  for (const int head_size : {64, 128})
    for (const int context : {0, 13, 245, 256}) {
      const Heads heads{2, 3, head_size};
      const Sequence tree{.id = 9, .context = context, .parents = parents_of(24, 7)};
      const Result whole = Problem<T>(heads, {tree}).run({5, 4});
      for (int row = 0; row < tree.row_count(); ++row) {
        Sequence plain = tree;
        plain.tree_row = row;
        const Result alone = Problem<T>(heads, {plain}).run({1, 1, row % 2 == 1});
        const size_t width = alone.out.size();
        const auto at = whole.out.begin() + static_cast<std::ptrdiff_t>(row * width);
        EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), at))
            << "row " << row << " after " << context;
      }
    }
}

// Rows of a prompt in chunks, alone and among others.
TYPED_TEST(AttentionKernelTest, ARowDoesNotDependOnChunksOrOtherRows) {
  using T = typename TypeParam::T;
  const Heads heads{1, 3, 64};
  const int rows = 270;
  const Result whole = Problem<T>(heads, {{.id = 4, .rows = rows}}).run({5, 4});
  const size_t width = static_cast<size_t>(heads.heads() * heads.head_size);
  const auto expect_rows = [&](const Result& got, size_t from, int first, int count) {
    EXPECT_TRUE(std::equal(whole.out.begin() + static_cast<std::ptrdiff_t>(first * width),
                           whole.out.begin() + static_cast<std::ptrdiff_t>((first + count) * width),
                           got.out.begin() + static_cast<std::ptrdiff_t>(from * width)))
        << "rows " << first << " to " << first + count;
  };
  for (const int chunk : {1, 19, 150})
    for (int first = 0; first < rows; first += std::max(chunk, 37)) {
      const int count = std::min(chunk, rows - first);
      const Sequence part{.id = 4, .context = first, .rows = count};
      expect_rows(Problem<T>(heads, {part}).run({2, 2, first % 2 == 0}), 0, first, count);
      expect_rows(Problem<T>(heads, {{.id = 1, .context = 300, .rows = 2},
                                     part,
                                     {.id = 2, .context = 5, .parents = {-1, 0, 0}}})
                      .run({4, 3}),
                  2, first, count);
    }
}

// Near the reference; and the same bits in four orders of the threads.
TYPED_TEST(AttentionKernelTest, Gradients) {
  using T = typename TypeParam::T;
  for (const Heads& heads : {Heads{2, 3, 64}, Heads{1, 7, 128}, Heads{1, 1, 32}}) {
    Problem<T> problem(heads, {{.id = 1, .rows = 3}, {.id = 2, .rows = 67}, {.id = 3, .rows = 16}});
    const std::vector<float> want = problem.reference_gradient();
    float most = 0;
    for (const float x : want) most = std::max(most, std::abs(x));
    const std::vector<float> got = problem.gradient({});
    EXPECT_LE(largest_difference(got, want), most * TypeParam::kTolerance);
    for (How how : ways(heads)) {
      how.in_parts = false;
      EXPECT_EQ(problem.gradient(how), got) << how.tile_rows << " rows of a warp";
    }
  }
}

// A row of padding sees nothing, writes zeros, and changes no other row.
TYPED_TEST(AttentionKernelTest, PaddingIsZero) {
  using T = typename TypeParam::T;
  const Heads heads{1, 2, 64};
  for (const bool in_parts : {false, true}) {
    const How how{8, 4, in_parts};
    const Result alone = Problem<T>(heads, {{.id = 1, .context = 300, .rows = 1}}).run(how);
    const Result padded =
        Problem<T>(heads, {{.id = 1, .context = 300}, {.id = 2, .context = -1}}).run(how);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), padded.out.begin()));
    EXPECT_TRUE(std::all_of(padded.out.begin() + std::ssize(alone.out), padded.out.end(),
                            [](float x) { return x == 0; }));
  }
}

}  // namespace
}  // namespace tlt::ops::cuda
