// What tlt simulate reads: measured forward passes, measurements to fit, the responses of a run, and
// their tokens.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "base/files.h"
#include "simulate/cost_model.h"
#include "simulate/fit.h"
#include "simulate/recorded_tokens.h"
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

TEST(SimulateFuzzTest, RecordedTokensAreReadOrRejected) {
  fuzz_lines({.name = "recorded_tokens",
              .corpus = {R"({"prompt":[1,2],"response":[3]})"
                         "\n"
                         R"({"prompt":[1,2],"response":[4,0]})"
                         "\n",
                         R"({"prompt":[],"response":[2147483647]})"},
              .dictionary = {"prompt", "response", "2147483647", "2147483648"}},
             [](const std::string& path) {
               const simulate::RecordedTokens recorded(path);
               TLT_CHECK(!recorded.is_empty());
               for (const simulate::ResponseTokens& response : recorded.responses()) {
                 TLT_CHECK(!response.tokens.empty());
                 for (const auto tokens : {response.prompt, std::span(response.tokens)})
                   for (const int32_t token : tokens) TLT_CHECK(token >= 0, token);
               }
               return std::string(recorded.responses().size() > 1 ? "several" : "one");
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
