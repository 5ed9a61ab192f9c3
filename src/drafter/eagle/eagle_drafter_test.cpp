// SPDX-License-Identifier: Apache-2.0
#include "drafter/eagle/eagle_drafter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "drafter/eagle/draft_eagle.h"
#include "drafter/eagle/draft_eagle3.h"
#include "drafter/eagle/eagle_top_k.h"
#include "drafter/files/draft_hot_tokens.h"
#include "tests/support/count_allocations.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter {
namespace {

using model::Family;
using tests::make_tiny_model;
using tests::tiny_config;

// A sequence as the engine knows it: its tokens, and the target's state at each but the last.
struct Text {
  std::vector<int32_t> prompt;
  std::vector<int32_t> response;
  std::vector<at::Tensor>
      states;  // [D] each: the prompt's, then those the response was sampled from
  DraftTree tree;
  std::vector<double> numbers;
  SharedUniforms draws;  // of the next tokens

  int64_t pairs() const { return std::ssize(states); }
  int32_t token_of_pair(int64_t pair) const {
    const int64_t token = pair + 1 - std::ssize(prompt);
    return token < 0 ? prompt[static_cast<size_t>(pair + 1)] : response[static_cast<size_t>(token)];
  }
};

// Reference: computes everything from the start for every node, without cache, batch and lanes.
class SlowDrafter {
 public:
  // tokens: the draft vocabulary of an EAGLE-1/2 draft model.
  explicit SlowDrafter(const drafter::DraftNetwork& network, std::vector<int32_t> tokens = {})
      : network_(network),
        tokens_(std::move(tokens)),
        cache_(network.device(), network.kv_shape(), kPages),
        activations_(network, 16),
        pages_(kPages) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // Drafts with a context that begins at the pair `origin`.
  DraftTree draft(const Text& text, int64_t origin, Strategy strategy) {
    const int64_t rows = tokens_.empty() ? network_.head_rows() : std::ssize(tokens_);
    strategy.width = std::min(strategy.width, rows);
    DraftTree tree;
    DraftBeam beam;
    beam.start(strategy, &tree);
    std::map<int32_t, at::Tensor> features;  // by node, the root's too
    while (!beam.frontier().empty()) {
      std::vector<int32_t> tokens;
      std::vector<float> probabilities;
      for (const int32_t node : beam.frontier()) {
        features[node] = feature_of(text, origin, tree, node, features);
        at::Tensor logits = at::empty({1, network_.head_rows()}, at::kFloat);
        network_.logits(features[node].unsqueeze(0), activations_, logits);
        if (!tokens_.empty()) logits = logits.index_select(1, at::tensor(tokens_, at::kInt));
        const size_t place = tokens.size(), width = static_cast<size_t>(strategy.width);
        tokens.resize(place + width);
        probabilities.resize(place + width);
        const int32_t depth = node == DraftTree::kRoot ? 0 : tree[node].depth;
        const std::vector<TopK> top = {{std::span(tokens).subspan(place),
                                        std::span(probabilities).subspan(place),
                                        text.draws.after(depth)}};
        TopKSoftmax().choose(network_.device(),
                             {logits.data_ptr<float>(), static_cast<size_t>(rows)}, top);
        for (int32_t& token : std::span(tokens).subspan(place))
          token = tokens_.empty() ? network_.token_of(token) : tokens_[static_cast<size_t>(token)];
      }
      beam.expand(tokens, probabilities);
    }
    beam.finish();
    return tree;
  }

 private:
  static constexpr int64_t kPages = 32;

  at::Tensor feature_of(const Text& text, int64_t origin, const DraftTree& tree, int32_t node,
                        const std::map<int32_t, at::Tensor>& features) {
    std::vector<int32_t> path;
    for (; node != DraftTree::kRoot; node = tree[node].parent) path.push_back(node);
    std::ranges::reverse(path);
    std::vector<int32_t> tokens;
    std::vector<at::Tensor> states, shown;
    for (int64_t pair = origin; pair < text.pairs(); ++pair) {
      tokens.push_back(text.token_of_pair(pair));
      shown.push_back(text.states[static_cast<size_t>(pair)]);
    }
    const at::Tensor read = network_.features(at::stack(shown), activations_);
    for (int64_t row = 0; row < read.size(0); ++row) states.push_back(read[row]);
    for (const int32_t step : path) {
      tokens.push_back(tree[step].token);
      states.push_back(features.at(tree[step].parent));
    }
    ops::Batch batch;
    batch.add(tokens.data(), static_cast<int32_t>(tokens.size()), /*first_position=*/0,
              pages_.data());
    return network_.forward(batch, at::stack(states), cache_, activations_)[-1].clone();
  }

  const drafter::DraftNetwork& network_;
  const std::vector<int32_t> tokens_;
  kv::KvCache cache_;
  drafter::DraftActivations activations_;
  std::vector<ops::PageId> pages_;
};

// The same bits: a row's result does not depend on the other rows of a pass.
void expect_equal(const DraftTree& got, const DraftTree& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (int32_t node = 0; node < got.size(); ++node) {
    ASSERT_EQ(got[node].token, want[node].token) << where << ", node " << node;
    ASSERT_EQ(got[node].parent, want[node].parent) << where << ", node " << node;
    ASSERT_EQ(got[node].probability, want[node].probability) << where << ", node " << node;
  }
}

enum class Kind { kEagle, kFewTokens, kEagle3 };

class EagleDrafterTest : public ::testing::TestWithParam<std::tuple<Family, at::ScalarType, Kind>> {
 protected:
  static EagleDrafterOptions options(int64_t window, int64_t pages = 1000) {
    const kv::KvShape shape = {.layers = 1, .kv_heads = 2, .head_size = 16, .type = type()};
    return {.window = window,
            .kv_memory_bytes = pages * shape.page_bytes(),
            .draft_vocab_size = kind() == Kind::kFewTokens ? kFewTokens : 0};
  }
  static Family family() { return std::get<0>(GetParam()); }
  static at::ScalarType type() { return std::get<1>(GetParam()); }
  static Kind kind() { return std::get<2>(GetParam()); }

  void SetUp() override {
    network_ = make_network(*model_);
    network_->initialize(/*seed=*/3);
    slow_ = std::make_unique<SlowDrafter>(*network_, few_tokens(*network_));
  }

  static constexpr int64_t kFewTokens = 31;
  static std::vector<int32_t> few_tokens(const drafter::DraftNetwork& network) {
    if (kind() != Kind::kFewTokens) return {};
    return drafter::hottest(network.hot_tokens(), kFewTokens);
  }

  // EAGLE-3: an LM head that does not have all tokens.
  static std::unique_ptr<drafter::DraftNetwork> make_network(const model::PolicyModel& model) {
    const model::ModelConfig& config = model.config();
    std::vector<int32_t> tokens;
    if (kind() != Kind::kEagle3) {
      auto network =
          std::make_unique<drafter::EagleNetwork>(model, drafter::EagleNetwork::config_for(config));
      for (int64_t i = 0; i < config.vocabulary; ++i)  // 11 has no factor of the vocabularies here
        tokens.push_back(static_cast<int32_t>((11 * i + 4) % config.vocabulary));
      network->set_hot_tokens(std::move(tokens));
      return network;
    }
    for (int32_t token = 1; token < config.vocabulary; token += 1 + token % 2)
      tokens.push_back(token);
    auto network = std::make_unique<drafter::Eagle3Network>(
        model, drafter::Eagle3Config::make(config, std::ssize(tokens)));
    network->set_head_tokens(std::move(tokens));
    return network;
  }
  static model::ModelConfig config_of_target() {
    model::ModelConfig config = tiny_config(family());
    config.layers = 3;  // as many as EAGLE-3 reads
    return config;
  }

  int64_t vocabulary() const { return model_->config().vocabulary; }
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random_.below(static_cast<uint64_t>(limit)));
  }
  int32_t token() { return static_cast<int32_t>(below(vocabulary())); }
  at::Tensor states(int64_t rows) {
    at::Tensor states = at::empty({rows, network_->feature_columns()}, at::kFloat);
    for (int64_t i = 0; i < states.numel(); ++i)
      states.data_ptr<float>()[i] = static_cast<float>(random_.normal());
    return states.to(type());
  }

  // Runs a prompt through the target in pieces.
  void read_prompt(EagleDrafter& drafter, uint32_t prompt_id, int64_t length) {
    Prompt& prompt = prompts_[prompt_id];
    prompt.tokens.clear();
    for (int64_t i = 0; i < length; ++i) prompt.tokens.push_back(token());
    prompt.states = states(length);
    for (int64_t first = 0; first < length;) {
      const int64_t rows = 1 + below(std::min<int64_t>(length - first, 20));
      drafter.read_prompt(
          prompt_id, static_cast<int32_t>(first), prompt.states.narrow(0, first, rows),
          std::span(prompt.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
      first += rows;
    }
  }

  void begin(EagleDrafter& drafter, SequenceId id) {
    Text& text = texts_[id];
    const Prompt& prompt = prompts_.at(id.prompt_id);
    text.prompt = prompt.tokens;
    for (int64_t i = 0; i + 1 < prompt.states.size(0); ++i) text.states.push_back(prompt.states[i]);
    commit(drafter, id, 1);
  }

  // Tokens sampled from any rows of a forward pass.
  void commit(EagleDrafter& drafter, SequenceId id, int64_t count) {
    Text& text = texts_.at(id);
    const at::Tensor hidden = states(count + 5);
    std::vector<int32_t> rows, tokens;
    for (int64_t i = 0; i < count; ++i) {
      rows.push_back(static_cast<int32_t>(i + below(6)));
      tokens.push_back(token());
      text.states.push_back(hidden[rows.back()].clone());
      text.response.push_back(tokens.back());
    }
    drafter.read_states(id, std::ssize(text.response) - count, hidden, rows);
  }

  void end(EagleDrafter& drafter, SequenceId id) {
    drafter.end(id, texts_.at(id).response);
    texts_.erase(id);
  }

  // Uniforms of some of the next tokens, or none.
  void draw_numbers(Text& text) {
    text.numbers.resize(static_cast<size_t>(below(8)));
    for (double& number : text.numbers) number = random_.uniform();
    text.draws = {text.numbers, {.temperature = 0.5 + random_.uniform(), .top_k = below(2) * 3}};
  }

  Strategy random_strategy() {
    Strategy strategy{.depth = 1 + below(9), .width = 1 + below(6), .verify = 0};
    strategy.verify = 2 + below(std::min<int64_t>(scored_nodes(strategy), 40));
    return strategy;
  }

  using Asked = std::map<SequenceId, Strategy>;

  void propose(EagleDrafter& drafter, const Asked& asked) {
    std::vector<DraftRequest> requests;
    for (const auto& [id, strategy] : asked) {
      Text& text = texts_.at(id);
      draw_numbers(text);
      requests.push_back({.id = id,
                          .prompt = text.prompt,
                          .response = text.response,
                          .strategy = strategy,
                          .tree = &text.tree,
                          .draws = text.draws});
    }
    drafter.propose(requests);
  }

  // Compares the drafter's trees with the reference's for the same contexts; returns the number of
  // trees.
  int64_t expect_right(EagleDrafter& drafter, const Asked& asked, const std::string& where) {
    propose(drafter, asked);
    int64_t trees = 0;
    for (const auto& [id, strategy] : asked) {
      const Text& text = texts_.at(id);
      if (text.tree.empty()) continue;
      ++trees;
      expect_equal(text.tree, slow_->draft(text, drafter.context(id).origin, strategy),
                   where + ", sequence " + std::to_string(id.sample) + " of prompt " +
                       std::to_string(id.prompt_id) + ", " + to_string(strategy));
      EXPECT_EQ(drafter.context(id).read, text.pairs());
    }
    return trees;
  }

  struct Prompt {
    std::vector<int32_t> tokens;
    at::Tensor states;
  };

  const std::unique_ptr<model::PolicyModel> model_ = make_tiny_model(config_of_target(), type());
  std::unique_ptr<drafter::DraftNetwork> network_;
  std::unique_ptr<SlowDrafter> slow_;
  std::map<uint32_t, Prompt> prompts_;
  std::map<SequenceId, Text> texts_;
  RandomStream random_{/*seed=*/7, {}};
};

// The same trees as for requests without uniforms.
TEST_P(EagleDrafterTest, UniformsAreIgnoredIfTheOptionIsOff) {
  EagleDrafterOptions forgetful = options(/*window=*/64);
  forgetful.common_random_numbers = false;
  EagleDrafter drafter(*network_, forgetful);
  read_prompt(drafter, /*prompt_id=*/0, 20);
  begin(drafter, {0, 0});
  Text& text = texts_.at({0, 0});
  const std::vector<double> numbers = {0.9, 0.1, 0.95, 0.5};
  const auto draft = [&](std::span<const double> known) {
    drafter.propose(std::vector<DraftRequest>{{.id = {0, 0},
                                               .prompt = text.prompt,
                                               .response = text.response,
                                               .strategy = {4, 3, 9},
                                               .tree = &text.tree,
                                               .draws = {known, {}}}});
    return text.tree;
  };
  const DraftTree without = draft({});
  expect_equal(draft(numbers), without, "uniforms that are ignored");
}

TEST_P(EagleDrafterTest, MatchesTheNetworkWithoutCacheOrBatch) {
  EagleDrafter drafter(*network_, options(/*window=*/64));
  uint32_t prompts = 0;
  int64_t trees = 0;
  for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
    const std::string where = "step " + std::to_string(step);
    if (step % 12 == 0) {
      read_prompt(drafter, prompts, 1 + below(50));
      for (uint32_t sample = 0; sample < 3; ++sample) begin(drafter, {prompts, sample});
      ++prompts;
    }
    Asked asked;
    for (auto& [id, text] : texts_)
      if (below(4) > 0) asked[id] = random_strategy();
    trees += expect_right(drafter, asked, where);
    for (const auto& [id, strategy] : asked)
      EXPECT_EQ(drafter.context(id).origin, 0) << where << ": no gap";
    for (auto& [id, text] : texts_)  // sometimes an engine step skips one
      if (below(6) > 0) commit(drafter, id, 1 + below(6));
    if (step % 5 == 4) end(drafter, std::next(texts_.begin(), below(std::ssize(texts_)))->first);
  }
  EXPECT_GT(trees, 100);
  EXPECT_EQ(drafter.stats().refused, 0);
  while (!texts_.empty()) end(drafter, std::next(texts_.begin(), below(std::ssize(texts_)))->first);
  EXPECT_EQ(drafter.pool().free_pages(), drafter.pool().total_pages());
}

TEST_P(EagleDrafterTest, JoinsInTheMiddleOfAResponse) {
  constexpr int64_t kWindow = 40;
  EagleDrafter drafter(*network_, options(kWindow));
  const auto enter = [&](SequenceId id, int64_t want_origin, const std::string& where) {
    EXPECT_EQ(expect_right(drafter, {{id, {6, 4, 20}}}, where), 1) << where;
    EXPECT_EQ(drafter.context(id).origin, want_origin) << where;
  };
  read_prompt(drafter, 0, 30);
  for (uint32_t sample = 0; sample < 4; ++sample) begin(drafter, {0, sample});
  for (int i = 0; i < 5; ++i) commit(drafter, {0, 0}, 2);
  enter({0, 0}, 0, "the prompt's 29 pairs and 11 own");
  commit(drafter, {0, 1}, 20);
  enter({0, 1}, 29 + 21 - kWindow, "a part of the prompt");
  for (int i = 0; i < 100; ++i) commit(drafter, {0, 2}, 1 + below(3));
  enter({0, 2}, texts_.at({0, 2}).pairs() - kWindow, "the window has gone round");

  enter({0, 3}, 0, "from the start on");
  commit(drafter, {0, 3}, kWindow);
  enter({0, 3}, 0, "nothing missed yet");
  commit(drafter, {0, 3}, kWindow + 1);
  enter({0, 3}, texts_.at({0, 3}).pairs() - kWindow, "one pair missed");
  commit(drafter, {0, 3}, 3);
  enter({0, 3}, texts_.at({0, 3}).pairs() - kWindow - 3, "and on");
  EXPECT_EQ(drafter.stats().starts, 5);
}

// As with a sequence that was not requested for long: only the log's latest states are available.
TEST_P(EagleDrafterTest, JoinsAfterAGap) {
  constexpr int64_t kWindow = 40;
  EagleDrafter drafter(*network_, options(kWindow));
  read_prompt(drafter, 0, 30);
  const auto miss = [&](SequenceId id, int64_t count) {
    Text& text = texts_[id];
    if (text.prompt.empty()) {
      text.prompt = prompts_.at(0).tokens;
      for (int64_t i = 0; i < 29; ++i) text.states.push_back(prompts_.at(0).states[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      text.states.push_back(states(1)[0]);
      text.response.push_back(token());
    }
  };
  const auto enter = [&](SequenceId id, int64_t known, const std::string& where) {
    EXPECT_EQ(expect_right(drafter, {{id, {6, 4, 20}}}, where), 1) << where;
    EXPECT_EQ(drafter.context(id).origin, texts_.at(id).pairs() - known) << where;
  };
  miss({0, 0}, 7);
  commit(drafter, {0, 0}, 5);
  enter({0, 0}, 5, "the beginning was missed");
  commit(drafter, {0, 0}, 3);
  enter({0, 0}, 8, "and on");
  miss({0, 0}, 20);
  commit(drafter, {0, 0}, 12);
  commit(drafter, {0, 0}, 13);
  enter({0, 0}, 25, "some in the midst were missed");
  commit(drafter, {0, 0}, 30);
  enter({0, 0}, 55, "nothing missed since");
  miss({0, 1}, 0);
  commit(drafter, {0, 1}, 3);
  miss({0, 1}, 300);
  commit(drafter, {0, 1}, kWindow + 9);
  enter({0, 1}, kWindow, "more than a window since");
}

TEST_P(EagleDrafterTest, PromptsMayExceedTheWindowOrBeEvicted) {
  EagleDrafterOptions small = options(/*window=*/32);
  const int64_t window_bytes = 32 * network_->feature_columns() * (type() == at::kFloat ? 4 : 2);
  small.prompt_memory_bytes = 2 * window_bytes;
  EagleDrafter drafter(*network_, small);
  const auto expect_origin = [&](uint32_t prompt_id, int64_t origin) {
    expect_right(drafter, {{{prompt_id, 0}, {3, 3, 9}}}, "prompt " + std::to_string(prompt_id));
    EXPECT_EQ(drafter.context({prompt_id, 0}).origin, origin) << "prompt " << prompt_id;
  };
  read_prompt(drafter, 0, 70);
  begin(drafter, {0, 0});
  expect_origin(0, 70 - 32);
  read_prompt(drafter, 1, 40);
  read_prompt(drafter, 2, 33);  // evicts the first one: least recently used
  begin(drafter, {2, 0});
  begin(drafter, {1, 0});
  begin(drafter, {0, 1});
  expect_origin(2, 33 - 32);
  expect_origin(1, 40 - 32);
  commit(drafter, {0, 0}, 2);
  expect_origin(0, 70 - 32);  // already read
  end(drafter, {1, 0});
  read_prompt(drafter, 3, 40);  // evicts the second one: no running sample
  begin(drafter, {3, 0});
  begin(drafter, {2, 1});
  expect_origin(3, 40 - 32);
  expect_right(drafter, {{{0, 1}, {3, 3, 9}}, {{2, 1}, {3, 3, 9}}}, "more samples");
  EXPECT_EQ(drafter.context({0, 1}).origin, 69) << "without its prompt";
  EXPECT_EQ(texts_.at({0, 1}).tree.size(), 8);
  EXPECT_EQ(drafter.context({2, 1}).origin, 33 - 32);
}

// The next epoch's target has other states, while a sample of the last one still runs.
TEST_P(EagleDrafterTest, PromptReadAgainGetsNewStates) {
  EagleDrafter drafter(*network_, options(64));
  for (uint32_t sample = 0; sample < 3; ++sample) {
    read_prompt(drafter, 0, 20);
    begin(drafter, {0, sample});
    EXPECT_EQ(expect_right(drafter, {{{0, sample}, {3, 3, 9}}}, "again"), 1);
    EXPECT_EQ(drafter.context({0, sample}).origin, 0);
  }
}

// Prompts that fill their last page and prompts that do not; a sample that comes late, and a single
// one.
TEST_P(EagleDrafterTest, PromptIsReadOnceForAllItsSamples) {
  for (const int64_t length : {3, 17, 33, 40}) {
    EagleDrafter drafter(*network_, options(/*window=*/64));
    texts_.clear();
    read_prompt(drafter, 0, length);
    read_prompt(drafter, 1, length);
    begin(drafter, {1, 0});
    for (uint32_t sample = 0; sample < 4; ++sample) begin(drafter, {0, sample});
    Asked asked;
    for (const auto& [id, text] : texts_) asked[id] = {4, 3, 8};
    EXPECT_EQ(expect_right(drafter, asked, "first"), 5);
    EXPECT_EQ(drafter.stats().rows_read, (length - 1 + 4) + length);
    const int64_t shared = (length - 1) / ops::kPageSlots;
    for (int64_t page = 0; page < shared; ++page) {
      const kv::PageId its = drafter.context({0, 0}).pages[static_cast<size_t>(page)];
      EXPECT_EQ(drafter.pool().holders(its), 5) << "four samples and the prompt";
    }
    for (int step = 0; step < 8; ++step) {
      for (const auto& [id, text] : texts_) commit(drafter, id, 1 + below(3));
      if (step == 3) begin(drafter, {0, 9}), asked[{0, 9}] = {4, 3, 8};
      const int64_t before = drafter.stats().rows_read;
      EXPECT_EQ(expect_right(drafter, asked, "step " + std::to_string(step)), std::ssize(asked));
      EXPECT_LE(drafter.stats().rows_read - before, 3 * std::ssize(asked))
          << "the prompt is read again";
    }
    while (!texts_.empty()) end(drafter, texts_.begin()->first);
    EXPECT_EQ(drafter.pool().free_pages(), drafter.pool().total_pages());
    prompts_.clear();
  }
}

TEST_P(EagleDrafterTest, SharedPromptReadAgainGetsNewStates) {
  EagleDrafter drafter(*network_, options(/*window=*/64));
  read_prompt(drafter, 0, 40);
  begin(drafter, {0, 0}), begin(drafter, {0, 1});
  expect_right(drafter, {{{0, 0}, {4, 3, 8}}, {{0, 1}, {4, 3, 8}}}, "before");
  read_prompt(drafter, 0, 40);
  begin(drafter, {0, 2}), begin(drafter, {0, 3});
  EXPECT_EQ(expect_right(drafter, {{{0, 2}, {4, 3, 8}}, {{0, 3}, {4, 3, 8}}}, "after"), 2);
}

TEST_P(EagleDrafterTest, HandlesOneTokenPromptsAndNoPairs) {
  EagleDrafter drafter(*network_, options(32));
  prompts_[0] = {.tokens = {5}, .states = states(1)};
  texts_[{0, 0}].prompt = {5};
  EXPECT_EQ(expect_right(drafter, {{{0, 0}, {3, 2, 4}}}, "no response"), 0);
  commit(drafter, {0, 0}, 1);
  EXPECT_EQ(expect_right(drafter, {{{0, 0}, {3, 2, 4}}}, "one token"), 1);
}

TEST_P(EagleDrafterTest, WidthIsLimitedByTheVocabulary) {
  model::ModelConfig config = config_of_target();
  config.vocabulary = 6;
  const auto model = make_tiny_model(config, type());
  const auto network = make_network(*model);
  network->initialize(4);
  EagleDrafter drafter(*network, options(32));
  texts_[{0, 0}].prompt = {5};
  drafter.read_states({0, 0}, 0, states(1), std::vector<int32_t>{0});
  texts_[{0, 0}].response = {3};
  propose(drafter, {{{0, 0}, {4, 11, 40}}});
  // Three tokens of EAGLE-3's LM head make 3 + 3 * 9 nodes.
  EXPECT_EQ(texts_.at({0, 0}).tree.size(), kind() == Kind::kEagle3 ? 30 : 39);
  texts_[{0, 0}].tree.check();
}

// More pairs than a pass reads, more nodes than a pass takes, more logits than the buffer holds.
TEST_P(EagleDrafterTest, LargeBatchesAndVocabulariesNeedMorePasses) {
  if (type() == at::kFloat || family() != Family::kQwen2)
    GTEST_SKIP() << "its path is the same for every family and type; qwen2 in bfloat16 takes it";
  if (kind() == Kind::kEagle3) GTEST_SKIP() << "has as many logits as an LM head of 70000 rows";
  model::ModelConfig config = tiny_config(family());
  config.vocabulary = 70000;
  const auto model = make_tiny_model(config, type());
  const auto network = make_network(*model);
  network->initialize(4);
  EagleDrafter drafter(*network, options(/*window=*/64, /*pages=*/2000));
  slow_ = std::make_unique<SlowDrafter>(*network, few_tokens(*network));
  Asked asked;
  read_prompt(drafter, 0, 22);
  for (uint32_t sample = 0; sample < 50; ++sample) {
    begin(drafter, {0, sample});
    asked[{0, sample}] = {2, 6, 12};
  }
  EXPECT_EQ(expect_right(drafter, asked, "many"), 50);
  EXPECT_EQ(drafter.stats().passes, 1 + 2 + 2) << "the prompt; 43 sequences, then 7";
  EXPECT_EQ(drafter.stats().rows_read, 21 + 50);
  EXPECT_EQ(drafter.stats().rows_drafted, 50 * 6);
}

// The LM head of a small draft vocabulary is a copy of the target's rows.
TEST_P(EagleDrafterTest, DraftsWithTheNewWeightsOfTheTarget) {
  EagleDrafter drafter(*network_, options(64));
  model_->initialize(/*seed=*/99);
  drafter.new_weights();
  read_prompt(drafter, 0, 20);
  begin(drafter, {0, 0});
  EXPECT_EQ(expect_right(drafter, {{{0, 0}, {4, 3, 12}}}, "new weights"), 1);
}

TEST_P(EagleDrafterTest, SmallDraftVocabularyNeedsHotTokens) {
  network_->set_hot_tokens({});
  EagleDrafterOptions few = options(64);
  few.draft_vocab_size = 20;
  if (kind() == Kind::kEagle3)
    EagleDrafter(*network_, few);  // has an LM head of its own
  else
    EXPECT_THROW(EagleDrafter(*network_, few), InputError);
}

// Some sequences get trees and the others none; no sequence starves, and no page is lost.
TEST_P(EagleDrafterTest, TooFewPagesLeaveSomeTreesEmpty) {
  for (const int64_t pages : {1, 3, 12, 30, 100}) {
    EagleDrafter drafter(*network_, options(/*window=*/48, pages));
    texts_.clear();
    std::map<SequenceId, int64_t> trees;
    read_prompt(drafter, 0, 40);
    for (uint32_t sample = 0; sample < 6; ++sample) begin(drafter, {0, sample});
    for (int step = 0; step < 30 && !HasFatalFailure(); ++step) {
      Asked asked;
      for (auto& [id, text] : texts_)
        if (below(8) > 0) asked[id] = step < 20 ? Strategy{4, 3, 8} : random_strategy();
      expect_right(drafter, asked, std::to_string(pages) + " pages, step " + std::to_string(step));
      for (auto& [id, text] : texts_) {
        trees[id] += asked.contains(id) && !text.tree.empty();
        commit(drafter, id, 1 + below(3));
      }
    }
    for (const auto& [id, count] : trees) {
      EXPECT_GT(count, pages == 60   ? 35
                       : pages >= 25 ? 5
                                     : -1)
          << pages << " pages, sequence " << id.sample;
    }
    EXPECT_EQ(drafter.stats().refused > 0, pages < 100) << pages;
    while (!texts_.empty()) end(drafter, texts_.begin()->first);
    EXPECT_EQ(drafter.pool().free_pages(), pages);
    prompts_.clear();
  }
}

TEST_P(EagleDrafterTest, AllocatesNothingOfItsOwnOnceWarm) {
  EagleDrafter drafter(*network_, options(/*window=*/64));
  read_prompt(drafter, 0, 20);
  Asked asked;
  for (uint32_t sample = 0; sample < 5; ++sample) {
    begin(drafter, {0, sample});
    asked[{0, sample}] = {6, 4, 16};
  }
  const at::Tensor hidden = states(8);
  const std::vector<int32_t> rows = {2, 5, 1}, tokens = {7, 8, 9};
  std::vector<DraftRequest> requests(asked.size());
  int64_t in_read = 0, in_propose = 0, passes = 0, rounds = 0;
  constexpr int kWarm = 72;
  for (int step = 0; step < kWarm + 8; ++step) {
    size_t place = 0;
    for (auto& [id, strategy] : asked) {
      Text& text = texts_.at(id);
      const size_t count = 1 + (static_cast<size_t>(step) + place) % 3;
      text.response.insert(text.response.end(), tokens.begin(), tokens.begin() + count);
      const int64_t before = tests::allocations;
      drafter.read_states(id, std::ssize(text.response) - static_cast<int64_t>(count), hidden,
                          std::span(rows).first(count));
      if (step > kWarm) in_read += tests::allocations - before;
      requests[place++] = {.id = id,
                           .prompt = text.prompt,
                           .response = text.response,
                           .strategy = strategy,
                           .tree = &text.tree};
    }
    const int64_t before = tests::allocations, passes_before = drafter.stats().passes;
    drafter.propose(requests);
    if (step <= kWarm) continue;
    in_propose += tests::allocations - before;
    passes += drafter.stats().passes - passes_before;
    ++rounds;
  }
  // Allocations of a pass of the network and the LM head, and once of the features of EAGLE-3.
  const EagleHead head(*network_, options(64).draft_vocab_size);
  at::Tensor shown = states(20), logits = at::empty({20, head.rows()}, at::kFloat);
  kv::KvCache cache(network_->device(), network_->kv_shape(), 2);
  drafter::DraftActivations activations(*network_, 20);
  const std::vector<int32_t> twenty(20, 3);
  const std::vector<ops::PageId> pages = {0, 1};
  ops::Batch batch;
  batch.add(twenty.data(), 20, 0, pages.data());
  for (int i = 0; i < 2; ++i)
    network_->forward(batch, network_->features(shown, activations), cache, activations);
  int64_t before = tests::allocations;
  const at::Tensor& features = network_->features(shown, activations);
  const int64_t in_features = tests::allocations - before;
  before = tests::allocations;
  const at::Tensor& next = network_->forward(batch, features, cache, activations);
  const int64_t in_forward = tests::allocations - before;
  head.logits(next, activations, logits);
  before = tests::allocations;
  head.logits(next, activations, logits);
  const int64_t in_head = tests::allocations - before;
  EXPECT_EQ(in_read, 0);
  EXPECT_EQ(in_propose, passes * (in_forward + in_head) + rounds * in_features)
      << passes << " passes";
}

TEST_P(EagleDrafterTest, MemoryBytesCoverStatesAndCache) {
  EagleDrafter drafter(*network_, options(/*window=*/1000, /*pages=*/100));
  const int64_t state_bytes = network_->feature_columns() * (type() == at::kFloat ? 4 : 2);
  const int64_t empty = drafter.memory_bytes();
  EXPECT_GE(empty, 100 * network_->kv_shape().page_bytes());
  read_prompt(drafter, 0, 500);
  begin(drafter, {0, 0});
  commit(drafter, {0, 0}, 300);
  EXPECT_GE(drafter.memory_bytes(), empty + 800 * state_bytes);
  EXPECT_LE(drafter.memory_bytes(), empty + 2 * 800 * state_bytes);
}

// As with a sequence that was preempted while others filled the log of states.
TEST_P(EagleDrafterTest, NoTreeWithoutTheLatestState) {
  EagleDrafter drafter(*network_, options(32));
  read_prompt(drafter, 0, 5);
  for (uint32_t sample = 0; sample < 2; ++sample) begin(drafter, {0, sample});
  const Asked asked = {{{0, 0}, {3, 2, 4}}, {{0, 1}, {3, 2, 4}}};
  EXPECT_EQ(expect_right(drafter, asked, "all is known"), 2);
  Text& text = texts_.at({0, 0});
  for (int i = 0; i < 3; ++i) {
    text.states.push_back(states(1)[0]);
    text.response.push_back(token());
  }
  EXPECT_EQ(expect_right(drafter, asked, "three are missed"), 1);
  EXPECT_TRUE(text.tree.empty());
  commit(drafter, {0, 0}, 2);
  EXPECT_EQ(expect_right(drafter, asked, "two that follow"), 2);
  EXPECT_EQ(drafter.context({0, 0}).origin, text.pairs() - 2) << "restarted";
}

TEST_P(EagleDrafterTest, InvalidInputsThrow) {
  EagleDrafter drafter(*network_, options(32));
  read_prompt(drafter, 0, 5);
  begin(drafter, {0, 0});
  EXPECT_THROW(drafter.read_states({0, 0}, 0, states(1), std::vector<int32_t>{0}), Error)
      << "a repeated state";
  texts_.at({0, 0}).response.pop_back();
  EXPECT_THROW(propose(drafter, {{{0, 0}, {3, 2, 4}}}), Error) << "a state without its token";
  EXPECT_THROW(EagleDrafter(*network_, options(32, 0)), InputError);
  EXPECT_THROW(EagleDrafter(*network_, options(0)), Error);
}

INSTANTIATE_TEST_SUITE_P(Networks, EagleDrafterTest,
                         ::testing::Values(std::tuple(Family::kQwen2, at::kFloat, Kind::kEagle),
                                           std::tuple(Family::kQwen2, at::kBFloat16, Kind::kEagle),
                                           std::tuple(Family::kQwen3, at::kFloat, Kind::kEagle),
                                           std::tuple(Family::kQwen3, at::kBFloat16, Kind::kEagle),
                                           std::tuple(Family::kLlama, at::kFloat, Kind::kEagle),
                                           std::tuple(Family::kLlama, at::kBFloat16, Kind::kEagle),
                                           std::tuple(Family::kQwen2, at::kFloat, Kind::kEagle3),
                                           std::tuple(Family::kLlama, at::kBFloat16, Kind::kEagle3),
                                           std::tuple(Family::kLlama, at::kFloat, Kind::kFewTokens),
                                           std::tuple(Family::kQwen2, at::kBFloat16,
                                                      Kind::kFewTokens)),
                         [](const auto& info) {
                           return std::string(tests::name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == at::kFloat ? "_float32"
                                                                         : "_bfloat16") +
                                  (std::get<2>(info.param) == Kind::kEagle    ? "_eagle"
                                   : std::get<2>(info.param) == Kind::kEagle3 ? "_eagle3"
                                                                              : "_few_tokens");
                         });

}  // namespace
}  // namespace tlt::drafter
