// SPDX-License-Identifier: Apache-2.0
#include <httplib.h>

#include <cstdlib>
#include <regex>
#include <thread>

#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;

constexpr const char* kKey = "0123456789abcdef";

std::string demo_model() { return TLT_SOURCE_DIR "/models/demo"; }

// A copy of the demo's model with a chat template that writes the contents after each other.
std::string model_with_template() {
  const std::string folder = scratch_folder() + "/model";
  std::filesystem::copy(demo_model(), folder, std::filesystem::copy_options::recursive);
  write_file_atomic(folder + "/chat_template.jinja",
                    "{% for m in messages %}{{ m.content or ',' }}{% endfor %}");
  return folder;
}

// `tlt serve` on a free port.
class ServeProgram {
 public:
  explicit ServeProgram(std::vector<std::string> flags)
      : log_(scratch_folder() + "/serve.log"), program_(with_defaults(std::move(flags)), log_) {
    static const std::regex pattern("http://127.0.0.1:([0-9]+)/v1");
    for (int i = 0; i < 6000 && port_ == 0; ++i) {
      std::smatch found;
      const std::string text = tests::read_text(log_);
      if (std::regex_search(text, found, pattern)) port_ = std::stoi(found[1]);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GT(port_, 0) << tests::read_text(log_);
  }

  int port() const { return port_; }
  httplib::Client client() const {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(120);
    return client;
  }
  // Its exit code after SIGTERM.
  int end() {
    program_.send(SIGTERM);
    return program_.wait();
  }
  std::string log() const { return tests::read_text(log_); }

 private:
  static std::vector<std::string> with_defaults(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"serve", "--port", "0", "--threads", "1", "--kv-memory", "32MB",
                                 "--served-model-name", "demo"});
    return flags;
  }

  const std::string log_;
  tests::Program program_;
  int port_ = 0;
};

// Answers to many clients at once have the tokens and logprobs of `tlt generate`, sample by sample.
TEST(ServeTest, AnswersEqualGenerate) {
  constexpr int kPrompts = 4, kSamples = 3;
  std::string rows;
  json prompts = json::array();
  for (int i = 0; i < kPrompts; ++i) {
    prompts.push_back("4,6,8:" + std::to_string(20 + i));
    rows += json{{"prompt", prompts.back()}}.dump() + "\n";
  }
  const std::string output = scratch_folder() + "/out.jsonl";
  const Ended ended = run_program({"generate",
                                   "--model",
                                   demo_model(),
                                   "--prompts",
                                   scratch_file("prompts.jsonl", rows),
                                   "--output",
                                   output,
                                   "--samples",
                                   std::to_string(kSamples),
                                   "--seed",
                                   "11",
                                   "--threads",
                                   "1",
                                   "--max-new-tokens",
                                   "60",
                                   "--temperature",
                                   "1.1",
                                   "--top-p",
                                   "0.9",
                                   "--speculation",
                                   "off"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<json> expected = json_file(output);

  ServeProgram server({"--model", demo_model(), "--speculation", "suffix"});
  const json request = {
      {"prompt", prompts}, {"n", kSamples},      {"seed", 11},    {"max_tokens", 60},
      {"top_p", 0.9},      {"temperature", 1.1}, {"logprobs", 0}, {"return_token_ids", true}};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      const auto result =
          server.client().Post("/v1/completions", request.dump(), "application/json");
      ASSERT_TRUE(result);
      const json choices = json::parse(result->body)["choices"];
      ASSERT_EQ(choices.size(), expected.size());
      for (size_t row = 0; row < expected.size(); ++row) {
        EXPECT_EQ(choices[row]["token_ids"], expected[row]["tokens"]) << row;
        EXPECT_EQ(choices[row]["logprobs"]["token_logprobs"], expected[row]["logprobs"]) << row;
        EXPECT_EQ(choices[row]["prompt_token_ids"], expected[row]["prompt_tokens"]) << row;
        EXPECT_EQ(choices[row]["finish_reason"], expected[row]["finish_reason"]) << row;
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST(ServeTest, SigtermEndsAfterTheAnswersInProgress) {
  ServeProgram server({"--model", demo_model()});
  const json request = {
      {"prompt", "4,6,8:"}, {"max_tokens", 400}, {"ignore_eos", true}, {"n", 4}, {"seed", 1}};
  std::string body;
  std::thread client([&] {
    const auto result = server.client().Post("/v1/completions", request.dump(), "application/json");
    if (result) body = result->body;
  });
  const auto is_running = [&] {
    const auto metrics = server.client().Get("/metrics");
    return metrics && metrics->body.find("tlt_sequences_running 4\n") != std::string::npos;
  };
  bool was_running = false;
  for (int i = 0; i < 2000 && !was_running; ++i) {
    was_running = is_running();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(was_running);
  EXPECT_EQ(server.end(), 0) << server.log();
  client.join();
  EXPECT_NE(body.find("\"completion_tokens\":1600,"), std::string::npos) << body;
}

TEST(ServeTest, SecondServerOnThePortIsRefusedAndTheFirstContinues) {
  ServeProgram server({"--model", demo_model()});
  const std::string port = std::to_string(server.port());
  const Ended second = run_program({"serve", "--model", demo_model(), "--port", port});
  EXPECT_EQ(second.exit_code, 2) << second.err;
  EXPECT_NE(complaint(second, "serve").find(port), std::string::npos) << second.err;
  const auto health = server.client().Get("/health");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST(ServeTest, WrongFlagsAreOneSentence) {
  const auto complaint_of = [](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"serve", "--model", demo_model()};
    words.insert(words.end(), flags.begin(), flags.end());
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    return complaint(ended, "serve");
  };
  EXPECT_NE(complaint_of({"--host", "0.0.0.0"}).find("--api-key-file"), std::string::npos);
  EXPECT_NE(complaint_of({"--api-key-file", scratch_file("key", "short\n")}).find("16"),
            std::string::npos);
  EXPECT_NE(complaint_of({"--port", "70000"}).find("--port is 70000"), std::string::npos);
  EXPECT_NE(complaint_of({"--tool-call-parser", "xml"}).find("hermes"), std::string::npos);
  EXPECT_NE(complaint_of({"--max-running", "0"}).find("--max-running"), std::string::npos);
  EXPECT_NE(complaint_of({"--host", "192.0.2.1", "--api-key-file", scratch_file("key", kKey)})
                .find("cannot listen"),
            std::string::npos);
}

TEST(ServeTest, OfficialClientWorks) {
  const std::string clients = std::string(TLT_SOURCE_DIR) + "/.deps/clients";
  if (!std::filesystem::exists(clients + "/openai"))
    GTEST_SKIP() << "no openai client in .deps/clients; type: setup/setup.sh --clients";
  ServeProgram server(
      {"--model", model_with_template(), "--api-key-file", scratch_file("key", kKey)});
  const std::string log = scratch_folder() + "/client.log";
  const std::string command = "PYTHONPATH='" + clients + "' python3 '" +
                              std::string(TLT_SOURCE_DIR) + "/tests/peers/openai_client.py' " +
                              "http://127.0.0.1:" + std::to_string(server.port()) + "/v1 >'" + log +
                              "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << tests::read_text(log);
  EXPECT_EQ(server.end(), 0) << server.log();
}

}  // namespace
}  // namespace tlt::apps
