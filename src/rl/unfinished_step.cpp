// SPDX-License-Identifier: Apache-2.0
#include "rl/unfinished_step.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/sealed_file.h"
#include "run/run_identity.h"
#include "train/trained_parameters.h"

namespace tlt::rl {
namespace {

constexpr const char* kFile = "/unfinished_step";
constexpr const char* kFileInCheckpoint = "/state/unfinished_step";
constexpr std::string_view kFirstLine = "tlt unfinished step 4\n";
constexpr int64_t kMaxFileBytes = int64_t{1} << 36;
// Of the weights, some matrices are hashed: a step changes all of them.
constexpr size_t kHashedParameters = 8;
constexpr int64_t kMostElements = int64_t{1} << 24;

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string hash_of(std::span<const data::Prompt> prompts, const SamplingPlan& plan) {
  ByteWriter bytes;
  bytes.value(plan.rl_step);
  for (const data::Prompt& prompt : prompts) {
    bytes.value(prompt.id);
    bytes.list(prompt.tokens);
    bytes.list(prompt.ground_truth);
  }
  return sha256(bytes.take());
}

// Whether the spans are in order and followed by a token that was sampled.
bool are_valid(const rollout::Response& response) {
  int32_t end = 0;
  for (const rollout::TokenSpan& span : response.observed) {
    if (span.begin < end || span.end <= span.begin) return false;
    end = span.end;
  }
  return end == 0 || end < std::ssize(response.tokens);
}

bool are_tokens(std::span<const int32_t> tokens, int64_t vocabulary) {
  return std::ranges::all_of(tokens,
                             [&](int32_t token) { return token >= 0 && token < vocabulary; });
}

// Whether the engine and the update can take these rollouts, whatever is in the file.
bool are_valid(std::span<const run::Rollout> rollouts, std::span<const data::Prompt> prompts,
               const SamplingPlan& plan, int64_t vocabulary) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  return std::ranges::all_of(rollouts, [&](const run::Rollout& rollout) {
    const rollout::Response& response = rollout.response;
    const bool is_finished = response.finish == rollout::FinishReason::kStop ||
                             response.finish == rollout::FinishReason::kLength;
    return rollout.prompt < prompts.size() && response.sample < plan.samples &&
           seen.emplace(rollout.prompt, response.sample).second &&
           response.prompt_id == prompts[rollout.prompt].id && response.rl_step == plan.rl_step &&
           (is_finished
                ? !response.tokens.empty()
                : response.finish == rollout::FinishReason::kCancelled && !rollout.is_scored &&
                      std::ssize(response.tokens) < plan.sampling->max_new_tokens) &&
           std::ssize(response.tokens) <= plan.sampling->max_new_tokens &&
           response.has_statistics() && are_valid(response) &&
           are_tokens(response.tokens, vocabulary) && are_tokens(rollout.own_prompt, vocabulary) &&
           (is_finished || rollout.own_prompt.empty());
  });
}

// An error of ByteReader names a place in the program; to the user, the file is damaged.
void warn_skipped(const std::string& path, const std::exception& error) {
  const bool is_sentence = dynamic_cast<const InputError*>(&error) != nullptr;
  log_warning("{} is skipped, and its responses are decoded again: {}", path,
              is_sentence ? error.what() : "it is damaged");
}

// The same of those that the checkpoint within a step cannot do without.
[[noreturn]] void refuse_required(const std::string& checkpoint, const std::exception& error) {
  const bool is_sentence = dynamic_cast<const InputError*>(&error) != nullptr;
  throw InputError(
      check_internal::concat(checkpoint, kFileInCheckpoint, ": these responses cannot be used (",
                             is_sentence ? error.what() : "they are damaged", "); delete ",
                             checkpoint, " to resume from the checkpoint before it"));
}

}  // namespace

UnfinishedStep::UnfinishedStep(const run::RunOptions& options, const run::RunContext& context,
                               const std::string& run_folder)
    : options_(options), context_(context), path_(run_folder + kFile) {
  if (context_.is_first() && std::filesystem::exists(path_)) {
    try {
      read(path_);
    } catch (const std::exception& error) {
      kept_.clear();
      warn_skipped(path_, error);
    }
  }
  at::Tensor step = at::tensor({kept_step_}, at::kLong);
  context_.comm->broadcast(step, /*root=*/0);
  kept_step_ = step.item<int64_t>();
}

void UnfinishedStep::read(const std::string& path) {
  const std::string bytes = read_sealed_file(path, {kFirstLine, kMaxFileBytes});
  ByteReader in(bytes);
  const auto step = in.value<int64_t>();
  kept_state_ = in.list<std::string>();
  while (!in.at_end()) {
    Batch& batch = kept_.emplace_back();
    batch.prompts = in.list<std::string>();
    batch.rollouts = in.list<std::string>();
  }
  kept_step_ = step;
}

void UnfinishedStep::require(const train::CheckpointPlace& checkpoint) {
  required_ = checkpoint.folder;
  kept_step_ = checkpoint.step;
  if (!context_.is_first()) return;
  kept_.clear();
  const std::string path = checkpoint.folder + kFileInCheckpoint;
  try {
    read(path);
    TLT_CHECK_INPUT(kept_step_ == checkpoint.step, "it is of another step");
  } catch (const std::exception& error) {
    refuse_required(checkpoint.folder, error);
  }
}

void UnfinishedStep::begin(int64_t steps_done) {
  steps_done_ = steps_done;
  batch_ = 0;
  has_rollouts_ = false;
  batches_.clear();
}

std::vector<run::Rollout> UnfinishedStep::known(std::span<const data::Prompt> prompts,
                                                const SamplingPlan& plan) {
  if (kept_step_ != steps_done_) return {};
  std::string bytes;
  if (context_.is_first() && batch_ < kept_.size()) bytes = try_known(prompts, plan);
  TLT_CHECK_INPUT(!context_.is_first() || required_.empty() || !bytes.empty(), required_,
                  kFileInCheckpoint, ": too few responses; delete ", required_,
                  " to resume from the checkpoint before it");
  ++batch_;
  return run::unpack(context_.comm->all_gather_bytes(bytes).front());
}

// The packed rollouts of the batch in the file; empty: they do not fit.
std::string UnfinishedStep::try_known(std::span<const data::Prompt> prompts,
                                      const SamplingPlan& plan) {
  const Batch& batch = kept_[batch_];
  try {
    TLT_CHECK_INPUT(batch_ > 0 || kept_state_ == hash_of_state(),
                    "it is of other weights or options");
    TLT_CHECK_INPUT(batch.prompts == hash_of(prompts, plan), "it is of other prompts");
    const std::vector<run::Rollout> rollouts = run::unpack(batch.rollouts);
    TLT_CHECK_INPUT(are_valid(rollouts, prompts, plan, context_.model->config().vocabulary),
                    "it has no rollouts of this step");
    const auto finished = std::ranges::count_if(rollouts, [](const run::Rollout& rollout) {
      return rollout.response.finish != rollout::FinishReason::kCancelled;
    });
    TLT_CHECK_INPUT(required_.empty() || (finished == std::ssize(prompts) * plan.samples &&
                                          std::ranges::all_of(rollouts, &run::Rollout::is_scored)),
                    "some are missing");
    log_info("step {}: {} of {} responses are from before the interruption, and {} continue",
             steps_done_ + 1, finished, std::ssize(prompts) * plan.samples,
             std::ssize(rollouts) - finished);
    return batch.rollouts;
  } catch (const std::exception& error) {
    if (!required_.empty()) refuse_required(required_, error);
    warn_skipped(path_, error);
    kept_.clear();
    return {};
  }
}

void UnfinishedStep::add(std::span<const data::Prompt> prompts, const SamplingPlan& plan,
                         const std::vector<run::Rollout>& rollouts) {
  has_rollouts_ = true;
  if (!context_.is_first()) return;
  batches_.push_back({.prompts = hash_of(prompts, plan), .rollouts = run::pack(rollouts)});
}

void UnfinishedStep::save() const {
  if (!context_.is_first()) return;
  try {
    write_sealed_file(path_, kFirstLine, packed());
  } catch (const Error& error) {
    log_warning("the responses of step {} so far are not kept: {}", steps_done_ + 1, error.what());
  }
}

std::function<void(const std::string& folder)> UnfinishedStep::snapshot() const {
  return [bytes = packed()](const std::string& folder) {
    write_sealed_file(folder + kFileInCheckpoint, kFirstLine, bytes);
  };
}

// With the present weights: those that the responses are of, or those of the checkpoint they are
// in.
std::string UnfinishedStep::packed() const {
  ByteWriter out;
  out.value(steps_done_);
  out.list(hash_of_state());
  const auto write = [&](const Batch& batch) {
    out.list(batch.prompts);
    out.list(batch.rollouts);
  };
  std::ranges::for_each(batches_, write);
  if (kept_step_ == steps_done_ && batches_.size() < kept_.size())
    std::ranges::for_each(std::span(kept_).subspan(batches_.size()), write);  // not reached
  return out.take();
}

void UnfinishedStep::finish() {
  required_.clear();
  has_rollouts_ = false;
  batches_.clear();
  if (kept_step_ < 0 || kept_step_ > steps_done_) return;
  kept_step_ = -1;
  kept_.clear();
  std::error_code error;
  if (context_.is_first()) std::filesystem::remove(path_, error);
}

std::string UnfinishedStep::hash_of_state() const {
  Sha256 hash;
  const run::RunIdentity identity = run::identify("train", options_);
  hash.update(identity.model + "\n" + identity.options);
  const std::vector<model::Parameter>& all =
      train::trained_parameters(*context_.model, context_.adapter.get());
  const size_t stride = std::max<size_t>(1, all.size() / kHashedParameters);
  for (size_t i = 0; i < all.size(); i += stride) {
    const model::Parameter::Part& part = all[i].parts.front();
    if (c10::multiply_integers(all[i].shape(part)) > kMostElements) continue;
    hash.update(bytes_of(all[i].read(context_.device, part).cpu().contiguous()));
  }
  return hash.hex();
}

}  // namespace tlt::rl
