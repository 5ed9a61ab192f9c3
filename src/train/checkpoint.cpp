// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "base/log.h"
#include "model/safetensors.h"

namespace tlt::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kOptimizer = "state/optimizer.safetensors";
constexpr const char* kLoop = "state/loop.json";
constexpr const char* kWithinStep = "unfinished_update";
constexpr int64_t kMaxJsonBytes = int64_t{16} << 20;

std::string name_of(int64_t step) { return fmt::format("step_{:06}", step); }

// Steps of the checkpoints in a folder, newest first.
std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step_", 0) != 0 || name.size() < 6 || name.size() > 20 ||
        name.find_first_not_of("0123456789", 5) != std::string::npos)
      continue;
    steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// The files below `folder`, as paths from there.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder).string());
  std::sort(files.begin(), files.end());
  return files;
}

void write_manifest(const std::string& folder) {
  nlohmann::ordered_json files;
  for (const std::string& file : files_below(folder))
    files[file] = {{"bytes", fs::file_size(folder + "/" + file)},
                   {"sha256", sha256_of_file(folder + "/" + file)}};
  write_file_atomic(folder + "/" + kManifest,
                    nlohmann::ordered_json{{"files", files}}.dump(1) + "\n");
}

// Empty when all files are what the manifest says and the state is of this step, else what is
// wrong.
std::string find_fault(const std::string& folder, int64_t step) {
  const char* reading = kManifest;
  try {
    const auto manifest = nlohmann::json::parse(read_file(folder + "/" + kManifest, kMaxJsonBytes));
    const auto& files = manifest.at("files");
    for (const char* needed : {kOptimizer, kLoop})
      if (!files.contains(needed)) return fmt::format("{} is not listed", needed);
    for (const auto& [file, facts] : files.items()) {
      const std::string path = folder + "/" + file;
      std::error_code error;
      const auto bytes = fs::file_size(path, error);
      if (error) return file + " is missing";
      if (bytes != json_count<uint64_t>(facts, "bytes")) return file + " has another size";
      if (sha256_of_file(path) != facts.at("sha256").get<std::string>())
        return file + " has another checksum";
    }
    reading = kLoop;
    const auto loop = nlohmann::json::parse(read_file(folder + "/" + kLoop, kMaxJsonBytes));
    if (const int64_t of = json_count(loop, "step", step); of != step)
      return fmt::format("{} is of step {}", kLoop, of);
    return "";
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("{}: {}", reading, json_fault(error));
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, int64_t keep, int64_t resumed_from)
    : folder_(std::move(folder)), keep_(keep), resumed_from_(resumed_from), writer_(1) {}

void CheckpointWriter::save(int64_t step, CheckpointParts parts) {
  push(std::move(parts),
       [this, step](const CheckpointParts& copied) { write_whole(step, copied); });
}

void CheckpointWriter::save_within_step(CheckpointParts parts) {
  push(std::move(parts), [this](const CheckpointParts& copied) { write(kWithinStep, copied); });
}

void CheckpointWriter::push(CheckpointParts parts,
                            std::function<void(const CheckpointParts&)> write) {
  TLT_CHECK(parts.texts.contains(kLoopText));
  // Shared, so that the job can be copied.
  writer_.push([write = std::move(write),
                shared = std::make_shared<CheckpointParts>(std::move(parts))] { write(*shared); });
}

void CheckpointWriter::write(const std::string& name, const CheckpointParts& parts) const {
  AtomicFolder checkpoint(folder_ + "/" + name);
  make_folder(checkpoint.path() + "/state");
  for (const auto& write_files : parts.files) write_files(checkpoint.path());
  model::write_safetensors(checkpoint.path() + "/" + kOptimizer, parts.optimizer);
  for (const auto& [file, text] : parts.texts)
    write_file_atomic(checkpoint.path() + "/state/" + file, text);
  write_manifest(checkpoint.path());
  checkpoint.commit();
}

void CheckpointWriter::write_whole(int64_t step, const CheckpointParts& parts) {
  const std::string name = name_of(step);
  write(name, parts);
  write_file_atomic(folder_ + "/latest", name + "\n");
  fs::remove_all(folder_ + "/" + kWithinStep);
  written_.insert(step);
  delete_old();
}

void CheckpointWriter::delete_old() {
  if (keep_ == 0) return;
  std::vector<int64_t> ours = steps_in(folder_);
  std::erase_if(ours,
                [&](int64_t step) { return step > resumed_from_ && !written_.contains(step); });
  for (size_t i = static_cast<size_t>(keep_); i < ours.size(); ++i)
    fs::remove_all(folder_ + "/" + name_of(ours[i]));
}

std::optional<CheckpointPlace> find_latest(const std::string& folder) {
  const std::vector<int64_t> steps = steps_in(folder);
  for (const int64_t step : steps) {
    const CheckpointPlace place = place_of(folder, step);
    const std::string fault = find_fault(place.folder, step);
    if (fault.empty()) return place;
    log_warning("{} is broken ({}); looking for the checkpoint before it", place.folder, fault);
  }
  TLT_CHECK_INPUT(steps.empty(), folder,
                  ": every checkpoint is broken; set trainer.resume_mode=disable to move this run "
                  "aside and start again");
  return std::nullopt;
}

std::optional<CheckpointPlace> find_within_step(const std::string& folder,
                                                const std::string& options, int64_t total_steps) {
  const std::string path = folder + "/" + kWithinStep;
  if (!fs::exists(path)) return std::nullopt;
  int64_t step = -1;
  std::string fault;
  try {
    const auto loop = nlohmann::json::parse(read_file(path + "/" + kLoop, kMaxJsonBytes));
    step = json_count(loop, "step");
    fault = find_fault(path, step);
    if (fault.empty() && read_text(place_within_step(folder, step), kOptionsText) != options)
      fault = "it is of other options";
    if (fault.empty() && step >= total_steps) fault = "its step is after the last one";
  } catch (const nlohmann::json::exception& error) {
    fault = fmt::format("{}: {}", kLoop, json_fault(error));
  } catch (const std::exception& error) {
    fault = error.what();
  }
  if (fault.empty()) return place_within_step(folder, step);
  log_warning("{} is not used ({}); resuming from the last whole step", path, fault);
  return std::nullopt;
}

CheckpointPlace place_of(const std::string& folder, int64_t step) {
  return {folder + "/" + name_of(step), step};
}

CheckpointPlace place_within_step(const std::string& folder, int64_t steps_done) {
  return {folder + "/" + kWithinStep, steps_done, /*is_within_step=*/true};
}

std::string manifest_digest(const CheckpointPlace& place) {
  const std::string path = place.folder + "/" + kManifest;
  return fs::exists(path) ? sha256(read_file(path, kMaxJsonBytes)) : "";
}

std::optional<std::string> read_text(const CheckpointPlace& place, const std::string& name) {
  const std::string path = place.folder + "/state/" + name;
  if (!fs::exists(path)) return std::nullopt;
  return read_file(path, kMaxJsonBytes);
}

void load_checkpoint(const CheckpointPlace& place, Optimizer& optimizer, int64_t optimizer_steps) {
  load_optimizer(place.folder + "/" + kOptimizer, optimizer, optimizer_steps);
}

void load_optimizer(const std::string& path, Optimizer& optimizer, int64_t optimizer_steps) {
  model::SafetensorsFile file(path);
  std::vector<model::TensorSource> state;
  for (const model::TensorEntry& entry : file.index().entries)
    state.push_back({entry.name,
                     entry.type == model::DataType::kF32 ? at::kFloat : at::ScalarType::Undefined,
                     entry.shape, [&] { return file.read(entry); }});
  optimizer.load(state, optimizer_steps);
}

}  // namespace tlt::train
