// SPDX-License-Identifier: Apache-2.0
#include "drafter/files/draft_eagle3_folder.h"

#include <ATen/ATen.h>

#include <numeric>

#include "base/check.h"
#include "drafter/files/draft_tensors.h"
#include "model/parameter_file.h"

namespace tlt::drafter {
namespace {

std::string plain_eagle3_name(std::string name) {
  if (name.starts_with("model.")) name.erase(0, std::string_view("model.").size());
  if (name.starts_with("layers.0."))
    name.replace(0, std::string_view("layers.0.").size(), "midlayer.");
  return name;
}

void check_other_of_eagle3(DraftTensors& tensors, const std::string& plain,
                           const model::ModelConfig& config) {
  if (plain == "d2t" || plain == "t2d" || plain.ends_with("rotary_emb.inv_freq")) return;
  if (plain == "fc.bias") return tensors.check_zero_bias(plain);
  if (plain == "embed_tokens.weight") return tensors.check_embedding(plain, config);
  tensors.refuse(plain,
                 " is not in an EAGLE-3 draft model; the weights do not belong to this "
                 "config.json");
}

// Reads an integer tensor [n] as int64.
at::Tensor read_numbers(DraftTensors& tensors, const std::string& plain, int64_t n) {
  const at::Tensor values = tensors.read(plain);
  if (values.dim() != 1 || values.size(0) != n || at::isFloatingType(values.scalar_type()))
    tensors.refuse(plain, " must be " + std::to_string(n) + " integers");
  return values.to(at::kLong).contiguous();
}

// d2t holds differences: row r is token r + d2t[r].
std::vector<int32_t> read_tokens(DraftTensors& tensors, const Eagle3Config& config,
                                 const std::string& folder) {
  const int64_t rows = config.head_rows, vocabulary = config.layer.vocabulary;
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  std::iota(tokens.begin(), tokens.end(), 0);
  if (!tensors.has("d2t")) {
    TLT_CHECK_INPUT(rows == vocabulary, folder, ": no tensor d2t, which has the tokens of the ",
                    rows, " rows of lm_head.weight");
    return tokens;
  }
  const at::Tensor differences = read_numbers(tensors, "d2t", rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = row + differences.data_ptr<int64_t>()[row];
    const int64_t before = row > 0 ? tokens[static_cast<size_t>(row - 1)] : -1;
    if (token <= before || token >= vocabulary)
      tensors.refuse("d2t", " says that row " + std::to_string(row) + " is token " +
                                std::to_string(token) + " after token " + std::to_string(before) +
                                "; tokens must ascend and be below vocab_size " +
                                std::to_string(vocabulary));
    tokens[static_cast<size_t>(row)] = static_cast<int32_t>(token);
  }
  return tokens;
}

at::Tensor is_drafted(const std::vector<int32_t>& tokens, int64_t vocabulary) {
  at::Tensor mask = at::zeros({vocabulary}, at::kBool);
  for (const int32_t token : tokens) mask.data_ptr<bool>()[token] = true;
  return mask;
}

void check_mask(DraftTensors& tensors, const std::vector<int32_t>& tokens, int64_t vocabulary) {
  if (!tensors.has("t2d")) return;
  const at::Tensor mask = read_numbers(tensors, "t2d", vocabulary).to(at::kBool);
  if (!at::equal(mask, is_drafted(tokens, vocabulary)))
    tensors.refuse("t2d", " does not mark the tokens that d2t names");
}

}  // namespace

std::vector<int32_t> read_head_tokens(DraftTensors& tensors, const Eagle3Config& config,
                                      const std::string& folder) {
  std::vector<int32_t> tokens = read_tokens(tensors, config, folder);
  check_mask(tensors, tokens, config.layer.vocabulary);
  return tokens;
}

std::vector<model::TensorSource> head_token_tensors(const std::vector<int32_t>& tokens,
                                                    int64_t vocabulary) {
  const at::Tensor differences = at::tensor(tokens, at::kLong) - at::arange(std::ssize(tokens));
  return {model::TensorSource::of("d2t", differences),
          model::TensorSource::of("t2d", is_drafted(tokens, vocabulary))};
}

std::unique_ptr<Eagle3Network> load_eagle3(const std::string& folder,
                                           const model::PolicyModel& target) {
  auto network =
      std::make_unique<Eagle3Network>(target, Eagle3Config::read(folder, target.config()));
  load_eagle3_weights(folder, *network);
  return network;
}

void load_eagle3_weights(const std::string& folder, Eagle3Network& network) {
  const Eagle3Config& config = network.eagle3_config();
  DraftTensors tensors(folder, plain_eagle3_name);
  tensors.load(network.device(), network.parameters(), [&](const std::string& plain) {
    check_other_of_eagle3(tensors, plain, config.layer);
  });
  network.set_head_tokens(read_head_tokens(tensors, config, folder));
}

model::PolicySnapshot describe_eagle3(const Eagle3Network& network) {
  nlohmann::json config = network.config().source;
  TLT_CHECK(config.is_object(), "a draft model without a config.json cannot be saved");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] =
      network.type() == at::kFloat ? "float32" : "bfloat16";
  model::PolicySnapshot snapshot{config, model::sources_of(network.device(), network.parameters())};
  for (const model::TensorSource& tensor :
       head_token_tensors(network.head_tokens(), network.config().vocabulary))
    snapshot.tensors.push_back(tensor);
  return snapshot;
}

}  // namespace tlt::drafter
