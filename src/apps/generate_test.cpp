// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "drafter/eagle/draft_eagle.h"
#include "drafter/files/draft_folder.h"
#include "model/hf_folder.h"
#include "model/safetensors.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

json golden(const std::string& model) {
  return json::parse(read_file(golden_model(model) + "/golden.json", 1 << 26));
}

// Runs tlt generate; `err`, if given, receives stderr.
std::vector<json> generate(const std::string& model, const std::string& prompts,
                           const std::vector<std::string>& more, std::string* err = nullptr) {
  const std::string output = scratch_folder() + "/responses.jsonl";
  std::vector<std::string> words = {"generate", "--model",  model, "--prompts",
                                    prompts,    "--output", output};
  words.insert(words.end(), more.begin(), more.end());
  if (std::find(words.begin(), words.end(), "--threads") == words.end())
    words.insert(words.end(), {"--threads", "1"});
  const Ended ended = run_program(words);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  if (err) *err = ended.err;
  return ended.exit_code == 0 ? json_file(output) : std::vector<json>{};
}

// Describes the first difference of two results; empty: equal.
std::string difference(const std::vector<json>& a, const std::vector<json>& b) {
  if (a.size() != b.size())
    return std::to_string(a.size()) + " and " + std::to_string(b.size()) + " rows";
  for (size_t i = 0; i < a.size(); ++i)
    for (const auto& [name, value] : a[i].items())
      if (b[i].size() != a[i].size() || b[i].value(name, json()) != value)
        return "row " + std::to_string(i) + ": " + name;
  return "";
}

// Prompts of different lengths, the longest first, so that the last ones finish early.
std::string mixed_prompts() {
  std::string text;
  for (int i = 0; i < 7; ++i) {
    json row = {{"id", "p" + std::to_string(i)}, {"tokens", json::array()}};
    for (int t = 0; t < 60 - 9 * i; ++t) row["tokens"].push_back((i * 31 + t * 7 + 3) % 320);
    text += row.dump() + "\n";
  }
  return scratch_file("prompts.jsonl", text);
}

TEST(GenerateTest, GreedyTokensEqualTransformers) {
  const json reference = golden("qwen2_tied");
  std::string text;
  std::vector<json> greedy;
  for (const json& sequence : reference["sequences"]) {
    if (!sequence.contains("greedy")) continue;
    greedy.push_back(sequence["greedy"]);
    text += json{{"tokens", sequence["tokens"]}}.dump() + "\n";
  }
  ASSERT_GT(greedy.size(), 2u);
  const auto rows = generate(
      golden_model("qwen2_tied"), scratch_file("prompts.jsonl", text),
      {"--speculation", "off", "--temperature", "0", "--max-new-tokens", "64", "--ignore-eos"});
  ASSERT_EQ(rows.size(), greedy.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["id"], i);
    EXPECT_EQ(rows[i]["tokens"], greedy[i]["tokens"]) << "row " << i;
    for (size_t t = 0; t < 64; ++t)
      EXPECT_NEAR(rows[i]["logprobs"][t].get<double>(), greedy[i]["logprobs"][t].get<double>(),
                  1e-4)
          << "row " << i << ", token " << t;
    EXPECT_EQ(rows[i]["finish_reason"], "length");
    EXPECT_EQ(rows[i]["target_forwards"], 64);
    EXPECT_FALSE(rows[i].contains("text")) << "the folder has no tokenizer";
  }
}

TEST(GenerateTest, OutputIsOrderedAndBatchInvariant) {
  const std::string model = golden_model("qwen2_tied"), prompts = mixed_prompts();
  const std::vector<std::string> flags = {"--samples",     "3",   "--max-new-tokens", "40",
                                          "--temperature", "1.5", "--top-p",          "0.95",
                                          "--seed",        "9",   "--speculation",    "off"};
  std::string err;
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = flags;
    if (more.front() == "--speculation") words.resize(words.size() - 2);
    words.insert(words.end(), more.begin(), more.end());
    return generate(model, prompts, words, &err);
  };
  const auto all = with({"--max-running", "64"});
  ASSERT_EQ(all.size(), 21u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["id"], "p" + std::to_string(i / 3));
    EXPECT_EQ(all[i]["sample"], i % 3);
    EXPECT_EQ(all[i]["tokens"].size(), all[i]["logprobs"].size());
    if (all[i]["finish_reason"] == "stop")
      EXPECT_EQ(all[i]["tokens"].back(), 2) << "the end of sequence is kept";
    else
      EXPECT_EQ(all[i]["tokens"].size(), 40u);
  }
  EXPECT_NE(all[0]["tokens"], all[1]["tokens"]) << "samples of one prompt have different uniforms";
  EXPECT_EQ(difference(all, with({"--max-running", "1"})), "");
  EXPECT_EQ(difference(all, with({"--max-running", "3", "--threads", "2"})), "");
  EXPECT_EQ(difference(all, with({"--max-running", "3", "--kv-memory", "80KB"})), "");
  EXPECT_NE(err.find("preemptions"), std::string::npos) << "some sequences were preempted";
  const auto expect_only_fewer_forwards = [&](std::vector<std::string> more) {
    std::vector<json> fewer = with(more);
    for (size_t i = 0; i < fewer.size(); ++i)  // speculation needs fewer target forwards
      fewer[i]["target_forwards"] = all[i]["target_forwards"];
    EXPECT_EQ(difference(all, fewer), "") << more.at(1);
  };
  for (const char* kind : {"auto", "suffix", "ngram"})
    expect_only_fewer_forwards({"--speculation", kind});
  for (const char* kind : {"suffix", "ngram"})
    for (const char* strategy : {"8_4_16", "4_2_6"}) {
      expect_only_fewer_forwards({"--speculation", kind, "--strategy", strategy});
      EXPECT_NE(err.find("mean acceptance length"), std::string::npos) << kind;
    }
  const auto policy =
      model::load_policy(model, Device::cpu(1), model::parse_type("float32", "test"));
  drafter::EagleNetwork network(*policy, drafter::EagleNetwork::config_for(policy->config()));
  network.initialize(/*seed=*/3);
  const std::string drafter = scratch_folder() + "/drafter";
  drafter::save_drafter(network, drafter);
  for (const char* speculation : {"auto", "eagle"})
    expect_only_fewer_forwards({"--speculation", speculation, "--drafter", drafter});
  expect_only_fewer_forwards(
      {"--speculation", "eagle", "--drafter", drafter, "--strategy", "4_2_6"});
  auto other = flags;
  other[other.size() - 3] = "10";
  EXPECT_NE(difference(all, generate(model, prompts, other)), "")
      << "another seed gives the same tokens";
}

TEST(GenerateTest, TextPromptsAreEncodedAndResponsesDecoded) {
  const std::string model = copied_model("qwen2_tied");
  std::filesystem::copy(golden_tokenizer("demo") + "/tokenizer.json", model + "/tokenizer.json");
  const std::string prompts = scratch_file(
      "prompts.jsonl",
      "{\"id\": {\"a\": 1}, \"prompt\": \"7,6,3:60<think>\"}\n{\"tokens\": [17, 18]}\n");
  const auto rows = generate(model, prompts, {"--max-new-tokens", "9"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["id"], (json{{"a", 1}}));
  EXPECT_EQ(rows[1]["id"], 1);
  const Ended encoded =
      run_program({"tokenize", "--model", model, "encode"}, "{\"text\": \"7,6,3:60<think>\"}\n");
  EXPECT_EQ(rows[0]["prompt_tokens"], json_lines(encoded.out).at(0)["tokens"]);
  const Ended decoded = run_program({"tokenize", "--model", model, "decode"},
                                    json{{"tokens", rows[0]["tokens"]}}.dump() + "\n");
  EXPECT_EQ(rows[0]["text"], json_lines(decoded.out).at(0)["text"]);
}

TEST(GenerateTest, LogprobsEqualThoseOfScore) {
  const std::string model = golden_model("qwen3_sharded"), prompts = mixed_prompts();
  for (const char* type : {"float32", "bfloat16"}) {
    const auto responses =
        generate(model, prompts, {"--max-new-tokens", "20", "--dtype", type, "--max-running", "4"});
    std::string text;
    for (const json& row : responses) {
      json tokens = row["prompt_tokens"];
      tokens.insert(tokens.end(), row["tokens"].begin(), row["tokens"].end());
      text += json{{"id", row["id"]}, {"tokens", tokens}}.dump() + "\n";
    }
    const std::string output = scratch_folder() + "/scores.jsonl";
    const Ended ended =
        run_program({"score", "--model", model, "--input", scratch_file("rows.jsonl", text),
                     "--output", output, "--dtype", type, "--threads", "1"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const auto scores = json_file(output);
    ASSERT_EQ(scores.size(), responses.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      const size_t first = responses[i]["prompt_tokens"].size() - 1;
      ASSERT_EQ(scores[i]["id"], responses[i]["id"]);
      const std::vector<json> tail(scores[i]["logprobs"].begin() + static_cast<int64_t>(first),
                                   scores[i]["logprobs"].end());
      EXPECT_TRUE(json(tail) == responses[i]["logprobs"])
          << type << ", row " << i << ": the same bits";
    }
  }
}

TEST(ScoreTest, LogprobsAndLogitsEqualTransformers) {
  const json reference = golden("qwen2_tied");
  std::string text;
  for (const json& sequence : reference["sequences"])
    text += json{{"tokens", sequence["tokens"]}}.dump() + "\n";
  const std::string folder = scratch_folder(), logits = folder + "/logits.safetensors",
                    output = folder + "/scores.jsonl";
  const Ended ended = run_program({"score", "--model", golden_model("qwen2_tied"), "--input",
                                   scratch_file("rows.jsonl", text), "--output", output, "--logits",
                                   logits, "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_file(output);
  ASSERT_EQ(rows.size(), reference["sequences"].size());
  model::SafetensorsFile file(logits);
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& want = reference["sequences"][i];
    ASSERT_EQ(rows[i]["logprobs"].size(), want["logprobs"].size());
    for (size_t t = 0; t < want["logprobs"].size(); ++t)
      EXPECT_NEAR(rows[i]["logprobs"][t].get<double>(), want["logprobs"][t].get<double>(), 1e-4)
          << "row " << i << ", token " << t;
    const at::Tensor row = file.read("row" + std::to_string(i));
    ASSERT_EQ(row.sizes(), (at::IntArrayRef{static_cast<int64_t>(want["tokens"].size()), 320}));
    const float* last = row.data_ptr<float>() + (row.size(0) - 1) * 320;
    for (size_t k = 0; k < want["last_top"]["tokens"].size(); ++k)
      EXPECT_NEAR(last[want["last_top"]["tokens"][k].get<size_t>()],
                  want["last_top"]["logits"][k].get<double>(), 1e-4)
          << "row " << i;
  }
}

TEST(TokenizeTest, OutputEqualsTheGoldenFile) {
  std::string texts, tokens;
  std::vector<json> encodings, decodings;
  for (const json& row : json_file(golden_tokenizer("demo") + ".jsonl")) {
    if (row.contains("text")) {
      texts += json{{"text", row.at("text")}}.dump() + "\n";
      encodings.push_back({{"tokens", row.at("tokens")}});
    }
    tokens += json{{"tokens", row.at("tokens")}}.dump() + "\n";
    decodings.push_back({{"text", row.at("decoded")}});
  }
  EXPECT_EQ(
      json_lines(
          run_program({"tokenize", "--model", golden_tokenizer("demo"), "encode"}, texts).out),
      encodings);
  EXPECT_EQ(
      json_lines(
          run_program({"tokenize", "--model", golden_tokenizer("demo"), "decode"}, tokens).out),
      decodings);
}

// The golden model with its weights in float16.
std::string float16_model(const std::string& name) {
  const std::string golden = golden_model(name), folder = scratch_folder() + "/float16";
  make_folder(folder);
  model::SafetensorsFolder weights(golden);
  std::vector<model::TensorSource> sources;
  for (const std::string& tensor : weights.names())
    sources.push_back(model::TensorSource::of(tensor, weights.read(tensor).to(at::kHalf)));
  model::write_safetensors_folder(folder, sources);
  json config = json::parse(read_file(golden + "/config.json", 1 << 20));
  config.erase("dtype");
  config["torch_dtype"] = "float16";
  write_file_atomic(folder + "/config.json", config.dump());
  return folder;
}

TEST(GenerateTest, Float16FilesAreComputedInBfloat16) {
  const std::string model = float16_model("qwen2_tied"), rows = mixed_prompts();
  const std::vector<std::string> greedy = {"--temperature", "0", "--max-new-tokens", "8"};
  const auto with = [&](std::vector<std::string> words, std::string* err) {
    words.insert(words.end(), greedy.begin(), greedy.end());
    return generate(model, rows, words, err);
  };
  std::string err;
  const auto automatic = with({"--dtype", "auto"}, &err);
  EXPECT_NE(err.find(" in bfloat16 on "), std::string::npos) << err;
  EXPECT_EQ(automatic, with({"--dtype", "bfloat16"}, &err));
  EXPECT_NE(automatic, with({"--dtype", "float32"}, &err));
}

}  // namespace
}  // namespace tlt::apps
