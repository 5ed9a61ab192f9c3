// What tlt simulate reads: measured forward passes, measurements to fit, the responses of a run, and
// the suffix drafts in them.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "simulate/cost_model.h"
#include "simulate/fit.h"
#include "simulate/suffix_replay.h"
#include "simulate/workload.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"

namespace tlt::tests {
namespace {

// Each text is written to a file, whose path `read` gets; it returns a summary.
void fuzz_lines(FuzzPlan plan, const std::function<std::string(const std::string& path)>& read) {
  plan.dictionary.insert(plan.dictionary.end(),
                         {"{", "}", "[", "]", ",", ":", "\"", "\n", "null", "-1", "1e999", "1e300",
                          "0.5", "18446744073709551615", "\\ud800", "\xff", "[[[[[[[["});
  plan.inputs = 6000;
  plan.mutate = [](Mutator& mutator, const std::string& text, const std::string& other) {
    return mutator.one_in(2) ? mutator.bytes(text, other) : mutator.json(text, other);
  };
  const TestFolder folder;
  FileHandle file(folder / (plan.name + ".jsonl"), O_RDWR | O_CREAT);
  fuzz(plan, [&](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    return read(file.path());
  });
}

TEST(SimulateFuzzTest, SuffixDraftsAreReadOrRejected) {
  const std::string header = R"({"confidences":[{"first":0.5,"later":1},{"first":0,"later":0.1}]})";
  fuzz_lines(
      {.name = "suffix_drafts",
       .corpus = {header + "\n" + R"({"confidence":[0,2,1],"tokens":[0,4,1],"accepted":[0,3,1]})" +
                      "\n" + R"({"confidence":[0],"tokens":[0],"accepted":[0]})" + "\n",
                  R"({"confidences":[]})"
                  "\n"
                  R"({"confidence":[0,0],"tokens":[0,0],"accepted":[0,0]})"},
       .dictionary = {"confidences", "confidence", "tokens", "accepted", "first", "later", "255",
                      "256"}},
      [](const std::string& path) {
        const simulate::SuffixReplay replay(path);
        bool has_drafts = false;
        for (size_t i = 0; i < replay.responses(); ++i) {
          TLT_CHECK(!replay.drafts(i).empty(), i);
          for (const simulate::SuffixDraft& draft : replay.drafts(i)) {
            TLT_CHECK(draft.accepted <= draft.tokens, i);
            if (draft.tokens == 0) continue;
            has_drafts = true;
            const double first = replay.acceptance(draft.confidence).first;
            TLT_CHECK(first >= 0 && first <= 1, first);
          }
        }
        return std::string(has_drafts ? "drafts" : "none");
      });
}

TEST(SimulateFuzzTest, ForwardCostsAreReadOrRejected) {
  fuzz_lines({.name = "forward_costs",
              .corpus = {R"({"as":"sequences","rows":2,"context":64,"forward_seconds_p50":0.5,)"
                         R"("head_seconds_p50":0.25})"
                         "\n"
                         R"({"as":"tree","rows":4,"context":64,"forward_seconds_mean":1,)"
                         R"("head_seconds_mean":0.25})"
                         "\n"},
              .dictionary = {"as", "sequences", "tree", "rows", "context", "forward_seconds_mean",
                             "head_seconds_mean", "forward_seconds_p50", "head_seconds_p50"}},
             [](const std::string& path) {
               for (const speculation::ForwardCost& cost : simulate::read_forward_costs(path))
                 TLT_CHECK(cost.batch > 0 && cost.rows > 0 && cost.seconds > 0, cost.seconds);
               return std::string();
             });
}

TEST(SimulateFuzzTest, MeasurementsAreReadOrRejected) {
  fuzz_lines({.name = "measurements",
              .corpus = {R"({"device":"H100","model":"Qwen2.5-7B","tokens_per_second":150})"
                         "\n",
                         R"({"device":"RTX4090","model":"Qwen2.5-7B","tensor_parallel":2,)"
                         R"("batch":8,"context":2048,"strategy":"8_4_32","accept_length":4.5,)"
                         R"("speedup":2.5})"},
              .dictionary = {"device", "model", "tensor_parallel", "batch", "context", "strategy",
                             "accept_length", "speedup", "tokens_per_second", "H100", "8_4_48"}},
             [](const std::string& path) {
               for (const simulate::Measurement& it : simulate::read_measurements(path))
                 TLT_CHECK(it.value > 0 && it.batch >= 1, it.value);
               return std::string();
             });
}

TEST(SimulateFuzzTest, RolloutsAreReadOrRejected) {
  fuzz_lines(
      {.name = "recorded_rollouts",
       .corpus = {"{\"response_tokens\":40,\"score\":1}\n{\"response_tokens\":7,\"score\":0.5}\n",
                  R"({"output":"a response of verl","score":1})"},
       .dictionary = {"response_tokens", "output", "score"}},
      [](const std::string& path) {
        simulate::SimulateOptions options;
        options.lengths = "rollouts:" + path;
        const simulate::Workload workload(options);
        const int64_t tokens = workload.length(/*step=*/0, /*prompt=*/0, /*sample=*/0);
        TLT_CHECK(tokens >= 1 && tokens <= options.max_response_length, tokens);
        return std::to_string(std::to_string(tokens).size());
      });
}

}  // namespace
}  // namespace tlt::tests
