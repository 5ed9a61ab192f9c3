// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kv/kv_cache.h"
#include "ops/attention.h"

namespace tlt::bench {
namespace {

constexpr int kPasses = 3;

// Sequences of equal length with their own pages, and the buffers of one layer's attention. Each
// has `rows` token rows, the last one at position `positions` - 1.
class Layer {
 public:
  Layer(const model::PolicyModel& policy, int64_t sequences, int64_t rows, int64_t positions)
      : device_(policy.device()),
        shape_{policy.config().heads, policy.config().kv_heads, policy.config().head_size},
        cache_(device_, one_layer(policy), sequences * ops::pages_for(positions)) {
    const int64_t pages = ops::pages_for(positions);
    pages_.resize(static_cast<size_t>(cache_.pages()));
    std::iota(pages_.begin(), pages_.end(), 0);
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    for (int64_t i = 0; i < sequences; ++i)
      batch_.add(tokens.data(), static_cast<int32_t>(rows), static_cast<int32_t>(positions - rows),
                 pages_.data() + i * pages);
    const int64_t all = batch_.rows(), columns = shape_.heads * shape_.head_size;
    qkv_ = device_.zeros({all, columns + 2 * shape_.kv_heads * shape_.head_size}, policy.type());
    d_qkv_ = at::zeros_like(qkv_);
    out_ = device_.zeros({all, columns}, policy.type());
    lse_ = device_.zeros({all, shape_.heads}, at::kFloat);
    rope_.cos_sin = device_.zeros({positions, shape_.head_size}, at::kFloat);
  }

  void forward() {
    ops::attention(device_, {shape_, batch_, cache_.layer(0)}, qkv_, {out_, &lse_});
    out_.view(-1)[0].item();  // waits for a GPU
  }
  void backward() {
    ops::attention_backward(
        device_, {shape_, batch_, cache_.layer(0)}, rope_,
        {.qkv = qkv_, .raw_qkv = qkv_, .out = out_, .lse = lse_, .d_out = out_, .d_qkv = d_qkv_});
    d_qkv_.view(-1)[0].item();
  }

 private:
  static kv::KvShape one_layer(const model::PolicyModel& policy) {
    kv::KvShape shape = policy.kv_shape();
    shape.layers = 1;
    return shape;
  }

  const Device& device_;
  const ops::AttentionShape shape_;
  kv::KvCache cache_;
  std::vector<ops::PageId> pages_;
  ops::Batch batch_;
  ops::RopeStore rope_;
  at::Tensor qkv_, d_qkv_, out_, lse_;
};

template <class Call>
double best_seconds(const Clock& clock, const Call& call) {
  double best = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kPasses; ++pass) {
    const Stopwatch stopwatch(clock);
    call();
    best = std::min(best, stopwatch.seconds());
  }
  return best;
}

}  // namespace

AttentionSeconds attention_seconds(const model::PolicyModel& policy, const StepShape& shape,
                                   int64_t running, const Clock& clock) {
  const int64_t length = shape.prompt_tokens + shape.new_tokens;
  const auto layers = static_cast<double>(policy.config().layers);
  const auto responses = static_cast<double>(shape.responses());

  // The cost of a decode row is linear in its position, so the middle of the response is the mean.
  const int64_t together = std::min(running, shape.responses());
  Layer decoding(policy, together, /*rows=*/1, shape.prompt_tokens + (shape.new_tokens + 1) / 2);
  const double rounds =
      responses / static_cast<double>(together) * static_cast<double>(shape.new_tokens);
  const double decode = best_seconds(clock, [&] { decoding.forward(); });

  const int64_t packed =
      std::clamp<int64_t>(train::TrainerOptions{}.max_tokens / length, 1, shape.responses());
  Layer training(policy, packed, length, length);
  const double train = best_seconds(clock, [&] {
    training.forward();
    training.backward();
  });
  return {.rollout = decode * rounds * layers,
          .train = train * responses / static_cast<double>(packed) * layers};
}

}  // namespace tlt::bench
