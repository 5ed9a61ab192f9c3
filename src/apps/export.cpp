// tlt export: exports a run's draft model for other programs.
//
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <set>

#include "apps/commands.h"
#include "apps/drafter_card.h"
#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/find_model.h"
#include "drafter/files/draft_export.h"
#include "model/safetensors.h"

namespace tlt::apps {
namespace {

namespace fs = std::filesystem;

struct ExportFlags {
  std::string source, target, target_name, format, out;
  int64_t speculative_tokens = 5, hot_tokens = 32768;

  void add_to(CLI::App& app) {
    app.option_defaults()->always_capture_default();
    app.add_option(
           "SOURCE", source,
           "A run folder (the draft model of its newest checkpoint) or a draft model's folder.")
        ->required();
    app.add_option("--target", target,
                   "Hugging Face folder of the target model it was trained for.")
        ->required();
    app.add_option("--format", format, "sglang or vllm.")->required();
    app.add_option("--out", out, "New folder to write.")->required();
    app.add_option("--target-name", target_name,
                   "Name of the target for servers; by default the folder of --target.");
    app.add_option("--speculative-tokens", speculative_tokens,
                   "vllm, EAGLE-3: default number of draft tokens of the server.");
    app.add_option(
        "--hot-tokens", hot_tokens,
        "sglang, EAGLE-1/2: limit drafting to this number of most frequent tokens, if the "
        "draft model's folder counts them; 0: all.");
  }
  void check() const {
    TLT_CHECK_INPUT(format == "sglang" || format == "vllm", "--format is '", format,
                    "'; use sglang or vllm");
    TLT_CHECK_INPUT(speculative_tokens >= 1 && speculative_tokens <= 64, "--speculative-tokens is ",
                    speculative_tokens, "; give a number from 1 to 64");
    TLT_CHECK_INPUT(hot_tokens >= 0, "--hot-tokens is ", hot_tokens, "; give 0 or more");
    check_is_new();
  }
  void check_is_new() const {
    TLT_CHECK_INPUT(!fs::exists(out), out, ": already exists; give a new folder with --out");
  }
  drafter::DraftExportOptions options() const {
    return {
        .format = format == "vllm" ? drafter::DraftFormat::kVllm : drafter::DraftFormat::kSglang,
        .target_name = target_name.empty() ? target : target_name,
        .speculative_tokens = speculative_tokens,
        .hot_tokens = hot_tokens};
  }
};

// The folder of a draft model, and the run that trained it.
struct Found {
  std::string folder, run;
  int64_t step = -1;
};

// The run is known if the folder is <run>/drafter.
Found as_drafter_folder(const fs::path& folder) {
  fs::path absolute = fs::absolute(folder).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  const fs::path run = absolute.parent_path();
  return {folder.string(), fs::exists(run / "metrics.jsonl") ? run.string() : ""};
}

Found find_drafter(const std::string& source) {
  if (fs::exists(fs::path(source) / "config.json")) return as_drafter_folder(source);
  const auto drafter = cli::find_in_run(source, "drafter");
  TLT_CHECK_INPUT(
      drafter, source,
      ": no draft model (config.json, checkpoints/ or drafter/) in this folder; give a draft "
      "model's folder, or the folder of a run of tlt draft or of tlt train with eagle");
  if (drafter->step < 0) return as_drafter_folder(drafter->folder);
  return {drafter->folder, source, drafter->step};
}

std::vector<std::pair<std::string, std::string>> checksums_of(const std::string& target) {
  const model::SafetensorsFolder weights(target);
  std::set<std::string> files;
  for (const std::string& name : weights.names()) files.insert(weights.file_of(name));
  std::vector<std::pair<std::string, std::string>> sums;
  for (const std::string& file : files)
    sums.emplace_back(fs::path(file).filename().string(), sha256_of_file(file));
  return sums;
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

int run_export_drafter(const cli::Arguments& arguments) {
  ExportFlags flags;
  CLI::App app("Exports a trained draft model for SGLang or vLLM, checked, with a model card.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.out = without_slash(flags.out);
  flags.check();

  const Found found = find_drafter(flags.source);
  const drafter::DraftExportOptions options = flags.options();
  const drafter::DraftExport drafter(found.folder, flags.target, options);
  const std::string card = drafter_card({.algorithm = std::string(drafter.algorithm()),
                                         .format = options.format,
                                         .parameters = drafter.parameters(),
                                         .has_token_map = drafter.has_token_map(),
                                         .name = fs::path(flags.out).filename().string(),
                                         .target_name = options.target_name,
                                         .target_files = checksums_of(flags.target),
                                         .run = without_slash(found.run),
                                         .step = found.step});
  AtomicFolder folder(flags.out);
  drafter.write(folder.path());
  write_file_atomic(folder.path() + "/README.md", card);
  drafter.check(folder.path());
  flags.check_is_new();  // commit() would replace what has appeared there since
  folder.commit();
  log_info("{}: {} draft model of {:.2f} M parameters, from {}", flags.out, drafter.algorithm(),
           static_cast<double>(drafter.parameters()) / 1e6, found.folder);
  return 0;
}

constexpr cli::Command kThings[] = {
    {"drafter", "A trained draft model, for SGLang or vLLM.", run_export_drafter},
};

}  // namespace

int run_export(const cli::Arguments& arguments) { return cli::run_command(kThings, arguments); }

}  // namespace tlt::apps
