// tlt bench suffix: the drafts that suffix lookup has in given responses, and how many of their
// tokens would be accepted.
//
// Speculation changes no token, so a draft token is accepted where it is the response's next one.
// The responses of each RL step are decoded again side by side, with a draft after every token. So
// the drafts are known also where a run did not speculate, and for the responses of other programs.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/json_lines.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "data/data_files.h"
#include "drafter/suffix/suffix_drafter.h"
#include "tokenizer/tokenizer.h"

namespace tlt::bench {
namespace {

// Confidence i + 1: the first draft token's probability is above kAbove[i], and not above the next.
constexpr auto kAbove =
    std::to_array<float>({0, 0.2f, 0.35f, 0.5f, 0.65f, 0.8f, 0.9f, 0.95f, 0.98f});
constexpr int64_t kMostTokens = 64;  // of a draft

struct SuffixFlags {
  std::string model, rollouts, out;
  int64_t depth = 16;

  void add_to(CLI::App& app) {
    app.add_option("--model", model, "Folder with tokenizer.json.")->required();
    app.add_option("--rollouts", rollouts,
                   "The folder rollouts/ of a run, or verl's trainer.rollout_data_dir.")
        ->required();
    app.add_option("--out", out,
                   "Writes the drafts of each response: bench_suffix of tlt simulate.");
    app.add_option("--depth", depth, "Tokens of a draft at most.");
  }
};

// The drafts of a response by the number of its tokens before them; 0: there is none, as before the
// first token, which the prompt's forward pass gives.
struct ResponseDrafts {
  explicit ResponseDrafts(size_t length) : confidence(length), tokens(length), accepted(length) {}
  std::vector<uint8_t> confidence, tokens, accepted;
};

// Counts of the drafts with a confidence.
struct ConfidenceCounts {
  int64_t drafts = 0, first = 0;       // first: of which the first token is accepted
  int64_t later_tried = 0, later = 0;  // later tokens, where those before are accepted
};

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

class ResponseDecoder {
 public:
  ResponseDecoder(const tokenizer::Tokenizer& tokenizer, int64_t depth)
      : tokenizer_(tokenizer), strategy_{depth, 1, depth + 1} {}

  // The responses of an RL step.
  void decode(const std::string& file) {
    std::vector<Response> step = read(file);
    for (size_t position = 1; draft(step, position); ++position) {
    }
    for (Response& it : step) {
      count(it.drafts);
      drafts_.push_back(std::move(it.drafts));
    }
    drafter_.new_weights();
  }

  nlohmann::ordered_json summary() const {
    int64_t drafts = 0, first = 0;
    nlohmann::ordered_json confidences = nlohmann::json::array();
    for (size_t i = 0; i < kAbove.size(); ++i) {
      const ConfidenceCounts& it = counts_[i];
      drafts += it.drafts, first += it.first;
      const double rate = share(it.first, it.drafts);
      // Rounded: 0.2f is 0.20000000298….
      confidences.push_back(
          {{"above", std::round(double{kAbove[i]} * 100) / 100},
           {"share", share(it.drafts, steps_)},
           {"first", rate},
           {"later", it.later_tried > 0 ? share(it.later, it.later_tried) : rate}});
    }
    return {{"responses", drafts_.size()},
            {"tokens", tokens_},
            {"draft_rate", share(drafts, steps_)},
            {"accept_rate_pos_1", share(first, drafts)},
            {"accept_length", share(decoded_, steps_)},
            {"confidences", confidences}};
  }

  void write(const nlohmann::ordered_json& header, const std::string& path) const {
    JsonLinesWriter lines(path);
    lines.write(header);
    for (const ResponseDrafts& it : drafts_)
      lines.write(nlohmann::ordered_json{
          {"confidence", it.confidence}, {"tokens", it.tokens}, {"accepted", it.accepted}});
    lines.flush();
  }

 private:
  struct Response {
    drafter::SequenceId id;
    std::vector<int32_t> prompt, tokens;
    ResponseDrafts drafts;
    drafter::DraftTree tree = {};
  };

  std::vector<Response> read(const std::string& file) {
    std::vector<Response> step;
    std::map<uint32_t, uint32_t> samples;
    JsonLinesReader reader(file);
    for (nlohmann::json row; reader.try_next(row);) {
      const auto text = [&](const char* name) {
        const bool has_text = row.is_object() && row.contains(name) && row[name].is_string();
        TLT_CHECK_INPUT(has_text, reader.place(), ": no text \"", name,
                        "\"; give the folder rollouts/ of a run, or verl's "
                        "trainer.rollout_data_dir");
        return row[name].get<std::string>();
      };
      const std::string input = text("input");
      const uint32_t prompt =
          prompts_.try_emplace(input, static_cast<uint32_t>(prompts_.size())).first->second;
      std::vector<int32_t> tokens = tokenizer_.encode(text("output"));
      TLT_CHECK_INPUT(!tokens.empty(), reader.place(), ": the response has no tokens");
      ResponseDrafts drafts(tokens.size());
      step.push_back({.id = {prompt, samples[prompt]++},
                      .prompt = tokenizer_.encode(input),
                      .tokens = std::move(tokens),
                      .drafts = std::move(drafts)});
    }
    return step;
  }

  // Records the drafts after `position` tokens. False: no response has more.
  bool draft(std::vector<Response>& step, size_t position) {
    requests_.clear();
    drafted_.clear();
    for (Response& it : step) {
      if (position >= it.tokens.size()) continue;
      requests_.push_back({.id = it.id,
                           .prompt = it.prompt,
                           .response = std::span(it.tokens).first(position),
                           .strategy = strategy_,
                           .tree = &it.tree});
      drafted_.push_back(&it);
    }
    drafter_.propose(requests_);
    for (Response* it : drafted_) {
      if (!it->tree.empty()) record(*it, position);
      if (position + 1 == it->tokens.size()) drafter_.end(it->id, it->tokens);
    }
    return !drafted_.empty();
  }

  static void record(Response& response, size_t position) {
    const std::vector<drafter::DraftNode>& chain = response.tree.nodes();
    const auto above = std::ranges::lower_bound(kAbove, chain.front().probability);
    response.drafts.confidence[position] = static_cast<uint8_t>(above - kAbove.begin());
    response.drafts.tokens[position] = static_cast<uint8_t>(chain.size());
    size_t accepted = 0;
    while (accepted < chain.size() && position + accepted < response.tokens.size() &&
           chain[accepted].token == response.tokens[position + accepted])
      ++accepted;
    response.drafts.accepted[position] = static_cast<uint8_t>(accepted);
  }

  // The drafts of decoding in which each one is verified whole.
  void count(const ResponseDrafts& drafts) {
    const size_t length = drafts.tokens.size();
    for (size_t position = 1; position < length;) {
      const int64_t tokens = drafts.tokens[position], accepted = drafts.accepted[position];
      ++steps_;
      if (tokens > 0) {
        ConfidenceCounts& it = counts_[drafts.confidence[position] - 1U];
        ++it.drafts;
        it.first += accepted > 0;
        if (accepted > 0) {
          it.later += accepted - 1;
          // Accepted ones, and the one that is not.
          const int64_t left = static_cast<int64_t>(length - position);
          it.later_tried += std::min({accepted + 1, tokens, left}) - 1;
        }
      }
      position += static_cast<size_t>(accepted) + 1;
    }
    tokens_ += static_cast<int64_t>(length);
    decoded_ += static_cast<int64_t>(length) - 1;
  }

  const tokenizer::Tokenizer& tokenizer_;
  const drafter::Strategy strategy_;
  drafter::SuffixDrafter drafter_{drafter::SuffixOptions{}};
  std::map<std::string, uint32_t> prompts_;  // ids by text
  std::vector<ResponseDrafts> drafts_;
  std::array<ConfidenceCounts, kAbove.size()> counts_ = {};
  int64_t tokens_ = 0;
  int64_t steps_ = 0, decoded_ = 0;  // engine steps of sequences, and the tokens that they give
  // Scratch of draft().
  std::vector<drafter::DraftRequest> requests_;
  std::vector<Response*> drafted_;
};

}  // namespace

int run_suffix(const cli::Arguments& arguments) {
  SuffixFlags flags;
  CLI::App app(
      "The drafts that suffix lookup has in given responses, each the most probable chain of "
      "tokens.\n"
      "`confidences`, by the probability of the first token: the share of the sequences that have\n"
      "such a draft in an engine step, and how often its first token is accepted, and a later one\n"
      "after accepted ones, if every draft is verified.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(flags.depth >= 1 && flags.depth <= kMostTokens, "--depth is ", flags.depth,
                  "; give a number from 1 to ", kMostTokens);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(flags.model);
  ResponseDecoder decoder(tokenizer, flags.depth);
  for (const std::string& file : data::find_step_files(flags.rollouts)) decoder.decode(file);
  nlohmann::ordered_json report = {
      {"bench", "suffix"}, {"model", flags.model}, {"rollouts", flags.rollouts}};
  report.update(decoder.summary());
  if (!flags.out.empty()) decoder.write(report, flags.out);
  print_report(report);
  return 0;
}

}  // namespace tlt::bench
