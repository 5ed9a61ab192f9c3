// SPDX-License-Identifier: Apache-2.0
#include "rollout/engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "tests/support/dense_model.h"
#include "tests/support/rollouts.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_model.h"

namespace tlt::rollout {
namespace {

using tests::DenseModel;
using tests::Rollouts;

// Reference sampler for one token: sorts, in float64. A truncated distribution is walked from its
// most likely token on, a full one in the order of ids.
struct SlowToken {
  int32_t token;
  double logprob;
};

SlowToken slow_sample(const at::Tensor& logits, const ops::SamplingRule& rule, double u) {
  const bool greedy = rule.temperature == 0;
  const at::Tensor scaled = (logits / (greedy ? 1.0 : rule.temperature)).log_softmax(0);
  const std::span log_ps(scaled.data_ptr<double>(), static_cast<size_t>(scaled.numel()));
  const auto log_p = [&](int32_t id) { return log_ps[static_cast<size_t>(id)]; };
  const auto p = [&](int32_t id) { return std::exp(log_p(id)); };
  std::vector<int32_t> ids(static_cast<size_t>(logits.size(0)));
  std::iota(ids.begin(), ids.end(), 0);
  if (greedy || rule.truncates())
    std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return p(a) > p(b); });
  if (greedy) return {ids[0], log_p(ids[0])};
  const auto mass = [&] {
    return std::accumulate(ids.begin(), ids.end(), 0.0,
                           [&](double sum, int32_t id) { return sum + p(id); });
  };
  if (rule.top_k > 0 && rule.top_k < std::ssize(ids)) ids.resize(static_cast<size_t>(rule.top_k));
  if (rule.top_p < 1) {
    const double wanted = rule.top_p * mass();
    double reached = 0;
    size_t keep = 0;
    while (keep < ids.size() && reached < wanted) reached += p(ids[keep++]);
    ids.resize(keep);
  }
  if (rule.min_p > 0) {
    const double least = rule.min_p * p(ids[0]);
    std::erase_if(ids, [&](int32_t id) { return p(id) < least; });
  }
  const double all = mass();
  double reached = 0;
  for (const int32_t id : ids) {
    reached += p(id);
    if (reached > u * all || id == ids.back()) return {id, log_p(id)};
  }
  return {};
}

// Reference response: without engine, KV cache and kernels.
Response slow_response(const DenseModel& model, const Group& group, uint32_t sample,
                       const std::vector<int32_t>& eos) {
  Response response;
  std::vector<int32_t> tokens = group.tokens;
  while (std::ssize(response.tokens) < group.sampling->max_new_tokens) {
    const double u =
        uniform(group.seed, {.step = group.rl_step,
                             .prompt = group.prompt_id,
                             .sample = sample,
                             .position = static_cast<uint32_t>(response.tokens.size())});
    const SlowToken next = slow_sample(model.logits(tokens)[-1], group.sampling->rule(), u);
    tokens.push_back(next.token);
    response.tokens.push_back(next.token);
    response.logprobs.push_back(static_cast<float>(next.logprob));
    if (std::ranges::count(eos, next.token) > 0) break;
  }
  return response;
}

// Token n is the text "n ".
class NumberText : public StopString {
 public:
  std::unique_ptr<TextStream> open() const override { return std::make_unique<Stream>(); }

 private:
  class Stream : public TextStream {
   public:
    std::string_view push(int32_t token) override { return text_ = std::to_string(token) + " "; }

   private:
    std::string text_;
  };
};

// Collects hidden states by prompt and sample; fails when a position is repeated or skipped.
class RecordingObserver : public HiddenStateObserver {
 public:
  struct Seen {
    int32_t first_position = 0;
    std::vector<int32_t> tokens;
    std::vector<at::Tensor> hidden;  // [D] each
  };

  void on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position, const Rows& hidden,
                        std::span<const int32_t> tokens) override {
    EXPECT_FALSE(tokens.empty());
    auto [found, is_new] = seen.try_emplace({prompt_id, sample});
    Seen& one = found->second;
    if (is_new) one.first_position = position;
    EXPECT_EQ(position, one.first_position + std::ssize(one.tokens))
        << "prompt " << prompt_id << ", sample " << sample;
    one.tokens.insert(one.tokens.end(), tokens.begin(), tokens.end());
    for (int64_t i = 0; i < std::ssize(tokens); ++i)
      one.hidden.push_back(hidden.states[hidden.first + i].clone());
  }

  std::map<std::pair<uint32_t, uint32_t>, Seen> seen;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest()
      : config_(tests::tiny_config(model::Family::kQwen2)),
        model_(tests::make_tiny_model(config_, at::kFloat)) {}

  EngineOptions options() const {
    EngineOptions options;
    options.max_running = 16;
    options.max_batch_tokens = 64;
    options.prefill_chunk = 32;
    options.kv_memory_bytes = 200 * page_bytes();
    return options;
  }
  int64_t page_bytes() const { return model_->kv_shape().page_bytes(); }

  // Prompts of different lengths.
  std::vector<Group> groups(const SamplingOptions& sampling, int64_t count = 5,
                            int64_t samples = 3) const {
    std::vector<Group> groups;
    for (int64_t i = 0; i < count; ++i) {
      groups.push_back({.prompt_id = static_cast<uint32_t>(i),
                        .rl_step = 4,
                        .tokens = tests::random_tokens(1, static_cast<uint32_t>(i), 1 + 11 * i,
                                                       config_.vocabulary),
                        .samples = samples,
                        .sampling = std::make_shared<const SamplingOptions>(sampling),
                        .seed = 77});
    }
    return groups;
  }

  Rollouts run(const std::vector<Group>& groups, const EngineOptions& options,
               HiddenStateObserver* observer = nullptr) const {
    Engine engine(*model_, options, &text_, observer);
    return tests::run(engine, groups);
  }
  Rollouts run(const std::vector<Group>& groups) const { return run(groups, options()); }

  model::ModelConfig config_;
  std::unique_ptr<model::PolicyModel> model_;
  NumberText text_;
};

SamplingOptions sampling_of(double temperature, int64_t top_k = -1, double top_p = 1,
                            double min_p = 0) {
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  sampling.min_p = min_p;
  sampling.max_new_tokens = 20;
  return sampling;
}

TEST_F(EngineTest, TokensAndLogprobsMatchTheReference) {
  const DenseModel dense(*model_);
  for (const SamplingOptions& sampling :
       {sampling_of(1), sampling_of(0), sampling_of(0.6), sampling_of(1, 5),
        sampling_of(1, -1, 0.8), sampling_of(1, 0, 1, 0.2), sampling_of(1.3, 20, 0.9, 0.05),
        sampling_of(0, 3, 0.5)}) {
    const std::vector<Group> requests = groups(sampling, 2, 2);
    const Rollouts rollouts = run(requests);
    for (const auto& [key, got] : rollouts) {
      const Response want =
          slow_response(dense, requests[key.first], key.second, config_.eos_tokens);
      ASSERT_EQ(got.tokens, want.tokens)
          << "temperature " << sampling.temperature << ", top_k " << sampling.top_k;
      EXPECT_TRUE(tests::tensors_near(at::tensor(got.logprobs), at::tensor(want.logprobs), 1e-4));
    }
  }
}

// The LM head has rows after the tokenizer's last token, here half of them. The tokens are those of
// a model without these rows, the logprobs those of the whole model, as in the trainer.
TEST_F(EngineTest, VocabularyPaddingIsNeverSampled) {
  const int64_t tokens = config_.vocabulary / 2;
  const Rollouts with_padding = run(groups(sampling_of(1)));
  const auto is_padding = [&](int32_t token) { return token >= tokens; };
  EXPECT_TRUE(std::ranges::any_of(with_padding, [&](const auto& rollout) {
    return std::ranges::any_of(rollout.second.tokens, is_padding);
  }));
  model_->set_tokens(tokens);
  const DenseModel dense(*model_);
  for (const SamplingOptions& sampling :
       {sampling_of(1), sampling_of(0), sampling_of(1, 5), sampling_of(1.3, 20, 0.9, 0.05)}) {
    const std::vector<Group> requests = groups(sampling, 2, 2);
    for (const auto& [key, got] : run(requests)) {
      const Group& group = requests[key.first];
      std::vector<int32_t> context = group.tokens;
      for (size_t i = 0; i < got.tokens.size(); ++i) {
        const double u = uniform(group.seed, {.step = group.rl_step,
                                              .prompt = group.prompt_id,
                                              .sample = key.second,
                                              .position = static_cast<uint32_t>(i)});
        const ops::SamplingRule rule = sampling.rule();
        const at::Tensor logits = dense.logits(context)[-1];
        const SlowToken want = slow_sample(logits.narrow(0, 0, tokens).clone(), rule, u);
        ASSERT_EQ(got.tokens[i], want.token) << "temperature " << sampling.temperature;
        ASSERT_LT(got.tokens[i], tokens);
        const at::Tensor all = (logits / rule.logprob_temperature()).log_softmax(0);
        ASSERT_NEAR(got.logprobs[i], all[got.tokens[i]].item<double>(), 1e-4);
        context.push_back(got.tokens[i]);
      }
    }
  }
}

TEST_F(EngineTest, SamplesOfAGroupDiffer) {
  const Rollouts rollouts = run(groups(sampling_of(1), 1, 2));
  EXPECT_NE(rollouts.at({0, 0}).tokens, rollouts.at({0, 1}).tokens);
}

TEST_F(EngineTest, AnotherSeedStepOrPromptIdGivesOtherTokens) {
  std::vector<Group> base = groups(sampling_of(1), 1, 1);
  const auto tokens = [&](const Group& group) { return run({group}).begin()->second.tokens; };
  const std::vector<int32_t> want = tokens(base[0]);
  EXPECT_EQ(tokens(base[0]), want);
  for (const auto change :
       {+[](Group& g) { g.seed = 78; }, +[](Group& g) { g.rl_step = 5; },
        +[](Group& g) { g.prompt_id = 6; }, +[](Group& g) { g.first_sample = 1; }}) {
    Group changed = base[0];
    change(changed);
    EXPECT_NE(tokens(changed), want);
  }
}

TEST_F(EngineTest, RandomKeyReplacesStepAndPromptId) {
  Group group = groups(sampling_of(1), 1, 1)[0];
  group.rl_step = 5;
  group.prompt_id = 6;
  const auto tokens = [&](const Group& one) { return run({one}).begin()->second.tokens; };
  const std::vector<int32_t> want = tokens(group);
  group.random_key = uint64_t{5} << 32 | 6;
  group.rl_step = 1;
  group.prompt_id = 2;
  EXPECT_EQ(tokens(group), want);
  group.random_key = uint64_t{4} << 32 | 6;
  EXPECT_NE(tokens(group), want);
}

TEST_F(EngineTest, TokensSoFarAreThoseOfTheResponse) {
  const std::vector<Group> requests = groups(sampling_of(1), 2, 2);
  const Rollouts want = run(requests);
  Engine engine(*model_, options());
  for (const Group& group : requests) engine.submit(group);
  size_t longest = 0;
  while (engine.step())
    for (const auto& [key, response] : want) {
      const auto tokens = engine.tokens_so_far(key.first, key.second);
      ASSERT_LE(tokens.size(), response.tokens.size());
      EXPECT_TRUE(std::ranges::equal(tokens, std::span(response.tokens).first(tokens.size())));
      longest = std::max(longest, tokens.size());
    }
  EXPECT_GT(longest, 3u);
  EXPECT_TRUE(engine.tokens_so_far(9, 0).empty());
}

TEST_F(EngineTest, EosTokenEndsAResponseUnlessIgnored) {
  SamplingOptions sampling = sampling_of(2);
  sampling.max_new_tokens = 60;
  int64_t stopped = 0;
  for (const auto& [key, response] : run(groups(sampling, 5, 8))) {
    const auto first = std::ranges::find_if(response.tokens,
                                            [](int32_t token) { return token == 1 || token == 2; });
    const bool has_stop = first != response.tokens.end();
    EXPECT_EQ(response.finish, has_stop ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(std::ssize(response.tokens), has_stop ? first - response.tokens.begin() + 1 : 60);
    EXPECT_EQ(response.target_forwards, std::ssize(response.tokens));
    stopped += has_stop;
  }
  EXPECT_GT(stopped, 4);
  sampling.ignore_eos = true;
  for (const auto& [key, response] : run(groups(sampling, 5, 8))) {
    EXPECT_EQ(response.finish, FinishReason::kLength);
    EXPECT_EQ(std::ssize(response.tokens), 60);
  }
}

TEST_F(EngineTest, RequestStopTokensEndAResponse) {
  SamplingOptions sampling = sampling_of(1);
  sampling.ignore_eos = true;
  const Rollouts plain = run(groups(sampling, 1, 1));
  const std::vector<int32_t>& tokens = plain.begin()->second.tokens;
  sampling.stop_tokens = {tokens[7]};
  const Response response = run(groups(sampling, 1, 1)).begin()->second;
  const auto end = std::ranges::find(tokens, tokens[7]) + 1;
  EXPECT_EQ(response.tokens, std::vector<int32_t>(tokens.begin(), end));
  EXPECT_EQ(response.finish, FinishReason::kStop);
}

TEST_F(EngineTest, StopStringMaySpanTwoTokens) {
  SamplingOptions sampling = sampling_of(1);
  sampling.ignore_eos = true;
  const std::vector<int32_t> tokens = run(groups(sampling, 1, 1)).begin()->second.tokens;
  sampling.stop = {"never",
                   " " + std::to_string(tokens[4]) + " " + std::to_string(tokens[5]) + " "};
  const Response response = run(groups(sampling, 1, 1)).begin()->second;
  auto end = tokens.begin() + 3;  // the stop string begins with the space of a token before
  while (end[-2] != tokens[4] || end[-1] != tokens[5]) ++end;
  EXPECT_EQ(response.tokens, std::vector<int32_t>(tokens.begin(), end));
  EXPECT_EQ(response.finish, FinishReason::kStop);
}

TEST_F(EngineTest, ResponseEndsAtTheLastModelPosition) {
  SamplingOptions sampling = sampling_of(1);
  sampling.ignore_eos = true;
  sampling.max_new_tokens = 1000;
  Group group = groups(sampling, 1, 1)[0];
  group.tokens = tests::random_tokens(1, 1, config_.max_positions - 3, config_.vocabulary);
  const Response response = run({group}).begin()->second;
  EXPECT_EQ(std::ssize(response.tokens), 3);
  EXPECT_EQ(response.finish, FinishReason::kLength);
}

TEST_F(EngineTest, RequestsThatCanNeverBeServedAreRefused) {
  Engine engine(*model_, options());
  const Group good = groups(sampling_of(1), 1, 1)[0];
  const auto refused = [&](auto change) {
    Group bad = good;
    change(bad);
    try {
      engine.submit(bad);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto sampling = [](Group& group, auto change) {
    SamplingOptions changed = *group.sampling;
    change(changed);
    group.sampling = std::make_shared<const SamplingOptions>(changed);
  };
  EXPECT_EQ(refused([](Group& g) { g.tokens.clear(); }),
            "prompt 0 has no tokens; give at least one");
  EXPECT_NE(refused([](Group& g) { g.tokens.resize(256); }).find("256 positions"),
            std::string::npos);
  EXPECT_NE(refused([](Group& g) { g.tokens = {100}; }).find("ends at 99"), std::string::npos);
  EXPECT_NE(refused([](Group& g) { g.samples = 0; }).find("at least 1"), std::string::npos);
  EXPECT_NE(
      refused([&](Group& g) { sampling(g, [](auto& s) { s.stop = {"x"}; }); }).find("tokenizer"),
      std::string::npos);
  EXPECT_NE(refused([&](Group& g) { sampling(g, [](auto& s) { s.top_p = 0; }); }).find("top_p"),
            std::string::npos);
  EXPECT_NE(refused([&](Group& g) {
              sampling(g, [](auto& s) { s.temperature = -1; });
            }).find("temperature"),
            std::string::npos);
  EXPECT_EQ(refused([](Group&) {}), "accepted");
}

TEST_F(EngineTest, TooSmallKvMemoryErrorStatesTheNeed) {
  EngineOptions small = options();
  small.kv_memory_bytes = 5 * page_bytes();
  Engine engine(*model_, small);
  SamplingOptions sampling = sampling_of(1);
  sampling.max_new_tokens = 81;  // a 1-token prompt and 80 more positions: 6 pages
  try {
    engine.submit(groups(sampling, 1, 1)[0]);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(6 * page_bytes()) + " bytes"),
              std::string::npos)
        << error.what();
  }
  small.kv_memory_bytes = page_bytes() - 1;
  EXPECT_THROW(Engine(*model_, small), InputError);
}

TEST_F(EngineTest, CancelledResponsesKeepTheirTokens) {
  const std::vector<Group> requests = groups(sampling_of(1), 4, 4);
  const Rollouts want = run(requests);
  Engine engine(*model_, options());
  for (const Group& group : requests) engine.submit(group);
  for (int i = 0; i < 5; ++i) engine.step();
  EXPECT_TRUE(engine.cancel(1, 2));
  EXPECT_FALSE(engine.cancel(1, 2));
  EXPECT_FALSE(engine.cancel(9, 0));
  engine.check_invariants();
  Rollouts got;
  while (engine.step()) {
  }
  tests::keep(engine.take_finished(), got);
  engine.check_idle_invariants();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [key, response] : got) {
    const bool cancelled = key == std::pair<uint32_t, uint32_t>(1, 2);
    EXPECT_EQ(response.finish == FinishReason::kCancelled, cancelled);
    const auto& tokens = want.at(key).tokens;
    EXPECT_TRUE(std::equal(response.tokens.begin(), response.tokens.end(), tokens.begin()));
    EXPECT_EQ(response.tokens.size() == tokens.size(), !cancelled);
  }
}

TEST_F(EngineTest, CancelAllLeavesTheEngineIdle) {
  Engine engine(*model_, options());
  for (const Group& group : groups(sampling_of(1), 5, 8)) engine.submit(group);
  for (int i = 0; i < 4; ++i) engine.step();
  engine.cancel_all();
  engine.check_idle_invariants();
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(std::ssize(engine.take_finished()), 40);
}

TEST_F(EngineTest, HiddenStatesArePassedOnceDespitePreemption) {
  SamplingOptions sampling = sampling_of(1);
  sampling.max_new_tokens = 40;
  const std::vector<Group> requests = groups(sampling);
  RecordingObserver roomy, tight;
  const Rollouts rollouts = run(requests, options(), &roomy);
  EngineOptions few_pages = options();
  few_pages.kv_memory_bytes = 9 * page_bytes();
  few_pages.prefill_chunk = 5;
  Engine engine(*model_, few_pages, nullptr, &tight);
  tests::run(engine, requests);
  EXPECT_GT(engine.stats().preemptions, 0);
  EXPECT_GT(engine.stats().repeated_rows, 0);

  const DenseModel dense(*model_);
  for (const auto& [key, response] : rollouts) {
    const std::vector<int32_t>& prompt = requests[key.first].tokens;
    std::vector<int32_t> tokens(prompt);
    tokens.insert(tokens.end(), response.tokens.begin(), response.tokens.end() - 1);
    const at::Tensor want = dense.hidden(tokens);
    for (const uint32_t sample : {key.second, HiddenStateObserver::kPrompt}) {
      const bool is_prompt = sample == HiddenStateObserver::kPrompt;
      if (!is_prompt && response.tokens.size() == 1) {
        EXPECT_FALSE(roomy.seen.contains(key));
        continue;
      }
      const auto& one = roomy.seen.at({key.first, sample});
      const auto& other = tight.seen.at({key.first, sample});
      const int64_t first = is_prompt ? 0 : std::ssize(prompt);
      const int64_t count = is_prompt ? std::ssize(prompt) : std::ssize(response.tokens) - 1;
      EXPECT_EQ(one.first_position, first);
      ASSERT_EQ(one.tokens,
                std::vector<int32_t>(tokens.begin() + first, tokens.begin() + first + count));
      EXPECT_EQ(other.tokens, one.tokens);
      EXPECT_TRUE(tests::tensors_near(at::stack(one.hidden), want.narrow(0, first, count), 1e-4));
      EXPECT_TRUE(at::equal(at::stack(one.hidden), at::stack(other.hidden)));
    }
  }
}

TEST_F(EngineTest, StatsCountStepsRowsAndTokens) {
  Engine engine(*model_, options());
  const std::vector<Group> requests = groups(sampling_of(1));
  int64_t tokens = 0, rows = 0;
  for (const Group& group : requests) rows += std::ssize(group.tokens);
  for (const auto& [key, response] : tests::run(engine, requests)) {
    tokens += std::ssize(response.tokens);
    rows += std::ssize(response.tokens) - 1;
  }
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.tokens, tokens);
  EXPECT_EQ(stats.rows, rows);
  EXPECT_EQ(stats.repeated_rows, 0);
  EXPECT_EQ(stats.preemptions, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.pages, 200);
  EXPECT_EQ(stats.kv_bytes, 200 * page_bytes());
  EXPECT_EQ(std::accumulate(stats.batch_sizes.begin(), stats.batch_sizes.end(), int64_t{0}),
            stats.steps);
  EXPECT_GT(stats.forward_seconds, 0);
  EXPECT_EQ(engine.free_slots(), 16);
}

// Between two phases of rollouts, for an update. The cache is large enough to be released.
TEST_F(EngineTest, ReleasedMemoryChangesNoToken) {
  EngineOptions large = options();
  large.max_running = 256;
  large.max_batch_tokens = 512;
  large.kv_memory_bytes = int64_t{40} << 20;
  for (const bool prefix_cache : {false, true}) {
    large.prefix_cache = prefix_cache;
    Engine engine(*model_, large, &text_);
    ASSERT_GE(engine.stats().kv_bytes, int64_t{32} << 20);
    const Rollouts want = tests::run(engine, groups(sampling_of(1)));
    for (int phase = 0; phase < 2; ++phase) {
      engine.release_memory();
      engine.check_idle_invariants();
      EXPECT_EQ(engine.stats().cached_pages, 0) << "a prompt would begin with empty pages";
      EXPECT_EQ(tests::difference(tests::run(engine, groups(sampling_of(1))), want), "");
    }
    engine.submit(groups(sampling_of(1))[0]);
    EXPECT_THROW(engine.release_memory(), Error) << "a sequence is unfinished";
  }
}

TEST_F(EngineTest, CacheIsNeverLargerThanTheSequencesCanFill) {
  EngineOptions options;
  options.max_running = 2;
  options.kv_memory_bytes = int64_t{1} << 40;
  EXPECT_EQ(Engine(*model_, options).stats().pages, 2 * (config_.max_positions / 16 + 1));
}

TEST_F(EngineTest, InvalidOptionsAreRefused) {
  EngineOptions options;
  options.max_batch_tokens = options.max_running - 1;
  EXPECT_THROW(Engine(*model_, options), InputError);
  options = {};
  options.prefill_chunk = 0;
  EXPECT_THROW(Engine(*model_, options), Error);
}

// ReMax: one of a group's responses is decoded greedily, and no other changes.
TEST(GreedySampleTest, OfAGroupIsTheGreedyResponse) {
  const auto model = tests::make_tiny_model(tests::tiny_config(model::Family::kQwen2), at::kFloat);
  const auto responses = [&](double temperature, int64_t samples, int64_t first_greedy) {
    auto sampling = std::make_shared<SamplingOptions>();
    sampling->max_new_tokens = 24;
    sampling->temperature = temperature;
    sampling->top_k = 20;
    Group group{.prompt_id = 3, .tokens = {5, 6, 7}, .samples = samples, .sampling = sampling};
    if (first_greedy >= 0) group.first_greedy_sample = first_greedy;
    Engine engine(*model, EngineOptions{});
    return tests::run(engine, {group});
  };
  const Rollouts mixed = responses(1.3, 4, 3), sampled = responses(1.3, 4, -1),
                 greedy = responses(0, 1, -1);
  const auto of = [](const Rollouts& rollouts, uint32_t sample) -> const Response& {
    return rollouts.at({3, sample});
  };
  for (uint32_t sample = 0; sample < 3; ++sample) {
    EXPECT_EQ(of(mixed, sample).tokens, of(sampled, sample).tokens) << sample;
    EXPECT_EQ(of(mixed, sample).logprobs, of(sampled, sample).logprobs) << sample;
  }
  EXPECT_EQ(of(mixed, 3).tokens, of(greedy, 0).tokens);
  EXPECT_EQ(of(mixed, 3).logprobs, of(greedy, 0).logprobs);
  EXPECT_NE(of(mixed, 3).tokens, of(sampled, 3).tokens);
}

}  // namespace
}  // namespace tlt::rollout
