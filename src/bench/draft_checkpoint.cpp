// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>

#include "base/atomic_folder.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/statistics.h"
#include "bench/bench.h"
#include "bench/draft.h"
#include "drafter/files/draft_folder.h"
#include "train/checkpoint.h"

namespace tlt::bench {
namespace {

namespace fs = std::filesystem;
using model::TensorSource;

constexpr double kMilliseconds = 1e3;

// Embedding and LM head, as in a draft model that stores its own copies.
std::vector<TensorSource> frozen_part(const drafter::DraftNetwork& network) {
  const model::PolicyModel& target = network.target();
  const int64_t rows = target.config().vocabulary, columns = target.config().hidden;
  std::vector<TensorSource> tensors;
  for (const char* name : {"embed_tokens.weight", "lm_head.weight"})
    tensors.push_back(TensorSource::of(name, at::full({rows, columns}, 0.5, target.type())));
  return tensors;
}

std::vector<TensorSource> copies(const std::vector<TensorSource>& sources) {
  std::vector<TensorSource> out;
  for (const TensorSource& source : sources)
    out.push_back(TensorSource::of(source.name, source.values().clone()));
  return out;
}

int64_t bytes_below(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

class CheckpointBench {
 public:
  CheckpointBench(const drafter::DraftNetwork& network, drafter_training::DraftTrainer& trainer,
                  const std::string& folder)
      : network_(network),
        trainer_(trainer),
        folder_(place_in(folder)),
        frozen_(frozen_part(network)),
        writer_(folder_ + "/checkpoints", /*keep=*/1) {
    make_folder(folder_);
  }
  ~CheckpointBench() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  struct Times {
    std::vector<double> blocked, durable;
    int64_t bytes = 0;
  };

  // Writes everything in the foreground, without copies.
  void block(Times& times) {
    const Stopwatch watch;
    const std::string place = folder_ + "/blocking";
    AtomicFolder folder(place);
    const std::string& unfinished = folder.path();
    drafter::DraftSnapshot all{{{"architectures", {"none"}}}, frozen_};
    for (const TensorSource& tensor : drafter::describe_drafter(network_).tensors)
      all.tensors.push_back(tensor);
    drafter::save_drafter(all, unfinished + "/drafter");
    std::vector<TensorSource> state;
    for (const auto& [name, tensor] : trainer_.optimizer().state())
      state.push_back(TensorSource::of(name, tensor));
    model::write_safetensors(unfinished + "/optimizer.safetensors", state);
    std::string sums;
    for (const auto& entry : fs::recursive_directory_iterator(unfinished))
      if (entry.is_regular_file()) sums += sha256_of_file(entry.path().string()) + "\n";
    write_file_atomic(unfinished + "/MANIFEST", sums);
    folder.commit();
    times.blocked.push_back(kMilliseconds * watch.seconds());
    times.durable.push_back(times.blocked.back());
    times.bytes = bytes_below(place);
  }

  void copy(bool is_selective, Times& times) {
    const Stopwatch watch;
    auto snapshot = std::make_shared<drafter::DraftSnapshot>(drafter::snapshot_drafter(network_));
    if (!is_selective)
      for (const TensorSource& tensor : copies(frozen_)) snapshot->tensors.push_back(tensor);
    writer_.save(++step_, {.optimizer = trainer_.optimizer().snapshot(),
                           .texts = {{train::kLoopText, "{}\n"}},
                           .files = {[snapshot](const std::string& to) {
                             drafter::save_drafter(*snapshot, to + "/drafter");
                           }}});
    snapshot.reset();
    times.blocked.push_back(kMilliseconds * watch.seconds());
    writer_.drain();
    times.durable.push_back(kMilliseconds * watch.seconds());
    times.bytes = bytes_below(folder_ + "/checkpoints");
  }

  // The newest complete checkpoint has the optimizer's current state.
  void check_last() {
    const auto place = train::find_latest(folder_ + "/checkpoints");
    TLT_CHECK(place && place->step == step_, "the last checkpoint is missing");
    model::SafetensorsFile file(place->folder + "/state/optimizer.safetensors");
    for (const auto& [name, tensor] : trainer_.optimizer().state())
      TLT_CHECK(at::equal(file.read(name), tensor), name, " reads back with other values");
  }

 private:
  static std::string place_in(const std::string& folder) {
    return folder + "/tlt_bench_" + std::to_string(getpid());
  }

  const drafter::DraftNetwork& network_;
  drafter_training::DraftTrainer& trainer_;
  const std::string folder_;
  const std::vector<TensorSource> frozen_;
  train::CheckpointWriter writer_;
  int64_t step_ = 0;
};

}  // namespace

nlohmann::ordered_json measure_checkpoints(const drafter::DraftNetwork& network,
                                           drafter_training::DraftTrainer& trainer,
                                           const std::string& folder, int64_t repeat) {
  CheckpointBench bench(network, trainer, folder);
  CheckpointBench::Times blocking, full, selective;
  for (int64_t i = 0; i <= repeat; ++i) {
    if (i == 1) blocking = full = selective = {};  // the first round is a warm-up
    bench.block(blocking);
    bench.copy(/*is_selective=*/false, full);
    bench.copy(/*is_selective=*/true, selective);
  }
  bench.check_last();
  nlohmann::ordered_json report;
  for (const auto& [name, times] :
       {std::pair("blocking_full", &blocking), std::pair("async_full", &full),
        std::pair("async_selective", &selective)}) {
    report[std::string(name) + "_blocked_ms"] = median(times->blocked);
    report[std::string(name) + "_durable_ms"] = median(times->durable);
    report[std::string(name) + "_bytes"] = times->bytes;
  }
  report["blocked_ratio"] = median(blocking.blocked) / median(selective.blocked);
  return report;
}

}  // namespace tlt::bench
