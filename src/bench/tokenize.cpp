// tlt bench tokenize: speed of encoding and decoding text, on one thread.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_lines.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/scenarios.h"
#include "tokenizer/tokenizer.h"

namespace tlt::bench {
namespace {

struct TokenizeFlags {
  std::string model;
  std::vector<std::string> files;
  int64_t repeat = 5;

  void add_to(CLI::App& app) {
    app.add_option("--model", model, "Folder with tokenizer.json.")->required();
    app.add_option("--data", files, "JSONL file; every string of a row is encoded.")->required();
    app.add_option("--repeat", repeat, "Passes over the strings, after a warm-up.");
  }
};

std::vector<std::string> read_texts(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    JsonLinesReader reader(file);
    for (nlohmann::json row; reader.try_next(row);) {
      TLT_CHECK_INPUT(row.is_object(), reader.place(), ": not a JSON object");
      for (const auto& value : row)
        if (value.is_string()) texts.push_back(value.get<std::string>());
    }
  }
  TLT_CHECK_INPUT(!texts.empty(), "--data has no strings; give rows with strings");
  return texts;
}

// Seconds of each pass.
struct Passes {
  std::vector<double> encode, decode;
  int64_t tokens = 0;  // of one pass
};

void pass(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& texts,
          Passes& passes) {
  std::vector<std::vector<int32_t>> tokens(texts.size());
  Stopwatch watch;
  for (size_t i = 0; i < texts.size(); ++i) tokens[i] = tokenizer.encode(texts[i]);
  passes.encode.push_back(watch.restart());
  size_t bytes = 0;
  for (const auto& one : tokens) bytes += tokenizer.decode(one).size();
  passes.decode.push_back(watch.seconds());
  TLT_CHECK(bytes > 0 || tokens.empty());
  passes.tokens = 0;
  for (const auto& one : tokens) passes.tokens += std::ssize(one);
}

}  // namespace

int run_tokenize(const cli::Arguments& arguments) {
  TokenizeFlags flags;
  CLI::App app("Bytes/s of encoding and decoding text, on one thread.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  TLT_CHECK_INPUT(flags.repeat >= 1, "--repeat is ", flags.repeat, "; give at least 1");
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(flags.model);
  const std::vector<std::string> texts = read_texts(flags.files);
  double bytes = 0;
  for (const std::string& text : texts) bytes += static_cast<double>(text.size());

  Passes passes;
  for (int64_t i = 0; i <= flags.repeat; ++i) {
    pass(tokenizer, texts, passes);
    if (i == 0) passes.encode.clear(), passes.decode.clear();
  }
  print_report({{"bench", "tokenize"},
                {"model", flags.model},
                {"threads", 1},
                {"texts", texts.size()},
                {"bytes", static_cast<int64_t>(bytes)},
                {"tokens", passes.tokens},
                {"repeat", flags.repeat},
                {"encode_seconds_p50", median(passes.encode)},
                {"encode_seconds_best", std::ranges::min(passes.encode)},
                {"encode_bytes_per_second", bytes / median(passes.encode)},
                {"decode_seconds_p50", median(passes.decode)},
                {"decode_bytes_per_second", bytes / median(passes.decode)}});
  return 0;
}

}  // namespace tlt::bench
