// Parsers in files that need libtorch, and so not in the sanitized build: config.json, the index of
// a sharded model, the manifest of a checkpoint, and values of the rendezvous.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/checksum.h"
#include "base/files.h"
#include "cluster/authenticated_store.h"
#include "model/model_config.h"
#include "model/safetensors.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_folder.h"
#include "train/checkpoint.h"

namespace tlt::tests {
namespace {

const std::string kModels = std::string(TLT_SOURCE_DIR) + "/tests/golden/models/";

std::string mutate_tree(Mutator& mutator, const std::string& text, const std::string& other) {
  return mutator.one_in(3) ? mutator.bytes(text, other) : mutator.json(text, other);
}

// Writes the text to the file that the call reads.
FuzzCall with_file(FileHandle& file, const std::function<std::string()>& read) {
  return [&file, read](const std::string& text) {
    file.write_at(0, text);
    file.truncate(std::ssize(text));
    return read();
  };
}

TEST(TorchFilesFuzzTest, ModelConfigsAreReadOrRejected) {
  FuzzPlan plan{.name = "config",
                .dictionary = {"hidden_size", "num_attention_heads", "rope_scaling", "rope_type",
                               "yarn", "llama3", "factor", "eos_token_id", "model_type", "qwen2",
                               "head_dim", "sliding_window", "tie_word_embeddings"},
                .inputs = 6000,
                .mutate = mutate_tree};
  for (const auto& folder : std::filesystem::directory_iterator(kModels))
    plan.corpus.push_back(read_text(folder.path() / "config.json"));
  std::sort(plan.corpus.begin(), plan.corpus.end());
  const TestFolder folder;
  FileHandle file(folder / "config.json", O_RDWR | O_CREAT);
  fuzz(plan, with_file(file, [&] {
         const auto config = model::ModelConfig::read(folder.path());
         config.check("config.json");
         TLT_CHECK(config.parameters() > 0, config.parameters());
         return config.rope.type + std::to_string(static_cast<int>(config.family));
       }));
}

TEST(TorchFilesFuzzTest, ShardIndexesAreReadOrRejected) {
  const TestFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(kModels + "qwen3_sharded"))
    std::filesystem::copy(file.path(), folder / file.path().filename());
  const std::string path = folder / "model.safetensors.index.json";
  const std::string whole = read_text(path);
  FileHandle file(path, O_RDWR | O_CREAT);
  fuzz(
      {.name = "index",
       .corpus = {whole},
       .dictionary = {"weight_map", "metadata", "model-00001-of-00003.safetensors", "..", "/", "."},
       .inputs = 1500,
       .mutate = mutate_tree},
      with_file(file, [&] {
        const model::SafetensorsFolder model(folder.path());
        return std::to_string(model.names().size());
      }));
}

TEST(TorchFilesFuzzTest, ManifestsAreBelievedOnlyWhenTheyAreTrue) {
  const TestFolder folder;
  const std::string checkpoint = folder / "step_000001";
  std::filesystem::create_directories(checkpoint + "/state");
  write_file_atomic(checkpoint + "/state/loop.json", R"({"step": 1})");
  write_file_atomic(checkpoint + "/state/optimizer.safetensors", "moments");
  const std::string whole = R"({"files": {"state/loop.json": {"bytes": 11, "sha256": "LOOP"}, )"
                            R"("state/optimizer.safetensors": {"bytes": 7, "sha256": "MOMENTS"}}})";
  std::string manifest = whole;
  for (const auto& [word, name] :
       {std::pair("LOOP", "loop.json"), {"MOMENTS", "optimizer.safetensors"}})
    manifest.replace(manifest.find(word), std::string(word).size(),
                     sha256_of_file(checkpoint + "/state/" + name));
  FileHandle file(checkpoint + "/MANIFEST.json", O_RDWR | O_CREAT);
  testing::internal::CaptureStderr();  // a warning for each
  fuzz({.name = "manifest",
        .corpus = {manifest},
        .dictionary = {"files", "bytes", "sha256", "state/loop.json", "../", "/dev/zero"},
        .inputs = 3000,
        .mutate = mutate_tree},
       with_file(file, [&] {
         const auto place = train::find_latest(folder.path());
         return std::string(place ? "whole" : "none");
       }));
  testing::internal::GetCapturedStderr();
}

TEST(TorchFilesFuzzTest, OnlySealedValuesOfTheRendezvousAreReturned) {
  const auto raw = c10::make_intrusive<c10d::HashStore>();
  const auto store = cluster::make_authenticated_store(raw, "key", "the rendezvous");
  store->set("name", "a value");
  const std::vector<uint8_t> sealed = raw->get("name");
  const std::string whole(sealed.begin(), sealed.end());
  fuzz({.name = "store", .corpus = {whole}, .dictionary = {"a value"}, .inputs = 20000},
       [&](const std::string& text) {
         raw->set("name", std::vector<uint8_t>(text.begin(), text.end()));
         const std::vector<uint8_t> value = store->get("name");
         TLT_CHECK(text == whole, "a forged value was returned");
         return std::to_string(value.size());
       });
}

}  // namespace
}  // namespace tlt::tests
