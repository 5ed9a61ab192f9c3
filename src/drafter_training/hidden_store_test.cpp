// Hidden states from the engine to disk and back.
//
// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/hidden_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "drafter_training/hidden_recorder.h"
#include "model/tape.h"
#include "tests/support/golden_draft.h"
#include "tests/support/test_folder.h"

namespace tlt::drafter_training {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

at::Tensor states_of(const model::PolicyModel& target, const std::vector<int32_t>& tokens) {
  model::Tape tape(target, /*recompute=*/false);
  tape.add_sequence(tokens.data(), static_cast<int32_t>(tokens.size()));
  return target.forward(tape).clone();
}

// Prompts of three lengths: less than a chunk of prefill, more, and one token.
std::vector<RecordRow> prompts() {
  std::vector<RecordRow> rows;
  for (const int32_t size : {5, 40, 1}) {
    RecordRow& row = rows.emplace_back();
    for (int32_t i = 0; i < size; ++i) row.tokens.push_back((7 * i + size) % 300 + 3);
    row.response_begin = size;
    row.prompt_id = static_cast<uint32_t>(100 + size);
    row.prompt = std::ssize(rows) - 1;
  }
  return rows;
}

rollout::EngineOptions small_engine() {
  rollout::EngineOptions options;
  options.max_running = 3;
  options.max_batch_tokens = 16;
  options.prefill_chunk = 9;
  return options;
}

RecordPlan plan_of(int64_t samples) {
  rollout::SamplingOptions sampling;
  sampling.max_new_tokens = 12;
  return {.sampling = std::make_shared<const rollout::SamplingOptions>(sampling),
          .samples = samples,
          .seed = 3};
}

TEST(HiddenRecorderTest, RolloutStatesEqualTheTrainersForward) {
  const auto target = golden_model("qwen2_tied");
  int64_t seen = 0;
  HiddenRecorder recorder(*target, small_engine(), nullptr, [&](int64_t count) { seen += count; });
  const auto rows = prompts();
  const auto samples = recorder.roll_out(rows, plan_of(2));
  ASSERT_TRUE(samples);
  EXPECT_EQ(seen, 6);
  ASSERT_EQ(samples->size(), 6U);
  for (size_t i = 0; i < samples->size(); ++i) {
    const auto& [sample, prompt] = (*samples)[i];
    EXPECT_EQ(prompt, static_cast<int64_t>(i / 2)) << "in order";
    EXPECT_EQ(sample.id, i);
    const auto& begin = rows[i / 2].tokens;
    EXPECT_EQ(sample.response_begin, std::ssize(begin));
    ASSERT_GT(sample.tokens.size(), begin.size());
    EXPECT_TRUE(std::equal(begin.begin(), begin.end(), sample.tokens.begin()));
    EXPECT_TRUE(at::equal(sample.states(), states_of(*target, sample.tokens))) << i;
  }
  EXPECT_NE((*samples)[0].sample.tokens, (*samples)[1].sample.tokens) << "two samples of a prompt";
}

TEST(HiddenRecorderTest, StatesOfGivenResponsesEqualTheTrainersForward) {
  const auto target = golden_model("llama_tied");
  HiddenRecorder recorder(*target, small_engine(), nullptr, [](int64_t) {});
  auto rows = prompts();
  for (RecordRow& row : rows) row.response_begin = std::min(row.response_begin, 3);
  const auto samples = recorder.read(rows);
  ASSERT_TRUE(samples);
  ASSERT_EQ(samples->size(), 2U) << "one token is not a pair";
  for (size_t i = 0; i < samples->size(); ++i) {
    const auto& [sample, prompt] = (*samples)[i];
    EXPECT_EQ(prompt, static_cast<int64_t>(i));
    EXPECT_EQ(sample.response_begin, 3);
    const std::vector<int32_t> read(rows[i].tokens.begin(), rows[i].tokens.end() - 1);
    EXPECT_EQ(sample.tokens, read);
    EXPECT_TRUE(at::equal(sample.states(), states_of(*target, read))) << i;
  }
}

struct HiddenStoreTest : testing::Test {
  TestFolder folder;
  StoreIdentity identity = {.target = "abc", .source = "rollout.n = 8\n"};

  std::string path(const char* file) const { return folder.path() + "/store/" + file; }
  HiddenStore open() const { return HiddenStore(folder.path() + "/store", identity); }
  static std::vector<StoredSample> some(int64_t first, size_t count) {
    std::vector<StoredSample> samples;
    for (size_t i = 0; i < count; ++i) {
      const int64_t prompt = first + static_cast<int64_t>(i), size = 2 + prompt;
      std::vector<int32_t> tokens(static_cast<size_t>(size), static_cast<int32_t>(prompt));
      samples.push_back({make_sample(tokens,
                                     wave({size, 8}, 0.6, static_cast<double>(prompt), 1)
                                         .to(prompt % 2 == 0 ? at::kFloat : at::kBFloat16),
                                     1, static_cast<uint32_t>(prompt)),
                         prompt});
    }
    return samples;
  }
  // Changes one byte near the end of a file.
  static void damage(const std::string& path) {
    std::string bytes = read_file(path, 1 << 20);
    bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
    write_file_atomic(path, bytes);
  }
};

TEST_F(HiddenStoreTest, SamplesRoundTripInOrder) {
  const auto first = some(0, 3), second = some(3, 2);
  {
    HiddenStore store = open();
    EXPECT_FALSE(store.has(0));
    store.write(1, second);
    store.write(0, first);
    store.write(2, {});
  }
  const HiddenStore store = open();
  for (const int64_t part : {0, 1, 2}) EXPECT_TRUE(store.has(part)) << part;
  EXPECT_FALSE(store.has(3));
  EXPECT_EQ(store.bytes(1), bytes_of(second));
  const auto read = store.samples(3);
  ASSERT_EQ(read.size(), 5U);
  for (size_t i = 0; i < read.size(); ++i) {
    const StoredSample& want = i < 3 ? first[i] : second[i - 3];
    EXPECT_EQ(read[i].prompt, want.prompt);
    EXPECT_EQ(read[i].sample.id, want.sample.id);
    EXPECT_EQ(read[i].sample.tokens, want.sample.tokens);
    EXPECT_EQ(read[i].sample.response_begin, 1);
    EXPECT_EQ(read[i].sample.states().scalar_type(), want.sample.states().scalar_type());
    EXPECT_TRUE(at::equal(read[i].sample.states(), want.sample.states())) << i;
  }
}

TEST_F(HiddenStoreTest, DamagedPartIsAbsent) {
  HiddenStore store = open();
  for (const int64_t part : {0, 1, 2, 3, 4}) store.write(part, some(part, 2));
  damage(path("part_000000.safetensors"));
  write_file_atomic(path("part_000001.safetensors"), "short");
  fs::remove(path("part_000002.json"));  // cut off before its description
  write_file_atomic(path("part_000003.json"), "{\"bytes\": ");
  for (const int64_t part : {0, 1, 2, 3}) EXPECT_FALSE(store.has(part)) << part;
  EXPECT_TRUE(store.has(4));
  for (const int64_t part : {0, 1, 2, 3}) store.write(part, some(part, 2));
  for (const int64_t part : {0, 1, 2, 3}) EXPECT_TRUE(store.has(part)) << part;
  store.remove(1);
  EXPECT_FALSE(store.has(1));
}

// The data has a checksum, its description has none.
TEST_F(HiddenStoreTest, DescriptionOfMoreTokensThanTheDataIsAnError) {
  HiddenStore store = open();
  store.write(0, some(0, 2));
  auto facts = nlohmann::json::parse(read_file(path("part_000000.json"), 1 << 20));
  for (const auto& [tokens, said] : std::map<int64_t, std::string>{
           {int64_t{1} << 40, "tokens"}, {-1, "(tokens is not a count)"}}) {
    facts["samples"][0]["tokens"] = tokens;
    write_file_atomic(path("part_000000.json"), facts.dump());
    EXPECT_THAT(thrown_message<InputError>([&] { store.samples(1); }),
                HasSubstr(said + "; delete it, and its states are made again"));
  }
  facts.erase("samples");
  write_file_atomic(path("part_000000.json"), facts.dump());
  EXPECT_THAT(thrown_message<InputError>([&] { store.samples(1); }),
              HasSubstr("part_000000.json: does not describe a part (key 'samples' not found)"));
}

TEST_F(HiddenStoreTest, StoreOfAnotherTargetIsRejected) {
  open();
  const auto complaint = [&](const StoreIdentity& other) {
    return thrown_message<InputError>([&] { HiddenStore(folder.path() + "/store", other); });
  };
  EXPECT_EQ(complaint(identity), "");
  EXPECT_THAT(complaint({.target = "abd", .source = identity.source}),
              HasSubstr("has the hidden states of another target model"));
  EXPECT_THAT(complaint({.target = identity.target, .source = "rollout.n = 4\n"}),
              HasSubstr("other data: rollout.n is 4 here and 8 there; delete it"));
  write_file_atomic(path("store.json"), "[]");
  EXPECT_THAT(complaint(identity),
              HasSubstr("not a store of hidden states (array where another type is expected)"));
}

TEST_F(HiddenStoreTest, DigestDependsOnEveryWeight) {
  const auto target = golden_model("llama_tied"), same = golden_model("llama_tied");
  const std::string digest = target_digest(*target);
  EXPECT_EQ(target_digest(*same), digest);
  const auto rounded =
      model::load_policy(train::kGolden + "models/llama_tied", Device::cpu(1), at::kBFloat16);
  EXPECT_NE(target_digest(*rounded), digest);
  for (const size_t p : {size_t{0}, same->parameters().size() - 1}) {
    at::Tensor values = same->parameters()[p].read(same->device());
    const at::Tensor kept = values.clone();
    values.flatten()[-1] += 0.25;
    same->parameters()[p].write(same->device(), values);
    EXPECT_NE(target_digest(*same), digest) << p;
    same->parameters()[p].write(same->device(), kept);
  }
  EXPECT_EQ(target_digest(*same), digest);
}

}  // namespace
}  // namespace tlt::drafter_training
