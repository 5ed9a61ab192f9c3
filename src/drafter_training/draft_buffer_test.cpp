// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_buffer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "drafter_training/hidden_recorder.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/rollouts.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_model.h"

namespace tlt::drafter_training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tests::random_tokens;

constexpr int64_t kHidden = 3;

// The state at a position; its values encode prompt, sample and position.
at::Tensor states_of(uint32_t prompt_id, uint32_t sample, int64_t position, int64_t rows) {
  at::Tensor states = at::empty({rows, kHidden}, at::kFloat);
  for (int64_t i = 0; i < rows; ++i) {
    states[i][0] = static_cast<double>(prompt_id);
    states[i][1] =
        sample == rollout::HiddenStateObserver::kPrompt ? -1.0 : static_cast<double>(sample);
    states[i][2] = static_cast<double>(position + i);
  }
  return states;
}

// Offers token 1000 * prompt + position at each position.
void offer(DraftBuffer& buffer, uint32_t prompt_id, uint32_t sample, int32_t position,
           int64_t rows) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < rows; ++i)
    tokens.push_back(static_cast<int32_t>(1000 * prompt_id + position + i));
  const at::Tensor states = states_of(prompt_id, sample, position, rows);
  buffer.on_hidden_states(prompt_id, sample, position, {states}, tokens);
}

// Offers a prompt of 5 tokens and a response of `tokens` in pieces.
void offer_sequence(DraftBuffer& buffer, uint32_t prompt_id, int64_t tokens) {
  offer(buffer, prompt_id, rollout::HiddenStateObserver::kPrompt, 0, 3);
  offer(buffer, prompt_id, rollout::HiddenStateObserver::kPrompt, 3, 2);
  for (int64_t i = 0; i < tokens; i += 2)
    offer(buffer, prompt_id, 0, static_cast<int32_t>(5 + i), std::min<int64_t>(2, tokens - i));
}

uint32_t prompt_of(const DraftSample& sample) {
  return static_cast<uint32_t>(sample.tokens.front() / 1000);
}

void expect_rows_belong_to_tokens(const DraftSample& sample) {
  const at::Tensor states = sample.states();
  ASSERT_EQ(states.size(0), std::ssize(sample.tokens));
  for (int64_t i = 0; i < states.size(0); ++i) {
    const int32_t token = sample.tokens[static_cast<size_t>(i)];
    EXPECT_EQ(states[i][0].item<float>(), static_cast<float>(token / 1000));
    EXPECT_EQ(states[i][2].item<float>(), static_cast<float>(token % 1000)) << "row " << i;
    EXPECT_EQ(states[i][1].item<float>() < 0, i < sample.response_begin) << "row " << i;
  }
}

TEST(DraftBufferTest, PiecesHaveTheStatesOfTheirTokens) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  for (uint32_t prompt = 0; prompt < 12; ++prompt) offer_sequence(buffer, prompt, 1 + 4 * prompt);
  std::set<std::vector<int32_t>> pieces;
  for (int i = 0; i < 20; ++i) {
    int64_t tokens = 0;
    for (const DraftSample& sample : buffer.draw(40, 16)) {
      EXPECT_LE(sample.tokens.size(), 16u);
      tokens += std::ssize(sample.tokens);
      expect_rows_belong_to_tokens(sample);
      pieces.insert(sample.tokens);
    }
    EXPECT_GE(tokens, 37);
    EXPECT_LE(tokens, 40);
  }
  EXPECT_GT(pieces.size(), 40u);
  for (const DraftSample& sample : buffer.held_out(1000, 30)) expect_rows_belong_to_tokens(sample);
}

TEST(DraftBufferTest, HeldOutSequencesAreNeverDrawn) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  for (uint32_t prompt = 0; prompt < 20; ++prompt) offer_sequence(buffer, prompt, 30);
  std::set<uint32_t> held_out, drawn;
  for (const DraftSample& sample : buffer.held_out(1000, 512)) held_out.insert(prompt_of(sample));
  for (int i = 0; i < 100; ++i)
    for (const DraftSample& sample : buffer.draw(64, 16)) drawn.insert(prompt_of(sample));
  EXPECT_EQ(held_out, (std::set<uint32_t>{0, 8, 16}));
  EXPECT_EQ(drawn.size(), 17u);
  for (const uint32_t prompt : held_out) EXPECT_FALSE(drawn.contains(prompt)) << prompt;
}

// FastRL clears its buffer at the end of every session (docs/paper_map.md).
TEST(DraftBufferTest, LongResponsesOfThePreviousStepAreMixedIn) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  for (uint32_t prompt = 0; prompt < 16; ++prompt)
    offer_sequence(buffer, prompt, prompt < 8 ? 10 : 200);
  buffer.end_step();
  buffer.begin_step();
  for (uint32_t prompt = 100; prompt < 108; ++prompt) offer_sequence(buffer, prompt, 10);
  int64_t now = 0, is_short = 0, is_long = 0;
  for (int i = 0; i < 400; ++i)
    for (const DraftSample& sample : buffer.draw(16, 16)) {
      const uint32_t prompt = prompt_of(sample);
      ++(prompt >= 100 ? now : prompt < 8 ? is_short : is_long);
    }
  EXPECT_NEAR(static_cast<double>(now) / static_cast<double>(now + is_short + is_long), 0.5, 0.1);
  EXPECT_GT(is_long, 2 * is_short);
  EXPECT_GT(is_short, 0);
  // Two steps later they are dropped.
  buffer.begin_step();
  for (const DraftSample& sample : buffer.draw(1000, 16)) EXPECT_GE(prompt_of(sample), 100u);
}

TEST(DraftBufferTest, OldestSequenceIsDroppedFirst) {
  DraftBuffer buffer({.bytes = 60000, .seed = 3});
  buffer.begin_step();
  offer_sequence(buffer, 0, 30);
  offer_sequence(buffer, 1, 100);
  buffer.end_step();
  buffer.begin_step();
  offer_sequence(buffer, 2, 10);
  for (uint32_t prompt = 3; prompt < 60; ++prompt) {
    offer_sequence(buffer, prompt, 100);
    EXPECT_LE(buffer.bytes(), 60000);
  }
  const int64_t sequences = buffer.sequences();
  EXPECT_GT(sequences, 8);
  EXPECT_LT(sequences, 30);
  offer(buffer, 2, 0, 15, 2);  // of a dropped sequence
  EXPECT_EQ(buffer.sequences(), sequences);
  for (const DraftSample& sample : buffer.draw(100000, 64))
    EXPECT_GE(prompt_of(sample), 60 - static_cast<uint32_t>(sequences));
}

TEST(DraftBufferTest, DroppedSequencesFreeTheirMemory) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  for (uint32_t prompt = 0; prompt < 5; ++prompt) offer_sequence(buffer, prompt, 50);
  EXPECT_GT(buffer.bytes(), 5 * 50 * kHidden * 4);
  buffer.begin_step();
  EXPECT_GT(buffer.bytes(), 0);
  buffer.begin_step();
  EXPECT_EQ(buffer.bytes(), 0);
}

TEST(DraftBufferTest, StatesOutsideAStepAreNotKept) {
  DraftBuffer buffer({.seed = 3});
  offer_sequence(buffer, 0, 10);
  buffer.begin_step();
  buffer.end_step();
  offer_sequence(buffer, 1, 10);
  EXPECT_EQ(buffer.sequences(), 0);
  EXPECT_EQ(buffer.draw(100, 16).size(), 0u);
}

// A sequence that migrated to another worker and back, or whose prompt occurs twice in a step, is
// offered from its prompt on again.
TEST(DraftBufferTest, SequenceOfferedAgainIsANewOne) {
  DraftBuffer buffer({.bytes = 1 << 20, .seed = 0});
  buffer.begin_step();
  offer_sequence(buffer, 1, 12);  // held out, like the first one
  for (const int64_t tokens : {20, 40}) {
    offer_sequence(buffer, 2, tokens);
    std::vector<int64_t> lengths;
    for (const DraftSample& sample : buffer.draw(/*tokens=*/1000, /*window=*/100)) {
      expect_rows_belong_to_tokens(sample);
      lengths.push_back(std::ssize(sample.tokens));
    }
    std::ranges::sort(lengths);
    EXPECT_EQ(lengths, tokens == 20 ? std::vector<int64_t>{25} : (std::vector<int64_t>{25, 45}));
  }
}

// A resumed response whose tokens in between were not computed here.
TEST(DraftBufferTest, AGapEndsASequence) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  for (const uint32_t prompt : {0, 1}) offer_sequence(buffer, prompt, 20);  // 0 is held out
  offer(buffer, 1, 0, 26, 1);
  offer(buffer, 1, 0, 27, 1);
  const auto samples = buffer.draw(/*tokens=*/100, /*window=*/100);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].tokens.size(), 25u);
  expect_rows_belong_to_tokens(samples[0]);
}

TEST(DraftBufferTest, SavedBuffersOfTwoWorkersAreMerged) {
  DraftBuffer one({.seed = 3}), two({.seed = 3}), whole({.seed = 3});
  const auto fill = [](DraftBuffer& buffer, uint32_t first) {
    buffer.begin_step();
    for (uint32_t id = first; id < first + 9; ++id) offer_sequence(buffer, id, 20);
    buffer.begin_step();
    for (uint32_t id = first + 9; id < first + 12; ++id) offer_sequence(buffer, id, 20);
  };
  fill(one, 0);
  fill(two, 20);
  for (const DraftSample& sample : one.draw(100, 20)) EXPECT_LT(prompt_of(sample), 12u);
  whole.add(one.save());
  EXPECT_EQ(whole.sequences(), one.sequences());
  // It continues like the saved buffer.
  for (int i = 0; i < 5; ++i) {
    const auto want = one.draw(60, 20), got = whole.draw(60, 20);
    ASSERT_EQ(got.size(), want.size());
    for (size_t j = 0; j < got.size(); ++j) {
      EXPECT_EQ(got[j].tokens, want[j].tokens);
      EXPECT_TRUE(at::equal(got[j].states(), want[j].states()));
    }
  }
  whole.add(two.save());
  EXPECT_EQ(whole.sequences(), one.sequences() + two.sequences());
  for (const DraftSample& sample : whole.draw(1000, 20)) expect_rows_belong_to_tokens(sample);
  whole.begin_step();  // 6 sequences were of the newest step
  EXPECT_EQ(whole.sequences(), 6);
}

// The format of checkpoints.
TEST(DraftBufferTest, SavedBytesAreFactsThenTokensAndStates) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  offer_sequence(buffer, 7, 3);
  std::string want = R"({"begun":1,"drawn":0,"sequences":[{"is_before":false,"number":0,)"
                     R"("prompt":{"bytes":60,"hidden":3,"is_float32":true,"tokens":5},)"
                     R"("response":{"bytes":36,"hidden":3,"is_float32":true,"tokens":3}}]})"
                     "\n";
  const auto append = [&](const auto& values) {
    want.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  append(std::vector<int32_t>{7000, 7001, 7002, 7003, 7004});
  append(std::vector<float>{7, -1, 0, 7, -1, 1, 7, -1, 2, 7, -1, 3, 7, -1, 4});
  append(std::vector<int32_t>{7005, 7006, 7007});
  append(std::vector<float>{7, 0, 5, 7, 0, 6, 7, 0, 7});
  EXPECT_EQ(buffer.save(), want);
  DraftBuffer other({.seed = 3});
  other.add(want);
  EXPECT_EQ(other.save(), want);
}

TEST(DraftBufferTest, InvalidBytesAreRejected) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  offer_sequence(buffer, 0, 20);
  const std::string good = buffer.save();
  DraftBuffer other({.seed = 3});
  for (const std::string& bytes :
       {std::string(), std::string("{}\n"), std::string("x\n"), good.substr(0, good.size() - 1),
        good + "x", good.substr(0, good.find('\n'))})
    EXPECT_THAT(thrown_message<InputError>([&] { other.add(bytes); }),
                AllOf(Not(IsEmpty()), Not(HasSubstr("json.exception"))))
        << bytes.size();
}

// Of another model, or with facts whose product is that of the bytes only modulo 2^64.
TEST(DraftBufferTest, StatesAndTokensThatDoNotFitAreRejected) {
  DraftBuffer buffer({.seed = 3});
  buffer.begin_step();
  offer_sequence(buffer, 7, 3);
  const std::string good = buffer.save();
  const auto fault = [&](const DraftBuffer::Limits& limits, const std::string& bytes) {
    DraftBuffer other(limits);
    return thrown_message<InputError>([&] { other.add(bytes); });
  };
  EXPECT_THAT(fault({.columns = 4}, good),
              HasSubstr("its states have 3 columns, and the draft model reads 4"));
  EXPECT_THAT(fault({.columns = 3, .vocabulary = 7007}, good), HasSubstr("beyond the vocabulary"));
  DraftBuffer other({.columns = 3, .vocabulary = 7008});
  other.add(good);
  const std::string negative = "hidden is not a count",
                    other_size = "does not match its description";
  for (const auto& [hidden, said] :
       std::map<std::string, std::string>{{"-1", negative},
                                          {"4611686018427387904", other_size},
                                          {"9223372036854775807", other_size}}) {
    std::string bytes = good;
    bytes.replace(bytes.find("\"bytes\":60"), 10, "\"bytes\":0");
    bytes.replace(bytes.find("\"hidden\":3"), 10, "\"hidden\":" + hidden);
    EXPECT_THAT(fault({}, bytes), HasSubstr(said)) << hidden;
  }
}

// Under speculation FastRL keeps (docs/paper_map.md) the states of other rows than the accepted
// ones.
TEST(DraftBufferTest, StatesEqualPrefillWithAndWithoutSpeculation) {
  const auto config = tests::tiny_config(model::Family::kQwen2);
  const auto model = tests::make_tiny_model(config, at::kBFloat16);
  rollout::EngineOptions options;
  options.max_running = 8;
  options.max_batch_tokens = 400;
  std::vector<rollout::Group> groups;
  for (uint32_t id = 0; id < 6; ++id) {
    rollout::SamplingOptions sampling;
    sampling.max_new_tokens = 40;
    groups.push_back({.prompt_id = id,
                      .tokens = random_tokens(2, id, 3 + 7 * id, config.vocabulary),
                      .samples = 3,
                      .sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
                      .seed = 5});
  }
  tests::Rollouts plain;
  {
    rollout::Engine engine(*model, options);
    plain = tests::run(engine, groups);
  }
  for (const bool speculates : {false, true}) {
    rollout::Speculation speculation(
        std::make_unique<tests::OracleDrafter>(plain, config.vocabulary, 0.8, 1), {6, 3, 12},
        config.vocabulary);
    DraftBuffer buffer({.seed = 1});
    buffer.begin_step();
    rollout::Engine engine(*model, options, nullptr, &buffer, speculates ? &speculation : nullptr);
    tests::run(engine, groups);
    EXPECT_EQ(speculation.stats().accepted_tokens > 50, speculates);
    int64_t rows = 0;
    for (const auto& samples : {buffer.draw(100000, 1000), buffer.held_out(100000, 1000)})
      for (const DraftSample& sample : samples) {
        // A piece's states depend on what precedes it, so only whole sequences are compared.
        if (std::ssize(sample.tokens) < sample.response_begin + 4 || sample.response_begin < 3)
          continue;
        RecordRow row{.tokens = sample.tokens, .response_begin = sample.response_begin};
        row.tokens.push_back(0);  // the last token is not read
        HiddenRecorder reader(*model, options, nullptr, [](int64_t) {});
        const auto read = reader.read(std::vector{row});
        ASSERT_TRUE(read && read->size() == 1);
        EXPECT_TRUE(at::equal(read->front().sample.states(), sample.states()));
        rows += std::ssize(sample.tokens);
      }
    EXPECT_GT(rows, 300);
  }
}

}  // namespace
}  // namespace tlt::drafter_training
