// SPDX-License-Identifier: Apache-2.0
#include "tinker/train_request.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tinker/wire.h"

namespace tlt::tinker {
namespace {

const TokenLimits kLimits{.vocabulary = 100, .max_positions = 50};

// Tokens 0 … n: a datum whose targets are the next tokens.
Datum datum(std::vector<int32_t> tokens, std::vector<float> advantages) {
  Datum made;
  made.targets.assign(tokens.begin() + 1, tokens.end());
  tokens.pop_back();
  made.tokens = std::move(tokens);
  made.values["logprobs"] = std::vector<float>(advantages.size(), -1);
  made.values["advantages"] = std::move(advantages);
  return made;
}

TrainRequest request_of(const std::string& loss, std::vector<Datum> data) {
  TrainRequest request;
  request.loss_fn = loss;
  request.data = std::move(data);
  return request;
}

std::string fault_of(const TrainRequest& request) {
  try {
    make_batch(request, kLimits);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainRequestTest, ResponsesToAPromptAreAGroup) {
  const TrainBatch batch =
      make_batch(request_of("ppo", {datum({1, 2, 3, 4}, {0, 2, 2}), datum({1, 2, 5}, {0, -1}),
                                    datum({1, 7, 3, 4}, {0, 2, 2}), datum({1, 7, 3}, {0, 0})}),
                 kLimits);
  ASSERT_EQ(batch.samples.size(), 4u);
  EXPECT_EQ(batch.samples[0].response_begin, 2);
  EXPECT_EQ(batch.samples[0].tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(batch.samples[0].advantages, (std::vector<float>{2, 2}));
  EXPECT_EQ(batch.samples[0].rollout_logprobs.size(), 2u);
  EXPECT_EQ(batch.samples[1].group, batch.samples[0].group);
  EXPECT_NE(batch.samples[2].group, batch.samples[0].group);
  EXPECT_EQ(batch.samples[3].response_begin, 1) << "its logprobs are those of all tokens";
}

TEST(TrainRequestTest, SupervisedDataAreOneGroup) {
  Datum first = datum({1, 2, 3, 4}, {0, 0, 0}), second = datum({5, 6}, {0});
  first.values = {{"weights", {0, 0.5, 1}}};
  second.values = {};
  const TrainBatch batch = make_batch(request_of("cross_entropy", {first, second}), kLimits);
  EXPECT_EQ(batch.samples[0].advantages, (std::vector<float>{0.5, 1}));
  EXPECT_EQ(batch.samples[1].advantages, (std::vector<float>{1})) << "without weights they are 1";
  EXPECT_EQ(batch.samples[1].group, batch.samples[0].group);
}

TEST(TrainRequestTest, WrongDataAreOneSentence) {
  const Datum good = datum({1, 2, 3, 4}, {0, 2, 2});
  EXPECT_EQ(fault_of(request_of("ppo", {good})), "");
  const auto fault = [&](auto change, const std::string& loss = "ppo") {
    Datum changed = good;
    change(changed);
    return fault_of(request_of(loss, {good, changed}));
  };
  for (const auto& [got, wanted] : std::vector<std::pair<std::string, std::string>>{
           {fault([](Datum& d) { d.targets.pop_back(); }), "2 target_tokens for 3 tokens"},
           {fault([](Datum& d) { d.targets.back() = 100; }), "data[1]: token 100"},
           {fault([](Datum& d) { d.targets[0] = -1; }), "data[1]: token -1"},
           {fault([](Datum& d) { d.tokens.assign(50, 1); }), "50 tokens"},
           {fault([](Datum& d) { d.tokens.clear(); }), "no tokens"},
           {fault([](Datum& d) { d.values.erase("logprobs"); }), "no logprobs"},
           {fault([](Datum& d) { d.values["advantages"].pop_back(); }), "2 advantages for 3"},
           {fault([](Datum& d) {
              d.values["mask"] = {1, 1, 1};
            }),
            "loss_fn_inputs has mask"},
           {fault([](Datum&) {}, "gspo"), "use cross_entropy"},
           {fault([](Datum&) {}, "dro"), "dro has no beta"},
           {fault([](Datum&) {}, "cross_entropy"), "has advantages"},
           {fault_of(request_of("ppo", {})), "no data"}})
    EXPECT_NE(got.find(wanted), std::string::npos) << got;
  TrainRequest request = request_of("cispo", {good});
  request.config = {{"clip_low_threshold", 1.5}};
  EXPECT_NE(fault_of(request).find("clip_low_threshold is 1.5"), std::string::npos);
  request.config = {{"beta", 1}};
  EXPECT_NE(fault_of(request).find("loss_fn_config has beta"), std::string::npos);
}

TEST(TrainRequestTest, TargetsMayBeOtherTokens) {
  Datum changed = datum({1, 2, 3, 4}, {0, 2, 2});
  changed.targets[0] = 9;
  const TrainBatch batch =
      make_batch(request_of("ppo", {datum({1, 2, 3, 4}, {0, 2, 2}), changed}), kLimits);
  ASSERT_EQ(batch.targets.size(), 2u);
  EXPECT_TRUE(batch.targets[0].empty()) << "the next tokens";
  EXPECT_EQ(batch.targets[1], (std::vector<int32_t>{9, 3, 4}));
  EXPECT_EQ(batch.samples[1].tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(batch.samples[1].group, batch.samples[0].group);
}

TEST(TrainRequestTest, DroCountsEveryTokenWithAWeight) {
  TrainRequest request = request_of("dro", {datum({1, 2, 3, 4}, {0, 2, 2})});
  request.config = {{"beta", 0.05}};
  TrainBatch batch = make_batch(request, kLimits);
  EXPECT_EQ(std::get<train::DroOptions>(batch.loss).beta, 0.05);
  EXPECT_EQ(batch.samples[0].response_begin, 1);
  request.data[0].values["weights"] = {0, 1, 1};
  batch = make_batch(request, kLimits);
  EXPECT_EQ(batch.samples[0].response_begin, 2);
  EXPECT_EQ(batch.samples[0].weights, (std::vector<float>{1, 1}));
  request.config = {{"beta", -1}};
  EXPECT_NE(fault_of(request).find("beta is -1"), std::string::npos);
}

TEST(TrainRequestTest, UnknownAndSparseFieldsAreRefused) {
  WireWriter request;
  request.varint(9, 1);
  EXPECT_THROW(TrainRequest::read(request.text()), InputError);
  WireWriter sparse, tensor, entry, datum, whole;
  tensor.message(2, sparse);
  entry.bytes(1, "weights");
  entry.message(2, tensor);
  datum.message(2, entry);
  whole.message(3, datum);
  EXPECT_THROW(TrainRequest::read(whole.text()), InputError);
}

}  // namespace
}  // namespace tlt::tinker
