// The Tinker API of `tlt serve --train` with its official client (tests/peers/tinker_client.py).
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <regex>
#include <thread>

#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

constexpr const char* kClientKey = "tml-0123456789abcdef";

std::string clients_folder() { return TLT_SOURCE_DIR "/.deps/clients"; }

std::string model_of_demo() { return TLT_SOURCE_DIR "/models/demo"; }
std::string peer(const std::string& name) {
  return std::string(TLT_SOURCE_DIR) + "/tests/peers/" + name;
}

// Options of all runs here: `tlt sft` and `tlt train` have them too.
std::string recipe(const std::string& model = model_of_demo(), int max_tokens = 400) {
  return "[model]\npath = \"" + model +
         "\"\nlora_alpha = 12\n[actor]\nppo_max_token_len_per_gpu = " + std::to_string(max_tokens) +
         "\n"
         "[trainer]\nthreads = 1\ndefault_local_dir = \"" +
         scratch_folder() + "/served\"\n";
}

class TinkerServer {
 public:
  explicit TinkerServer(const std::string& options = recipe(), const std::string& name = "demo")
      : log_(scratch_folder() + "/serve.log"),
        program_({"serve", "--port", "0", "--kv-memory", "32MB", "--served-model-name", name,
                  "--api-key-file", scratch_file("key", kClientKey), "--train",
                  scratch_file("recipe.toml", options)},
                 log_) {
    static const std::regex pattern("http://127.0.0.1:([0-9]+) has the Tinker API");
    for (int i = 0; i < 6000 && url_.empty(); ++i) {
      std::smatch found;
      const std::string text = tests::read_text(log_);
      if (std::regex_search(text, found, pattern)) url_ = "http://127.0.0.1:" + found[1].str();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_FALSE(url_.empty()) << tests::read_text(log_);
  }

  // Runs tinker_client.py with these words; returns what it printed.
  std::string run_client(const std::string& words) const {
    return run_python("'" + peer("tinker_client.py") + "' " + url_ + " " + words);
  }
  // Runs python3 with these words, and the packages of .deps/clients; returns what it printed.
  std::string run_python(const std::string& words) const {
    const std::string log = scratch_folder() + "/client.log";
    const std::string command = "TINKER_TELEMETRY=0 TINKER_BASE_URL=" + url_ +
                                " TINKER_API_KEY=" + kClientKey + " HF_HUB_OFFLINE=1 HF_HOME='" +
                                scratch_folder() + "/huggingface' PYTHONPATH='" + clients_folder() +
                                "' python3 " + words + " >'" + log + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << tests::read_text(log) << tests::read_text(log_);
    return tests::read_text(log);
  }

  // The folder of the path that the client printed.
  static std::string saved_folder(const std::string& printed) {
    static const std::regex pattern("saved tinker://([^/]+)/weights/(\\w+)");
    std::smatch found;
    if (!std::regex_search(printed, found, pattern)) return "not found in " + printed;
    std::string model = found[1];
    std::ranges::replace(model, ':', '-');
    return scratch_folder() + "/served/tinker/" + model + "/weights/" + found[2].str();
  }

  const std::string& url() const { return url_; }
  // Its exit code after SIGTERM.
  int end() {
    program_.send(SIGTERM);
    return program_.wait();
  }
  std::string log() const { return tests::read_text(log_); }

 private:
  const std::string log_;
  tests::Program program_;
  std::string url_;
};

class ServeTinkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(clients_folder() + "/tinker"))
      GTEST_SKIP() << "no tinker client in .deps/clients; type: setup/setup.sh --clients";
  }
  // Weights and optimizer of a checkpoint of `tlt sft` or `tlt train` are those of the server.
  static void expect_same_weights(const std::string& saved, const std::string& checkpoint) {
    for (const char* file :
         {"/adapter/adapter_model.safetensors", "/state/optimizer.safetensors"}) {
      const std::string got = tests::read_text(saved + file);
      ASSERT_FALSE(got.empty()) << saved << file;
      EXPECT_EQ(got == tests::read_text(checkpoint + file), true) << file << " differs";
    }
  }
};

TEST_F(ServeTinkerTest, LoopsOfTheOfficialClient) {
  TinkerServer server;
  EXPECT_NE(server.run_client("loops").find("ok"), std::string::npos);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTinkerTest, ErrorsOfTheOfficialClient) {
  TinkerServer server;
  EXPECT_NE(server.run_client("errors").find("ok"), std::string::npos);
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTinkerTest, StepsEqualThoseOfSft) {
  std::string rows;
  for (int i = 0; i < 6; ++i)
    rows += nlohmann::json{{"prompt", "4,6,8:2" + std::to_string(i)},
                           {"response", std::string(static_cast<size_t>(3 + i), '7')}}
                .dump() +
            "\n";
  const std::string file = scratch_file("rows.jsonl", rows), folder = scratch_folder() + "/sft";
  const Ended ended = run_program({"sft", scratch_file("recipe.toml", recipe()),
                                   "data.train_files=[\"" + file + "\"]", "data.train_batch_size=6",
                                   "data.shuffle=false", "model.lora_rank=4", "actor.optim.lr=1e-3",
                                   "trainer.total_training_steps=2", "trainer.save_freq=2",
                                   "trainer.default_local_dir=" + folder});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  TinkerServer server;
  const std::string printed = server.run_client("sft '" + file + "'");
  expect_same_weights(TinkerServer::saved_folder(printed), folder + "/checkpoints/step_000002");
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTinkerTest, FirstStepEqualsThatOfTrain) {
  const std::string folder = scratch_folder() + "/train";
  const Ended ended =
      run_program({"train", scratch_file("recipe.toml", recipe()),
                   "data.train_files=[\"countdown:seed=1000,size=64\"]", "data.train_batch_size=4",
                   "data.max_prompt_length=64", "data.max_response_length=64", "rollout.n=4",
                   "reward.functions=[\"countdown_trace\"]",
                   "actor.loss_agg_mode=seq-mean-token-sum-norm", "model.lora_rank=4",
                   "actor.optim.lr=1e-3", "trainer.total_training_steps=1", "trainer.save_freq=1",
                   "trainer.val_before_train=false", "trainer.default_local_dir=" + folder});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  TinkerServer server;
  const std::string printed = server.run_client("train '" + folder + "/rollouts/000001.jsonl'");
  expect_same_weights(TinkerServer::saved_folder(printed), folder + "/checkpoints/step_000001");
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST_F(ServeTinkerTest, TheLoopOfTheDocumentationRuns) {
  const std::string page = tests::read_text(std::string(TLT_SOURCE_DIR) + "/docs/tinker.md");
  const size_t begin = page.find("```python\n"), end = page.find("```\n", begin + 4);
  ASSERT_LT(end, page.size());
  std::string loop = page.substr(begin + 10, end - begin - 10);
  EXPECT_LE(std::ranges::count(loop, '\n'), 40);
  // The client's daemon thread can abort a Python before 3.14 that ends (python/cpython#87135).
  loop += "import os, sys\nsys.stdout.flush()\nos._exit(0)\n";
  TinkerServer server;
  server.run_python("'" + scratch_file("loop.py", loop) + "'");
  EXPECT_EQ(server.end(), 0) << server.log();
}

// The recipes sl_loop and rl_loop, unmodified, with a model and data of the test.
TEST_F(ServeTinkerTest, LoopsOfTheCookbook) {
  if (!std::filesystem::exists(clients_folder() + "/tinker_cookbook"))
    GTEST_SKIP() << "no tinker-cookbook in .deps/clients; type: setup/setup.sh --clients";
  const std::string name = "Qwen/Qwen3-8B-Base", folder = scratch_folder() + "/cookbook",
                    script = "'" + peer("cookbook_loops.py") + "' ";
  const std::string prepare =
      "python3 " + script + "prepare '" + folder + "' '" + model_of_demo() + "' >/dev/null";
  ASSERT_EQ(std::system(prepare.c_str()), 0);
  TinkerServer server(recipe(folder + "/" + name, /*max_tokens=*/4096), name);
  const std::string printed = server.run_python(script + "run '" + folder + "' " + server.url());
  EXPECT_NE(printed.find("\nok\n"), std::string::npos) << printed;
  EXPECT_EQ(server.end(), 0) << server.log();
}

TEST(ServeTinkerFlagsTest, WrongRecipesAreOneSentence) {
  const auto complaint_of = [](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"serve"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    return ended.err;
  };
  const std::string good = scratch_file("recipe.toml", recipe());
  EXPECT_NE(complaint_of({}).find("--train RECIPE.toml"), std::string::npos);
  EXPECT_NE(complaint_of({"--train", good, "--model", "models/demo"}).find("give --model"),
            std::string::npos);
  EXPECT_NE(complaint_of({"--train", "/no/such.toml"}).find("/no/such.toml"), std::string::npos);
  EXPECT_NE(complaint_of(
                {"--train", scratch_file("random.toml",
                                         std::regex_replace(recipe(), std::regex("lora_alpha = 12"),
                                                            "random_seed = 3"))})
                .find("model.random_seed"),
            std::string::npos);
  EXPECT_NE(
      complaint_of({"--train", scratch_file("muon.toml", recipe() + "[actor.optim]\n"
                                                                    "optimizer = \"Muon\"\n")})
          .find("actor.optim.optimizer is Muon"),
      std::string::npos);
}

}  // namespace
}  // namespace tlt::apps
