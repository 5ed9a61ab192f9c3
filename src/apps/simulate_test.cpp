// tlt simulate as a program: its outputs, and its complaints.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "base/files.h"
#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kSmall = {"simulate",
                                         "workers=2",
                                         "n=2",
                                         "total_training_steps=1",
                                         "max_response_length=1024",
                                         "lengths=lognormal:200,1000"};
const std::string kBatch = "train_batch_size=4";

Ended simulate(const std::vector<std::string>& more) {
  std::vector<std::string> words = kSmall;
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

TEST(SimulateProgramTest, TableEndsWithASentence) {
  const Ended ended = simulate({kBatch});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("tlt-published"));
  EXPECT_THAT(ended.out, HasSubstr("at 4 sequences per worker on H100 (ridge 295 rows) tlt-early"));
}

TEST(SimulateProgramTest, SweepGivesALineForEachWayAndValue) {
  const Ended ended = simulate({kBatch, "ways=plain,tlt", "--json", "--sweep", "device=H100,H20"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["way"], "tlt");
  EXPECT_THAT(rows[3]["options"].dump(), HasSubstr("device=H20"));
}

TEST(SimulateProgramTest, PictureHasTheNumbersOfTheSweep) {
  const std::string path = scratch_folder() + "/sweep.html";
  const Ended ended = simulate({"ways=plain,tlt+partial", "--json", "--sweep", "device=H100,H20",
                                "--sweep", "train_batch_size=1,2,3", "--picture", path});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string page = read_file(path, 1 << 22);
  constexpr std::string_view kBegin = "id=\"data\">";
  const size_t begin = page.find(kBegin) + kBegin.size();
  const auto data =
      nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["sweep"]["option"], "train_batch_size");
  EXPECT_EQ(data["sweep"]["values"], nlohmann::json({"1", "2", "3"}));
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["runs"][1]["name"], "device=H20");
  const auto rows = json_lines(ended.out);  // device, train_batch_size, way
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& columns = data["runs"][i / 6]["metrics"]["columns"];
    for (const std::string name : {"step_speedup", "idle_share", "device_seconds_per_step"})
      EXPECT_EQ(columns[name + "/" + rows[i]["way"].get<std::string>()][i / 2 % 3], rows[i][name]);
  }
}

TEST(SimulateProgramTest, TimelineIsOneOfPerfetto) {
  const std::string path = scratch_folder() + "/timeline.json";
  EXPECT_EQ(simulate({kBatch, "--timeline", path}).exit_code, 0);
  const auto events = nlohmann::json::parse(read_file(path, 1 << 26));
  EXPECT_THAT(events.dump(), HasSubstr("decode"));
  EXPECT_THAT(events.dump(), HasSubstr("update"));
}

TEST(SimulateProgramTest, FitPrintsOptions) {
  const Ended ended = run_program(
      {"simulate", "--fit", std::string(TLT_SOURCE_DIR) + "/tests/data/simulate/figure13.jsonl"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("costs.compute_efficiency=0.8"));
  EXPECT_THAT(ended.out, HasSubstr("of 37 measurements"));
}

TEST(SimulateProgramTest, LostWorkersAndCheckpointsAreInTheSentence) {
  const Ended ended = simulate({kBatch, "ways=plain", "save_freq=1", "lost_workers=1@0.5"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("; 1 worker lost: connecting again takes"));
  const auto rows =
      json_lines(simulate({kBatch, "ways=plain", "lost_workers=1@0.5", "--json"}).out);
  EXPECT_EQ(rows.at(0)["lost_workers"], 1);
  EXPECT_GT(rows.at(0)["wasted_tokens"], 0);
  EXPECT_GT(rows.at(0)["dead_worker_seconds"], 0);
}

TEST(SimulateProgramTest, Complaints) {
  const std::string damaged = scratch_folder() + "/damaged.jsonl",
                    trace = scratch_folder() + "/damaged-dataset.json";
  write_file_atomic(damaged, "{\"response_tokens\": 10}\n{\"response_tokens\": \"many\"}\n");
  write_file_atomic(trace, R"({"0": {"output_tokens": "{7: 1, 9"}})");
  for (const auto& [words, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"device=H10"}, "unknown device H10; did you mean H100?"},
           {{"model=Qwen2.5-32b"}, "did you mean Qwen2.5-32B?"},
           {{"ways=plain,tlt-publish"}, "did you mean tlt-published?"},
           {{"model=Llama-70B"}, "give tensor_model_parallel_size=4 or more"},
           {{"workers=0"}, "workers is 0; give a number from 1 to"},
           {{"worker=3"}, "workers"},
           {{"device=H100", "device=H20"}, "device is given twice"},
           {{"max_num_batched_tokens=10"}, "do not fit into max_num_batched_tokens"},
           {{"lengths=normal:1,2"}, "give lognormal:MEDIAN,P99"},
           {{"lengths=servegen:/none"}, "/none"},
           {{"lengths=rollouts:" + damaged}, "damaged.jsonl:2: neither response_tokens"},
           {{"lengths=servegen:" + trace}, "not a histogram of lengths"},
           {{"bench_forward=" + damaged}, "damaged.jsonl:1: not a line of tlt bench forward"},
           {{"bench_suffix=" + damaged}, "give the folder of these, as lengths=rollouts:"},
           {{"bench_suffix=" + damaged, "suffix_draft_rate=1"}, "is measured by bench_suffix"},
           {{"--fit", damaged}, "damaged.jsonl:1: not a measurement"},
           {{"model=DeepSeek-V3", "device=RTX4090"}, "give tensor_model_parallel_size=128"},
           {{"lost_workers=9@5"}, "but workers are 0 to 7"},
           {{"lost_workers=3"}, "give WORKER@SECONDS"},
           {{"lost_workers=1@5", "ways=plain+partial"}, "lost workers are not simulated with"},
           {{"save_freq=-1"}, "save_freq is -1; give a number from 0"},
           {{"--sweep", "workers"}, "give --sweep workers=8,64,512"},
           {{"--sweep", "workers=1", "--timeline", "x"}, "--timeline is of one simulation"},
           {{"--picture", "x"}, "--picture is of a sweep"},
           {{"--sweep", "ways=plain,tlt"}, "all ways are simulated at each point"},
           {{"ways=tlt+partly"}, "unknown what-if partly"},
           {{"ways=tlt+one-step-off", "workers=1"}, "give workers=2"},
           {{"--fit", "/none"}, "/none"}}) {
    std::vector<std::string> arguments = {"simulate"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.exit_code, 2) << part;
    EXPECT_THAT(ended.err, HasSubstr(part));
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
  }
}

}  // namespace
}  // namespace tlt::apps
