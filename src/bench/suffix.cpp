// tlt bench suffix: how many tokens suffix lookup finds in given responses.
//
// Speculation changes no token, so a draft token is accepted where it is the response's next one.
// The responses of each RL step are decoded again side by side, with a draft of each in every
// engine step. So the drafts are known also where a run did not speculate, and for the responses
// of other programs.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/json_lines.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "data/data_files.h"
#include "drafter/suffix/suffix_drafter.h"
#include "tokenizer/tokenizer.h"

namespace tlt::bench {
namespace {

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
                   "Writes the tokens of each response: bench_suffix of tlt simulate.");
    app.add_option("--depth", depth, "Tokens of a draft at most.");
  }
};

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

class ResponseDecoder {
 public:
  // `out`: a file for the tokens; empty: none.
  ResponseDecoder(const tokenizer::Tokenizer& tokenizer, int64_t depth, const std::string& out)
      : tokenizer_(tokenizer), strategy_{depth, 1, depth + 1} {
    if (!out.empty()) out_ = std::make_unique<JsonLinesWriter>(out);
  }

  // The responses of an RL step.
  void decode(const std::string& file) {
    std::vector<Response> step = read(file);
    while (decode(step)) {
    }
    drafter_.new_weights();
    if (!out_) return;
    for (const Response& it : step)
      out_->write(nlohmann::ordered_json{{"prompt", it.prompt}, {"response", it.tokens}});
    out_->flush();
  }

  nlohmann::ordered_json summary() const {
    return {{"responses", responses_},
            {"tokens", tokens_},
            {"draft_rate", share(drafts_, steps_)},
            {"accept_rate_pos_1", share(first_, drafts_)},
            {"accept_length", share(decoded_, steps_)}};
  }

 private:
  struct Response {
    drafter::SequenceId id;
    std::vector<int32_t> prompt, tokens;
    size_t generated = 1;  // the prompt's forward pass gives the first token
    drafter::DraftTree tree = {};

    std::span<const int32_t> left() const { return std::span(tokens).subspan(generated); }
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
      ++responses_, tokens_ += std::ssize(tokens);
      step.push_back({.id = {prompt, samples[prompt]++},
                      .prompt = tokenizer_.encode(input),
                      .tokens = std::move(tokens)});
    }
    return step;
  }

  // An engine step: a draft of each response, verified whole. False: all are finished.
  bool decode(std::vector<Response>& step) {
    requests_.clear();
    decoding_.clear();
    for (Response& it : step) {
      if (it.left().empty()) continue;
      requests_.push_back({.id = it.id,
                           .prompt = it.prompt,
                           .response = std::span(it.tokens).first(it.generated),
                           .strategy = strategy_,
                           .tree = &it.tree});
      decoding_.push_back(&it);
    }
    drafter_.propose(requests_);
    for (Response* it : decoding_) {
      accept(*it);
      if (it->left().empty()) drafter_.end(it->id, it->tokens);
    }
    return !decoding_.empty();
  }

  // The accepted tokens, and the target's own one after them.
  void accept(Response& response) {
    const std::vector<drafter::DraftNode>& chain = response.tree.nodes();
    const std::span<const int32_t> left = response.left();
    const auto differ = std::ranges::mismatch(chain, left, {}, &drafter::DraftNode::token);
    const auto accepted = static_cast<size_t>(differ.in1 - chain.begin()),
               more = std::min(accepted + 1, left.size());
    response.generated += more;
    ++steps_, decoded_ += static_cast<int64_t>(more);
    drafts_ += chain.empty() ? 0 : 1, first_ += accepted > 0 ? 1 : 0;
  }

  const tokenizer::Tokenizer& tokenizer_;
  const drafter::Strategy strategy_;
  drafter::SuffixDrafter drafter_{drafter::SuffixOptions{}};
  std::unique_ptr<JsonLinesWriter> out_;
  std::map<std::string, uint32_t> prompts_;  // ids by text
  int64_t responses_ = 0, tokens_ = 0;
  int64_t steps_ = 0, decoded_ = 0;  // engine steps of sequences, and the tokens that they give
  int64_t drafts_ = 0, first_ = 0;   // first_: of which the first token is accepted
  // Scratch of decode().
  std::vector<drafter::DraftRequest> requests_;
  std::vector<Response*> decoding_;
};

}  // namespace

int run_suffix(const cli::Arguments& arguments) {
  SuffixFlags flags;
  CLI::App app(
      "How many tokens suffix lookup finds in given responses. Each sequence has the most probable "
      "chain\n"
      "of tokens as its draft in each engine step, and all of it is verified.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(flags.depth >= 1 && flags.depth <= kMostTokens, "--depth is ", flags.depth,
                  "; give a number from 1 to ", kMostTokens);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(flags.model);
  ResponseDecoder decoder(tokenizer, flags.depth, flags.out);
  for (const std::string& file : data::find_step_files(flags.rollouts)) decoder.decode(file);
  nlohmann::ordered_json report = {
      {"bench", "suffix"}, {"model", flags.model}, {"rollouts", flags.rollouts}};
  report.update(decoder.summary());
  print_report(report);
  return 0;
}

}  // namespace tlt::bench
