// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "tests/support/run_program.h"

namespace tlt::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(BenchTest, DecodeReportsEachBatchSize) {
  const Ended ended = run_program({"bench", "decode", "--model", golden_model("qwen2_tied"),
                                   "--batch", "1,5", "--prompt-tokens", "9", "--new-tokens", "12",
                                   "--repeat", "2", "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["bench"], "decode");
    EXPECT_EQ(row["model"], "qwen2_tied");
    EXPECT_EQ(row["dtype"], "float32");
    EXPECT_EQ(row["threads"], 1);
    EXPECT_EQ(row["accept_length"], 1.0);
    EXPECT_LE(row["tokens_per_second"], row["best"]);
    EXPECT_LE(row["step_seconds_p50"], row["step_seconds_p90"]);
    for (const char* name :
         {"tokens_per_second", "step_seconds_p50", "peak_memory_bytes", "weight_bytes_per_token",
          "kv_bytes_per_token", "read_bandwidth_bytes_per_second", "bandwidth_share"})
      EXPECT_GT(row.value(name, 0.0), 0.0) << name;
    for (const char* name : {"commit", "machine"})
      EXPECT_TRUE(row.value(name, json()).is_string()) << name;
  }
  EXPECT_LT(rows[0]["peak_memory_bytes"], int64_t{256} << 20)
      << "the buffer of the bandwidth measurement is not counted";
  EXPECT_EQ(rows[0]["batch"], 1);
  EXPECT_EQ(rows[1]["batch"], 5);
  EXPECT_DOUBLE_EQ(rows[0]["weight_bytes_per_token"].get<double>(),
                   5 * rows[1]["weight_bytes_per_token"].get<double>());
}

// docs/memory.md: weights, master weights and moments, the sums, and the gradients of a layer and
// the embedding. With those of the whole model, or with the sums and a KV cache at the same time, it
// would be over the bound.
TEST(BenchTest, PeakMemoryOfAnUpdateIsThePlanned) {
  const Ended ended = run_program({"bench", "train", "--shape", "60m", "--prompts", "1",
                                   "--samples", "2", "--prompt-tokens", "20", "--new-tokens", "12",
                                   "--repeat", "1", "--threads", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  const double embedding = 512.0 * 50304, layer = 512.0 * 64 * 20 + 3.0 * 512 * 1536,
               parameters = embedding + 8 * layer,
               planned = (2 + 12 + 8) * parameters + 4 * (embedding + layer);
  const double program = row["peak_memory_bytes"].get<double>() - planned;
  EXPECT_GT(program, 0);
  EXPECT_LT(program, 256e6) << "the program takes 180 to 210 MB, and the rest is activations";
}

TEST(BenchTest, DraftTrainComparesPackingAndPadding) {
  const std::string trace =
      scratch_file("dataset.json", R"({"0": {"output_tokens": "{10: 0.9, 80: 0.1}"}})");
  const Ended ended =
      run_program({"bench", "draft-train", "--shape", "tiny", "--trace", trace, "--scale", "0.5",
                   "--batch", "8", "--repeat", "3", "--threads", "1", "--max-tokens", "64"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_EQ(row["bench"], "draft-train");
  EXPECT_DOUBLE_EQ(row["trace_mean_tokens"].get<double>(), 17);
  EXPECT_LE(row["longest_tokens"], 40);
  EXPECT_GT(row["padding_share"], 0.0);
  EXPECT_DOUBLE_EQ(row["packing_ratio"].get<double>(),
                   row["packed_samples_per_second"].get<double>() /
                       row["padded_samples_per_second"].get<double>());
  EXPECT_GT(row["packing_ratio_kindly"], 0.0);
  EXPECT_THAT(ended.err, HasSubstr("packed "));
  EXPECT_EQ(run_program({"bench", "draft-train"}).exit_code, 2);
}

TEST(BenchTest, DraftCheckpointsAreMeasuredAndRemoved) {
  const std::string folder = scratch_folder() + "/disk";
  std::filesystem::create_directories(folder);
  const Ended ended = run_program({"bench", "draft-train", "--checkpoint", "--shape", "tiny",
                                   "--repeat", "2", "--threads", "1", "--folder", folder});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  for (const char* kind : {"blocking_full", "async_full", "async_selective"}) {
    EXPECT_GT(row[std::string(kind) + "_blocked_ms"], 0.0) << kind;
    EXPECT_GE(row[std::string(kind) + "_durable_ms"], row[std::string(kind) + "_blocked_ms"])
        << kind;
  }
  EXPECT_LT(row["async_selective_bytes"], row["async_full_bytes"]);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(BenchTest, RolloutComparesAllWaysInOneRun) {
  const Ended ended = run_program({"bench",
                                   "rollout",
                                   "--model",
                                   golden_model("qwen2_tied"),
                                   "--batch",
                                   "1,4",
                                   "--responses",
                                   "6",
                                   "--samples",
                                   "2",
                                   "--prompt-tokens",
                                   "9",
                                   "--max-new-tokens",
                                   "20",
                                   "--repeat",
                                   "1",
                                   "--threads",
                                   "1",
                                   "--ways",
                                   "auto,suffix:4_2_6,simulated:4_2_6",
                                   "--simulate-acceptance",
                                   "3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 10u);
  const std::vector<std::string> ways = {"off", "auto", "suffix:4_2_6", "simulated:4_2_6",
                                         "simulated"};
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    EXPECT_EQ(row["way"], ways[i % 5]);
    EXPECT_EQ(row["batch"], i < 5 ? 1 : 4);
    EXPECT_EQ(row["responses"], 6);
    EXPECT_EQ(row["tokens"], rows[0]["tokens"]);
    EXPECT_GE(row["accept_length"], 1.0);
    EXPECT_GT(row["speedup"], 0.0);
    EXPECT_LE(row["speedup_min"], row["speedup"]);
    EXPECT_FALSE(row["tokens_per_second_by_batch"].empty());
    EXPECT_EQ(row["speedup_by_batch"].size(), row["tokens_per_second_by_batch"].size());
    EXPECT_TRUE(row["way"] != "off" || row["speedup_by_batch"].front() == 1);
  }
  EXPECT_EQ(rows[0]["speedup"], 1.0);
  EXPECT_EQ(rows[0]["accept_length"], 1.0);
  EXPECT_GT(rows[3]["accepted_tokens"], 10);  // a fixed strategy drafts in every step
}

TEST(BenchTest, TrainReportsRolloutAndUpdate) {
  const Ended ended = run_program({"bench", "train", "--model", golden_model("qwen2_tied"),
                                   "--prompts", "2", "--samples", "3", "--prompt-tokens", "5",
                                   "--new-tokens", "7", "--repeat", "1", "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_GT(row["rollout_seconds"], 0.0);
  EXPECT_GT(row["train_seconds"], 0.0);
  EXPECT_EQ(row["rollout_probs_diff_max"], 0.0) << "engine and trainer compute the same bits";
}

// The rows of one quantity, smallest size first.
std::vector<json> rows_of(const std::vector<json>& rows, const std::string& quantity) {
  std::vector<json> found;
  for (const json& row : rows)
    if (row["quantity"] == quantity) found.push_back(row);
  return found;
}

TEST(BenchTest, GrowthReportsExponentsToTheLineBefore) {
  const Ended ended = run_program({"bench", "growth", "--factor", "1,3", "--prompts", "1",
                                   "--samples", "2", "--prompt-tokens", "4", "--new-tokens", "8",
                                   "--width", "64", "--repeat", "1", "--threads", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = json_lines(ended.out);
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& [quantity, first_size] :
       {std::pair("prompts", 1.0), {"response_tokens", 8.0}, {"width", 0.0}}) {
    SCOPED_TRACE(quantity);
    const auto pair = rows_of(rows, quantity);
    ASSERT_EQ(pair.size(), 2u);
    const json &small = pair[0], &large = pair[1];
    const double size_ratio = large["size"].get<double>() / small["size"].get<double>();
    if (first_size > 0) {
      EXPECT_EQ(small["size"], first_size);
      EXPECT_EQ(size_ratio, 3.0);
    } else {
      EXPECT_GT(size_ratio, 3.0 * 2) << "parameters grow about with the square of the width";
    }
    for (const auto& [cost, unit] : {std::pair<std::string, std::string>("rollout", "_seconds"),
                                     {"train", "_seconds"},
                                     {"attention", "_seconds"},
                                     {"memory", "_bytes"}}) {
      EXPECT_GT(small[cost + unit], 0.0) << cost;
      EXPECT_FALSE(small.contains(cost + "_exponent")) << "the first line has no exponent";
      EXPECT_NEAR(large[cost + "_exponent"].get<double>(),
                  std::log(large[cost + unit].get<double>() / small[cost + unit].get<double>()) /
                      std::log(size_ratio),
                  1e-9)
          << cost;
    }
    EXPECT_NEAR(small["other_seconds"].get<double>() + small["attention_seconds"].get<double>(),
                small["rollout_seconds"].get<double>() + small["train_seconds"].get<double>(),
                1e-9);
  }
  EXPECT_EQ(rows_of(rows, "prompts")[1]["prompts"], 3);
  EXPECT_EQ(rows_of(rows, "response_tokens")[1]["new_tokens"], 24);
  EXPECT_EQ(rows_of(rows, "width")[1]["width"], 192);
  EXPECT_GT(rows_of(rows, "width")[1]["memory_bytes"], rows_of(rows, "width")[0]["memory_bytes"]);
}

std::string result(double rate, const std::string& machine, const std::string& way = "off") {
  return nlohmann::ordered_json{
             {"bench", "rollout"},        {"way", way},    {"batch", 8},        {"repeat", 3},
             {"tokens_per_second", rate}, {"commit", "c"}, {"machine", machine}}
             .dump() +
         "\n";
}

TEST(BenchTest, CompareRefusesDifferentMachines) {
  const std::string before = scratch_file("old.jsonl", result(100, "here")),
                    after = scratch_file("new.jsonl", result(150, "here"));
  const Ended ended = run_program({"bench", "compare", before, after});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("x 1.500"));
  EXPECT_THAT(ended.out, HasSubstr("rollout off batch 8"));
  EXPECT_THAT(ended.out, Not(HasSubstr("repeat")));
  const Ended refused =
      run_program({"bench", "compare", before, scratch_file("there.jsonl", result(150, "there"))});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(complaint(refused, "bench"), HasSubstr("different machines"));
}

TEST(BenchTest, CompareMatchesEveryMeasurement) {
  const std::string before =
      scratch_file("old.jsonl", result(100, "here") + result(200, "here", "auto"));
  const Ended ended =
      run_program({"bench", "compare", before,
                   scratch_file("new.jsonl", result(50, "here") + result(600, "here", "auto"))});
  EXPECT_THAT(ended.out, AllOf(HasSubstr("x 0.500"), HasSubstr("x 3.000"))) << ended.err;
  const Ended refused =
      run_program({"bench", "compare", before,
                   scratch_file("twice.jsonl", result(50, "here") + result(60, "here"))});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(complaint(refused, "bench"), HasSubstr("a second result of 'rollout off batch 8'"));
}

// Ten tokens that differ have no drafts, but for later responses to the same prompt.
TEST(BenchTest, SuffixHasTheDraftsOfResponses) {
  const std::string rollouts = scratch_folder() + "/rollouts", out = rollouts + "/drafts",
                    model = std::string(TLT_SOURCE_DIR) + "/models/demo";
  const auto row = [](const char* input, const char* output) {
    return json{{"input", input}, {"output", output}}.dump() + "\n";
  };
  std::filesystem::create_directory(rollouts);
  write_file_atomic(rollouts + "/9.jsonl", row("7", "+-*/=,:>()"));
  write_file_atomic(rollouts + "/10.jsonl", row("8", "+-*/=,:>()") + row("7", "+-*/=2:>()"));
  const std::vector<std::string> words = {"bench",  "suffix", "--model", model,     "--rollouts",
                                          rollouts, "--out",  out,       "--depth", "5"};
  const Ended ended = run_program(words);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json summary = json_lines(ended.out).at(0);
  EXPECT_EQ(summary["bench"], "suffix");
  EXPECT_EQ(summary["responses"], 3);
  EXPECT_EQ(summary["tokens"], 30);
  // 9 steps each without drafts. Then 5 tokens of which 4 are accepted and "2", one step without a
  // draft, and the rest.
  EXPECT_DOUBLE_EQ(summary["accept_length"].get<double>(), 27.0 / (9 + 9 + 3));
  EXPECT_DOUBLE_EQ(summary["draft_rate"].get<double>(), 2.0 / 21);
  EXPECT_EQ(summary["accept_rate_pos_1"], 1);

  const auto lines = json_file(out);
  ASSERT_EQ(lines.size(), 3U);
  for (const json& line : lines) EXPECT_EQ(line["response"].size(), 10U);
  EXPECT_EQ(lines[0]["prompt"], lines[2]["prompt"]);
  EXPECT_NE(lines[0]["prompt"], lines[1]["prompt"]);
  EXPECT_EQ(lines[0]["response"], lines[1]["response"]);
  EXPECT_NE(lines[0]["response"], lines[2]["response"]);

  write_file_atomic(rollouts + "/11.jsonl", "{\"response_tokens\": 3}\n");
  const Ended damaged = run_program(words);
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("11.jsonl:1: no text \"input\""));
}

TEST(BenchTest, TokenizeCountsTheStringsOfAllFiles) {
  const std::string golden = std::string(TLT_SOURCE_DIR) + "/tests/golden/tokenizers/";
  const std::string data =
      scratch_file("texts.jsonl", "{\"a\": \"ab cd\", \"n\": 1}\n{\"a\": \"e\", \"b\": \"f\"}\n");
  const Ended ended = run_program({"bench", "tokenize", "--model", golden + "llama2_style",
                                   "--data", data, "--data", data, "--repeat", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_EQ(row["bench"], "tokenize");
  EXPECT_EQ(row["texts"], 6);
  EXPECT_EQ(row["bytes"], 14);
  EXPECT_GE(row["tokens"], 6);
  EXPECT_GT(row["encode_bytes_per_second"], 0);
  EXPECT_GT(row["decode_bytes_per_second"], 0);
}

TEST(BenchTest, ForwardReportsEveryKindAndSize) {
  const Ended ended = run_program({"bench", "forward", "--model", golden_model("qwen2_tied"),
                                   "--rows", "5,10", "--as", "tree,trees,sequences", "--tree-rows",
                                   "5,2", "--context", "17", "--repeat", "3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const json& row : json_lines(ended.out)) {
    EXPECT_EQ(row["bench"], "forward");
    EXPECT_GT(row["forward_seconds_p50"], 0);
    EXPECT_GE(row["forward_seconds_p50"], row["forward_seconds_p10"]);
    EXPECT_GT(row["head_seconds_p50"], 0);
    for (const char* pass : {"forward", "head"})
      EXPECT_GE(row[pass + std::string("_seconds_mean")], row[pass + std::string("_seconds_p10")]);
    lines.emplace_back(row["as"], row["rows"]);
  }
  EXPECT_EQ(lines, (std::vector<std::pair<std::string, int64_t>>{{"tree", 5},
                                                                 {"tree", 10},
                                                                 {"trees", 5},
                                                                 {"trees", 10},
                                                                 {"trees", 10},
                                                                 {"sequences", 5},
                                                                 {"sequences", 10}}));
}

TEST(BenchTest, GraphsCountsWhatEachPolicyCaptures) {
  const Ended ended =
      run_program({"bench", "graphs", "--model", golden_model("qwen2_tied"), "--batch", "20",
                   "--responses", "40", "--prompt-tokens", "9", "--new-tokens", "40"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::map<std::string, json> lines;
  for (const json& row : json_lines(ended.out)) {
    lines[row["policy"]] = row;
    EXPECT_EQ(row["graph_memory_bytes"], "not measured");
    EXPECT_GT(row["passes"], 8);
  }
  ASSERT_EQ(lines.size(), 4u);
  const auto count = [&](const char* policy, const char* field) {
    return lines.at(policy)[field].get<int64_t>();
  };
  for (const char* field : {"graphs", "captured_rows"}) {
    EXPECT_GT(count("naive", field), count("bucketed", field)) << field;
    EXPECT_GE(count("naive", field), count("single", field)) << field;
    EXPECT_GT(count("ours", field), 0) << field;
  }
  EXPECT_LE(count("ours", "graphs"), 67) << "the padded numbers of rows";
}

TEST(BenchTest, WrongFlagsAreNamed) {
  const Ended ended = run_program({"bench", "decode", "--batch", "0"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(complaint(ended, "bench"), HasSubstr("--batch has 0; give"));
  EXPECT_EQ(run_program({"bench", "decode", "--shape", "huge"}).exit_code, 2);
  const auto rollout = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "rollout", "--model", golden_model("qwen2_tied")});
    const Ended one = run_program(flags);
    EXPECT_EQ(one.exit_code, 2);
    return complaint(one, "bench");
  };
  EXPECT_THAT(rollout({"--ways", "fast"}), HasSubstr("--ways has 'fast'; use off, auto"));
  EXPECT_THAT(rollout({"--ways", "off:8_4_16"}), HasSubstr("only a drafter takes a strategy"));
  EXPECT_THAT(rollout({"--ways", "suffix:1_1_9"}), HasSubstr("1_1_9"));
  EXPECT_THAT(rollout({"--ways", "simulated"}), HasSubstr("needs --simulate-acceptance"));
  EXPECT_THAT(rollout({"--ways", "eagle"}), HasSubstr("needs a draft model"));
  EXPECT_THAT(rollout({"--simulate-acceptance", "0.5"}), HasSubstr("--simulate-acceptance is 0.5"));
  EXPECT_THAT(rollout({"--batch", "0"}), HasSubstr("--batch has 0"));
  const Ended growth = run_program({"bench", "growth", "--factor", "4,1"});
  EXPECT_EQ(growth.exit_code, 2);
  EXPECT_THAT(complaint(growth, "bench"), HasSubstr("--factor has 1; give ascending numbers"));
  const Ended graphs = run_program({"bench", "graphs", "--batch", "513"});
  EXPECT_EQ(graphs.exit_code, 2);
  EXPECT_THAT(complaint(graphs, "bench"), HasSubstr("--batch is 513; give a number from 1 to 512"));
  const Ended forward = run_program({"bench", "forward", "--as", "forest"});
  EXPECT_EQ(forward.exit_code, 2);
  EXPECT_THAT(complaint(forward, "bench"), HasSubstr("--as has 'forest'; give tree"));
  const Ended cut = run_program({"bench", "forward", "--as", "trees", "--rows", "6"});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(complaint(cut, "bench"), HasSubstr("none of --rows is a multiple of --tree-rows=4"));
}

TEST(BenchTest, ControlCountsMessagesAndGroups) {
  const Ended ended = run_program({"bench", "control", "--workers", "12", "--processes", "3",
                                   "--steps", "2", "--groups", "3", "--seconds", "0.05"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json row = json_lines(ended.out).at(0);
  EXPECT_EQ(row["groups_done"], 2 * 3 * 12);
  EXPECT_EQ(row["groups_lost"], 0);
  EXPECT_GT(row["messages_per_second"], 2.0 * 2 * 3 * 12 / row["seconds"].get<double>());
  EXPECT_GT(row["cpu_seconds_per_message"], 0.0);
  EXPECT_LE(row["take_seconds_p50"], row["take_seconds_p99"]);
}

}  // namespace
}  // namespace tlt::apps
