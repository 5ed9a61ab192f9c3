// DraftExport: rewrites a draft model's folder for the program that will serve it.
//
//   sglang   SGLang's EAGLE classes: what draft_folder.h writes, checked and complete.
//   vllm     EAGLE-3: a folder of vLLM's speculators library. EAGLE-1/2: the format of vLLM's own
//            EAGLE class; vLLM loads no speculators folder of that kind.
//
// Those programs load the tensors they find and silently keep random weights for the rest. So the
// output is checked against a list of required keys and tensors that depends on the sizes only.
//
// Borrows    nothing: the draft model's files stay open, the target's weights are never read.
// Not here   finding a run's draft model; the model card (apps/export.cpp).
// Threading  one thread.
//
//   const DraftExport drafter("runs/a/drafter", "Qwen2.5-7B", {.format = DraftFormat::kVllm});
//   drafter.write(folder);
//   drafter.check(folder);             // throws Error if something required is missing
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafter/files/draft_eagle3_config.h"
#include "drafter/files/draft_tensors.h"
#include "model/model_config.h"

namespace tlt::drafter {

enum class DraftFormat { kSglang, kVllm };

struct DraftExportOptions {
  DraftFormat format = DraftFormat::kSglang;
  std::string target_name;         // vllm: name or path of the target
  int64_t speculative_tokens = 5;  // vllm: draft tokens per step
  int64_t hot_tokens = 0;          // sglang, EAGLE-1/2: rows of the LM head that are used; 0: all
};

class DraftExport {
 public:
  // Throws InputError if the folder is not a draft model's, lacks a tensor or was made for another
  // target, and if the program does not support this draft model.
  DraftExport(const std::string& drafter_folder, const std::string& target_folder,
              const DraftExportOptions& options);

  std::string_view algorithm() const { return is_eagle3_ ? "eagle3" : "eagle"; }
  int64_t parameters() const;  // trained parameters
  // True if hot_token_id.pt is written.
  bool has_token_map() const { return !hot_tokens_.empty(); }

  // Writes config.json, model.safetensors and, if there is one, the token map.
  void write(const std::string& folder) const;
  // Reads config.json and the names and shapes of the weights. Throws Error that names what is
  // missing, has another shape or should not be there.
  void check(const std::string& folder) const;

 private:
  struct Required {
    std::string plain;  // name in the source …
    std::string name;   // … and in the export
    std::vector<int64_t> shape;
    std::optional<model::DataType> type;  // none: the type of the weights
  };

  void read_config(const std::string& drafter_folder, const std::string& target_folder);
  void list_tensors();
  void require(const std::string& plain, std::vector<int64_t> shape,
               std::optional<model::DataType> type = std::nullopt);
  void check_source(const std::string& drafter_folder) const;
  std::vector<model::TensorSource> tensors() const;
  nlohmann::json config() const { return is_for_vllm() ? vllm_config() : sglang_config(); }
  nlohmann::json sglang_config() const;
  nlohmann::json vllm_config() const;
  nlohmann::json llama_config() const;
  bool is_for_vllm() const { return options_.format == DraftFormat::kVllm; }

  const DraftExportOptions options_;
  bool is_eagle3_ = false;
  model::ModelConfig layer_, target_;
  Eagle3Config eagle3_;               // if it is one
  std::vector<int32_t> head_tokens_;  // EAGLE-3
  std::vector<int32_t> hot_tokens_;   // ascending
  std::vector<Required> required_;    // in the order they are written
  std::unique_ptr<DraftTensors> source_;
  model::DataType type_ = model::DataType::kBF16;
};

}  // namespace tlt::drafter
