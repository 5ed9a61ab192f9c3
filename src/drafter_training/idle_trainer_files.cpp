// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/files.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "drafter/files/draft_folder.h"
#include "drafter_training/idle_trainer.h"

namespace tlt::drafter_training {
namespace {

constexpr const char* kDrafterFolder = "/drafter";
constexpr const char* kFrozenFolder = "/state/drafter_frozen";
constexpr const char* kOptimizer = "/state/drafter_optimizer.safetensors";
constexpr int64_t kMaxBufferBytes = int64_t{1} << 36;

std::string buffer_file(const std::string& folder, size_t worker) {
  return fmt::format("{}/state/draft_buffer_{}.bin", folder, worker);
}

constexpr const char* kWayOut = "; delete this checkpoint to resume from the one before";

void add_buffer(const std::string& path, DraftBuffer& buffer) {
  const std::string bytes = read_file(path, kMaxBufferBytes);
  try {
    buffer.add(bytes);
  } catch (const InputError& error) {
    throw InputError(path + ": " + error.what() + kWayOut);
  }
}

}  // namespace

void IdleTrainer::gather_buffers(cluster::Comm& comm) {
  if (options_.save_buffer) gathered_buffers_ = comm.all_gather_bytes(buffer_.save());
}

std::function<void(const std::string& folder)> IdleTrainer::snapshot() {
  const auto drafter =
      std::make_shared<drafter::DraftSnapshot>(drafter::snapshot_drafter(*drafter_));
  const auto optimizer = std::make_shared<std::vector<model::TensorSource>>(optimizer_state());
  const auto buffers =
      std::make_shared<std::vector<std::string>>(std::exchange(gathered_buffers_, {}));
  // A frozen copy of a loaded draft model is not saved: it is loaded again.
  const auto frozen = freeze_after_.value_or(0) > 0 ? frozen_ : nullptr;
  return [drafter, optimizer, buffers, frozen](const std::string& folder) {
    drafter::save_drafter(*drafter, folder + kDrafterFolder);
    if (frozen) drafter::save_drafter(drafter::describe_drafter(*frozen), folder + kFrozenFolder);
    model::write_safetensors(folder + kOptimizer, *optimizer);
    for (size_t worker = 0; worker < buffers->size(); ++worker)
      write_file_atomic(buffer_file(folder, worker), (*buffers)[worker]);
  };
}

std::string IdleTrainer::save() const {
  return nlohmann::json{{"version", version_},
                        {"optimizer_steps", optimizer_steps()},
                        {"trained_steps", trained_steps_},
                        {"trigger", trigger_.save()},
                        {"idle_seconds", idle_seconds_},
                        {"trained_seconds", trained_seconds_}}
             .dump(1) +
         "\n";
}

void IdleTrainer::resume(const train::CheckpointPlace& checkpoint, const cluster::Comm& comm) {
  const std::optional<std::string> text = train::read_text(checkpoint, kStateFile);
  if (!text || !std::filesystem::exists(checkpoint.folder + kOptimizer)) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    model::SafetensorsFile file(checkpoint.folder + kOptimizer);
    std::vector<std::pair<std::string, at::Tensor>> state;
    for (const auto& [name, tensor] : trainer_.optimizer().state())
      state.emplace_back(name, file.read(name));
    load(state, json_count(json, "optimizer_steps"), json_count(json, "version"));
    trigger_.restore(json.at("trigger"));
    // Checkpoints of earlier versions have neither.
    idle_seconds_ = json.value("idle_seconds", 0.0);
    trained_seconds_ = json.value("trained_seconds", 0.0);
    trained_steps_ = json_count(json, "trained_steps", int64_t{0});
    if (const std::string frozen = checkpoint.folder + kFrozenFolder;
        freeze_after_.value_or(0) > 0 && std::filesystem::exists(frozen)) {
      std::shared_ptr<drafter::DraftNetwork> network = drafter_->copy();
      drafter::load_draft_weights(frozen, *network);
      frozen_ = std::move(network);
    }
    // The buffers of any number of workers, distributed over the present ones.
    for (auto worker = static_cast<size_t>(comm.rank());
         std::filesystem::exists(buffer_file(checkpoint.folder, worker));
         worker += static_cast<size_t>(comm.size()))
      add_buffer(buffer_file(checkpoint.folder, worker), buffer_);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(check_internal::concat(checkpoint.folder, "/state/", kStateFile,
                                            ": not a state of idle training (", json_fault(error),
                                            ")", kWayOut));
  }
}

void IdleTrainer::write_drafter(const std::string& folder) const {
  AtomicFolder drafter(folder);
  drafter::save_drafter(*drafter_, drafter.path());
  drafter.commit();
}

std::vector<model::TensorSource> IdleTrainer::optimizer_state() const {
  return trainer_.optimizer().snapshot();
}

void IdleTrainer::load(const std::vector<std::pair<std::string, at::Tensor>>& state,
                       int64_t optimizer_steps, int64_t version) {
  has_begun_ = false;
  unpublished_tokens_ = 0;
  trainer_.optimizer().load(state, optimizer_steps);
  drafter_->copy_weights(*copy_);
  version_ = version;
}

}  // namespace tlt::drafter_training
