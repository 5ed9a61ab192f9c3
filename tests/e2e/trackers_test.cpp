// Runs with experiment trackers: what real packages have of a run that was interrupted and resumed,
// read by the packages themselves, without a network; and faults of a fake package in a run.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/small_run.h"
#include "tests/support/tracker_package.h"

namespace tlt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_text;
using tests::run_program;
using tests::Scratch;
using Json = nlohmann::ordered_json;

const std::string kClients = std::string(TLT_SOURCE_DIR) + "/.deps/clients";
constexpr const char* kPackages[] = {"wandb", "mlflow", "swanlab", "trackio"};

bool is_installed(const std::string& package) {
  return std::filesystem::exists(kClients + "/" + package + "/__init__.py");
}

std::vector<std::string> tracked_run(const std::filesystem::path& folder, int steps,
                                     const std::string& loggers, int workers = 1) {
  return tests::small_run(
      folder, steps, workers,
      {"trainer.logger=" + loggers, "trainer.project_name=tracked", "trainer.experiment_name=a run",
       "trainer.test_freq=2", "data.val_max_samples=12", "trainer.threads=1"});
}

// A metric's name there: that of a file store of MLflow is a file without '@', in one folder.
std::string name_in(const std::string& package, const std::string& metric) {
  if (package != "mlflow") return metric;
  std::string name;
  for (const char letter : metric)
    if (letter == '@')
      name += "_at_";
    else
      name += letter == '/' && name.find('/') != name.npos ? '_' : letter;
  return name;
}

// Two steps and, resumed, a third one, with all installed packages in their offline modes.
class RealTrackers {
 public:
  RealTrackers() {
    std::string loggers = "[\"file\"";
    for (const char* package : kPackages)
      if (is_installed(package)) loggers += ",\"" + std::string(package) + "\"";
    loggers += "]";
    exit_code_ = run_program(tracked_run(folder_ / "run", 2, loggers), folder_ / "log");
    if (exit_code_ == 0)
      exit_code_ = run_program(tracked_run(folder_ / "run", 3, loggers), folder_ / "log2");
  }

  int exit_code() const { return exit_code_; }
  std::string log() const { return read_text(folder_ / "log") + read_text(folder_ / "log2"); }
  std::filesystem::path run() const { return folder_ / "run"; }

  // What the package has, as tests/peers/read_tracker.py prints it.
  Json read(const std::string& package) const {
    const std::string out = folder_ / ("read_" + package);
    const std::string command = "python3 '" TLT_SOURCE_DIR "/tests/peers/read_tracker.py' " +
                                package + " '" + folder_.path() + "' >'" + out + "' 2>'" + out +
                                ".err'";
    EXPECT_EQ(std::system(command.c_str()), 0) << read_text(out + ".err");
    return Json::parse(read_text(out), nullptr, /*allow_exceptions=*/false);
  }

 private:
  std::string in(const std::string& name) const {
    std::filesystem::create_directories(folder_ / name);
    return folder_ / name;
  }

  Scratch folder_;
  const tests::Variable variables_[12] = {{"PYTHONPATH", kClients},
                                          {"HOME", in("home")},
                                          {"WANDB_MODE", "offline"},
                                          {"WANDB_DIR", in("wandb")},
                                          {"WANDB_ERROR_REPORTING", "false"},
                                          {"MLFLOW_TRACKING_URI", "file:" + in("mlflow")},
                                          {"MLFLOW_ALLOW_FILE_STORE", "true"},
                                          {"MLFLOW_DISABLE_TELEMETRY", "true"},
                                          {"SWANLAB_MODE", "offline"},
                                          {"SWANLAB_LOGDIR", in("swanlab")},
                                          {"TRACKIO_DIR", in("trackio")},
                                          {"HF_HUB_OFFLINE", "1"}};
  int exit_code_ = -1;
};

class RealTrackerTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void TearDownTestSuite() { runs_.reset(); }
  static const RealTrackers& runs() {
    if (!runs_) runs_ = std::make_unique<RealTrackers>();
    return *runs_;
  }
  static std::unique_ptr<RealTrackers> runs_;
};
std::unique_ptr<RealTrackers> RealTrackerTest::runs_;

TEST_P(RealTrackerTest, HasWhatTheRunFolderHas) {
  const std::string package = GetParam();
  if (!is_installed(package))
    GTEST_SKIP() << "no " << package << " in .deps/clients; type: setup/setup.sh --clients";
  ASSERT_EQ(runs().exit_code(), 0) << runs().log();
  EXPECT_THAT(runs().log(), Not(HasSubstr("did not arrive")));
  const Json there = runs().read(package);
  ASSERT_TRUE(there.is_object());
  EXPECT_EQ(there["runs"], 1) << "the resumed run continues the tracker's run";
  EXPECT_THAT(there["config"].dump(), AllOf(HasSubstr("ppo_mini_batch_size"), HasSubstr("tracked"),
                                            HasSubstr("total_training_steps")));
  ASSERT_EQ(there["tables"].size(), 2u) << "steps 2 and 3";
  const std::string dump = read_text(runs().run() / "validation/000003.jsonl");
  const Json first = Json::parse(dump.substr(0, dump.find('\n')));
  const std::string output = Json(first["output"]).dump(-1, ' ', /*ensure_ascii=*/true);
  EXPECT_THAT(there["tables"][1].get<std::string>(), HasSubstr(output));
  std::istringstream lines(read_text(runs().run() / "metrics.jsonl"));
  size_t at = 0;
  for (std::string line; std::getline(lines, line); ++at) {
    ASSERT_LT(at, there["rows"].size());
    const Json row = Json::parse(line);
    for (const auto& [name, value] : row.items())
      EXPECT_EQ(there["rows"][at].value(name_in(package, name), Json()),
                value.is_null() ? Json("nan") : value)
          << name << " in row " << at;
  }
  EXPECT_EQ(at, there["rows"].size());
}

INSTANTIATE_TEST_SUITE_P(Packages, RealTrackerTest, ::testing::ValuesIn(kPackages),
                         [](const auto& info) { return std::string(info.param); });

class TrackedRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tests::has_python()) GTEST_SKIP() << "no python3";
  }
  int run(int steps, const std::string& loggers = "[\"console\",\"wandb\"]") {
    return run_program(tracked_run(folder_ / "run", steps, loggers), folder_ / "log");
  }
  std::string log() const { return read_text(folder_ / "log"); }

  Scratch folder_;
  tests::TrackerPackage package_{"wandb"};
};

TEST_F(TrackedRunTest, MissingPackageIsRefusedBeforeTheModelIsLoaded) {
  package_.remove();
  const auto command = tracked_run(folder_ / "run", 1, "wandb", /*workers=*/2);
  EXPECT_EQ(run_program(command, folder_ / "log"), 2);
  EXPECT_THAT(log(), AllOf(HasSubstr(" -m pip install wandb"), HasSubstr("TLT_PYTHON"),
                           HasSubstr("has no package wandb")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(TrackedRunTest, MissingLoginIsRefused) {
  package_.set_fault("raise in init");
  EXPECT_EQ(run(1), 2);
  EXPECT_THAT(log(), AllOf(HasSubstr("no API key"), HasSubstr("WANDB_MODE=offline")));
}

TEST_F(TrackedRunTest, TrackerThatDiesOrRaisesChangesNothingElse) {
  ASSERT_EQ(run_program(tracked_run(folder_ / "whole", 3, "console"), folder_ / "log"), 0) << log();
  for (const char* fault : {"die in log of step 2", "raise in log of step 2"}) {
    std::filesystem::remove_all(folder_ / "run");
    package_.set_fault(fault);
    ASSERT_EQ(run(3), 0) << log();
    EXPECT_THAT(log(), AllOf(HasSubstr("the run continues"), HasSubstr("messages did not arrive")));
    tests::expect_same_run(folder_ / "run", folder_ / "whole", 3);
    EXPECT_EQ(tests::lasting_metrics(folder_ / "run").size(), 3u);
  }
}

TEST_F(TrackedRunTest, ProcessOfTheTrackerEndsWithAKilledRun) {
  package_.set_fault("hang in log of step 1");
  tests::Program program(tracked_run(folder_ / "run", 100000, "wandb"), folder_ / "log");
  const pid_t pid = package_.wait_for_pid();
  ASSERT_GT(pid, 0) << log();
  program.kill_all();
  for (int i = 0; i < 60000 && package_.is_running(pid); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(package_.is_running(pid));
}

}  // namespace
}  // namespace tlt
