// SPDX-License-Identifier: Apache-2.0
#include "warmup/reference_logprobs.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/sealed_file.h"
#include "base/sentence.h"
#include "drafter_training/hidden_store.h"
#include "train/preference_loss.h"
#include "train/trainer.h"
#include "warmup/example_loop.h"

namespace tlt::warmup {
namespace {

constexpr const char* kFile = "/reference_logprobs";
constexpr std::string_view kFirstLine = "tlt reference logprobs 1\n";
constexpr int64_t kMaxFileBytes = int64_t{1} << 36;

// Pairs between two looks for an interrupt, and between two writes of the file.
constexpr int64_t kPairsPerRound = kValidationBatch / 2;
constexpr int64_t kPairsPerWrite = 64 * kPairsPerRound;

uint64_t hash_of(const data::PreferencePair& pair) {
  ByteWriter bytes;
  for (const data::SftExample* example : {&pair.chosen, &pair.rejected}) {
    bytes.list(example->tokens);
    bytes.value(example->response_begin);
    bytes.list(example->weights);
  }
  return std::stoull(sha256(bytes.take()).substr(0, 16), nullptr, 16);
}

// The contents of the file; empty: there is no file, it is damaged, or of other weights.
std::string read_entries(const std::string& path, const std::string& weights) {
  if (!std::filesystem::exists(path)) return "";
  try {
    return read_sealed_file(path, {kFirstLine, kMaxFileBytes}, weights);
  } catch (const std::exception& error) {
    log_warning("{} is not used, and computed again: {}", path, error.what());
    return "";
  }
}

}  // namespace

void ReferenceLogprobs::read(const std::string& run_folder) {
  path_ = run_folder + kFile;
  // All weights: before its first step a run's folder may be taken over by one of another model.
  if (context_.is_first()) weights_ = drafter_training::target_digest(*context_.model);
  const std::string entries = context_.is_first() ? read_entries(path_, weights_) : "";
  const std::string shared = context_.comm->all_gather_bytes(entries).front();
  for (ByteReader in(shared); !in.at_end();) add(in.value<Entry>());
  if (context_.is_first() && size() > 0)
    log_info("reference logprobs of {} are from an earlier start", counted(size(), "pair"));
}

bool ReferenceLogprobs::try_add(int64_t count, const PairAt& pair_at) {
  std::optional<Progress> progress;
  if (context_.is_first()) progress.emplace("reference logprobs, pairs", count);
  int64_t unwritten = 0;
  for (int64_t first = 0; first < count; first += kPairsPerRound) {
    if (context_.anyone_interrupted()) {
      write();
      return false;
    }
    const int64_t end = std::min(count, first + kPairsPerRound);
    std::vector<data::PreferencePair> missing;
    for (int64_t i = first; i < end; ++i)
      if (data::PreferencePair pair = pair_at(i); !places_.contains(hash_of(pair)))
        missing.push_back(std::move(pair));
    compute(missing);
    unwritten += std::ssize(missing);
    if (unwritten >= kPairsPerWrite) {
      write();
      unwritten = 0;
    }
    if (progress) progress->advance(end - first);
  }
  if (unwritten > 0) write();
  return true;
}

// All workers together; each gets all.
void ReferenceLogprobs::compute(const std::vector<data::PreferencePair>& pairs) {
  if (pairs.empty()) return;
  std::vector<train::TrainSample> samples;
  for (const data::PreferencePair& pair : pairs) {
    samples.push_back(to_sample(pair.chosen));
    samples.push_back(to_sample(pair.rejected));
  }
  const auto logprobs = train::score_samples(
      *context_.model, samples, {.max_tokens = options_.actor.max_tokens}, *context_.comm);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Entry entry{
        .pair = hash_of(pairs[i]),
        .chosen = train::response_logprob(samples[2 * i], logprobs[2 * i]).sum,
        .rejected = train::response_logprob(samples[2 * i + 1], logprobs[2 * i + 1]).sum};
    if (!std::isfinite(entry.chosen) || !std::isfinite(entry.rejected))
      throw Error(
          "the logprob of a response under the model of model.path is not finite (data row " +
          std::to_string(pairs[i].chosen.row) + "): its weights are damaged");
    add(entry);
  }
}

void ReferenceLogprobs::add(const Entry& entry) {
  if (places_.emplace(entry.pair, entries_.size()).second) entries_.push_back(entry);
}

void ReferenceLogprobs::write() const {
  if (!context_.is_first() || entries_.empty()) return;
  ByteWriter out;
  for (const Entry& entry : entries_) out.value(entry);
  write_sealed_file(path_, kFirstLine, out.take(), weights_);
}

ReferenceLogprobs::Sums ReferenceLogprobs::of(const data::PreferencePair& pair) const {
  const auto place = places_.find(hash_of(pair));
  TLT_CHECK(place != places_.end(), "no reference logprobs of row ", pair.chosen.row);
  const Entry& entry = entries_[place->second];
  return {entry.chosen, entry.rejected};
}

}  // namespace tlt::warmup
