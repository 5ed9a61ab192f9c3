// SPDX-License-Identifier: Apache-2.0
#include "run/find_checkpoint.h"

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"

namespace tlt::run {
namespace {

constexpr int64_t kNone = -1;

// train::find_latest(). If all whole checkpoints are broken and may be: none.
std::optional<train::CheckpointPlace> find_whole(const std::string& folder, bool may_be_broken) {
  try {
    return train::find_latest(folder);
  } catch (const InputError&) {  // a warning has named each of them
    if (!may_be_broken) throw;
    return std::nullopt;
  }
}

// What rank 0 tells the others.
std::string search(const std::string& folder, const WithinStep& wanted) {
  nlohmann::json told = {{"step", kNone}, {"is_within_step", false}, {"fault", ""}};
  try {
    const auto within = wanted.total_steps == 0
                            ? std::nullopt
                            : train::find_within_step(folder, wanted.options, wanted.total_steps);
    const auto latest = find_whole(folder, /*may_be_broken=*/within.has_value());
    if (latest) told["step"] = latest->step;
    if (within && within->step >= told["step"].get<int64_t>())
      told.update({{"step", within->step}, {"is_within_step", true}});
  } catch (const InputError& error) {
    told["fault"] = error.what();
  }
  return told.dump();
}

}  // namespace

std::optional<train::CheckpointPlace> find_checkpoint(const std::string& folder,
                                                      cluster::Comm& comm,
                                                      const WithinStep& within) {
  std::future<std::string> searched;
  if (comm.rank() == 0) searched = std::async(std::launch::async, search, folder, within);
  std::string text;
  do {  // to check large checkpoints may take longer than a collective
    std::string mine;
    if (searched.valid() && searched.wait_for(std::chrono::seconds(1)) == std::future_status::ready)
      mine = searched.get();
    text = comm.all_gather_bytes(mine).front();
  } while (text.empty());
  const nlohmann::json told = nlohmann::json::parse(text);
  const auto fault = told.at("fault").get<std::string>();
  if (!fault.empty()) throw InputError(fault);
  const auto step = told.at("step").get<int64_t>();
  if (step == kNone) return std::nullopt;
  train::CheckpointPlace place = told.at("is_within_step").get<bool>()
                                     ? train::place_within_step(folder, step)
                                     : train::place_of(folder, step);
  const std::vector<std::string> manifests = comm.all_gather_bytes(train::manifest_digest(place));
  for (size_t rank = 1; rank < manifests.size(); ++rank)
    TLT_CHECK_INPUT(
        manifests[rank] == manifests[0], place.folder, ": rank ", rank,
        " sees another checkpoint there than rank 0, or none; the run folder must be on "
        "a disk that all workers share");
  return place;
}

}  // namespace tlt::run
