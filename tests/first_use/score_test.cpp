// Input formats of tlt score (B7), and resuming an interrupted one (B9).
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/first_use/interrupted.h"

namespace tlt::first_use {
namespace {

using nlohmann::json;

std::vector<json> score(const std::string& rows, const std::vector<std::string>& more = {},
                        const std::string& model = demo_model()) {
  std::vector<std::string> words = {"score",    "--model", model,       "--input", "-",
                                    "--output", "-",       "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = run_program(words, rows);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return apps::json_lines(ended.out);
}

std::string responses() {
  const Ended ended =
      run_program({"generate", "--model", demo_model(), "--prompts", "countdown:seed=1,size=12",
                   "--output", "-", "--samples", "2", "--threads", "1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.out;
}

TEST(ScoreTest, OutputOfGenerateGetsTheRolloutLogprobs) {  // B7
  const std::string rows = responses();
  const auto scores = score(rows);
  const auto generated = apps::json_lines(rows);
  ASSERT_EQ(scores.size(), generated.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i]["id"], generated[i]["id"]);
    EXPECT_TRUE(scores[i]["logprobs"] == generated[i]["logprobs"]) << "row " << i;
    EXPECT_FALSE(scores[i].contains("tokens"));
  }
}

TEST(ScoreTest, TokensAloneAreScoredFromTheSecondOn) {
  const auto generated = apps::json_lines(responses());
  const json& row = generated[0];
  json whole = row["prompt_tokens"];
  whole.insert(whole.end(), row["tokens"].begin(), row["tokens"].end());
  const auto scores = score(json{{"tokens", whole}}.dump() + "\n{\"tokens\": [7]}\n");
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0]["logprobs"].size(), whole.size() - 1);
  EXPECT_EQ(scores[0]["logprobs"].back(), row["logprobs"].back());
  EXPECT_EQ(scores[1]["logprobs"], json::array());
}

TEST(ScoreTest, StringsAreScoredAndTokensReturned) {
  const auto generated = apps::json_lines(responses());
  std::string texts;
  for (const json& row : generated) {
    const Ended prompt = run_program({"tokenize", "--model", demo_model(), "decode"},
                                     json{{"tokens", row["prompt_tokens"]}}.dump() + "\n");
    texts += json{{"id", row["id"]},
                  {"prompt", json::parse(prompt.out)["text"]},
                  {"response", row["text"]}}
                 .dump() +
             "\n";
  }
  const auto scores = score(texts);
  ASSERT_EQ(scores.size(), generated.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i]["tokens"], generated[i]["tokens"]);
    EXPECT_TRUE(scores[i]["logprobs"] == generated[i]["logprobs"]) << "row " << i;
  }
}

TEST(ScoreTest, LastAssistantMessageIsScored) {
  const std::string model = scratch_folder() + "/model";
  fs::copy(demo_model(), model);
  write_file_atomic(model + "/chat_template.jinja",
                    "{%- for m in messages -%}{{ m.content }}{%- if m.role == 'user' -%}<think>"
                    "{%- else -%}<eos>{%- endif -%}{%- endfor -%}");
  const json user = {{"role", "user"}, {"content", "7,6,3:60"}},
             first = {{"role", "assistant"}, {"content", "7,6,3:60>7+3=10"}},
             second = {{"role", "assistant"}, {"content", "10,6:60>"}};
  const json rows[] = {{{"messages", {user, first, user, second}}},
                       {{"prompt", "7,6,3:60<think>7,6,3:60>7+3=10<eos>7,6,3:60<think>"},
                        {"response", "10,6:60><eos>"}}};
  const auto scores = score(rows[0].dump() + "\n" + rows[1].dump() + "\n", {}, model);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_GT(scores[0]["tokens"].size(), 4u);
  EXPECT_EQ(scores[0], scores[1]);
}

TEST(ScoreTest, AmbiguousRowsAreRefused) {
  const auto refuse = [](const std::string& row, const std::string& says) {
    expect_refusal(run_program({"score", "--model", demo_model(), "--input",
                                scratch_file("rows.jsonl", row + "\n"), "--output", "-"}),
                   HasSubstr("rows.jsonl:1: " + says));
  };
  refuse(R"({"prompt": "7,6", "tokens": [7]})",
         "\"prompt\" and \"tokens\": give \"prompt_tokens\" for the prompt");
  refuse(R"({"prompt_tokens": [7]})", "no \"tokens\"");
  refuse(R"({"response": "7"})", "neither \"prompt\"");
  refuse(R"({"prompt": "7", "response": ""})", "the string has no tokens");
  refuse(R"({"text": "7"})", "no \"tokens\", \"prompt\" and \"response\", or \"messages\"");
}

struct Score {
  std::string input = scratch_file("rows.jsonl", rows());
  std::string output = scratch_folder() + "/scores.jsonl";

  static std::string rows() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      json tokens = json::array();
      for (int t = 0; t < 300; ++t) tokens.push_back((i * 31 + t * 7) % 116);
      text += json{{"id", i % 7}, {"tokens", tokens}}.dump() + "\n";
    }
    return text;
  }
  std::vector<std::string> words() const {
    return {"score",    "--model", demo_model(), "--input", input,
            "--output", output,    "--threads",  "1"};
  }
};

TEST(ScoreResumeTest, ResumeFinishesAnInterruptedRun) {  // B9
  const Score command;
  ASSERT_EQ(run_program(command.words()).exit_code, 0);
  const std::string whole = read_text(command.output);
  fs::remove(command.output);
  const Stopped stopped = stop_when_lines(command.words(), command.output, SIGINT);
  ASSERT_EQ(stopped.exit_code, 130) << stopped.log;
  EXPECT_THAT(stopped.log, HasSubstr("of 400 rows are kept in " + command.output + ".partial"));
  expect_refusal(run_program(command.words()), HasSubstr("add --resume"));
  std::vector<std::string> words = command.words();
  words.push_back("--resume");
  Score other = command;
  scratch_file("rows.jsonl", "{\"tokens\": [7, 8]}\n" + Score::rows());
  expect_refusal(run_program(words), HasSubstr("started with rows (SHA-256)"));
  scratch_file("rows.jsonl", Score::rows());
  const Ended resumed = run_program(words);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read_text(command.output), whole);
  EXPECT_FALSE(fs::exists(command.output + ".partial"));
}

TEST(ScoreResumeTest, KilledRunEqualsAnUninterruptedOne) {  // B9
  const Score command;
  const Stopwatch stopwatch;
  ASSERT_EQ(run_program(command.words()).exit_code, 0);
  const double seconds = stopwatch.seconds();
  expect_kills_change_nothing(command.words(), command.output, read_text(command.output), seconds);
}

}  // namespace
}  // namespace tlt::first_use
