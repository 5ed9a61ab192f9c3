// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/test_folder.h"

namespace tlt::model {
namespace {

using nlohmann::json;

// The RopeConfig of a model with this rope_parameters.
RopeConfig read(const json& rope_parameters) {
  const TestFolder folder;
  std::ofstream(folder / "config.json") << json{{"architectures", {"Qwen2ForCausalLM"}},
                                                {"vocab_size", 100},
                                                {"hidden_size", 256},
                                                {"intermediate_size", 64},
                                                {"num_hidden_layers", 1},
                                                {"num_attention_heads", 4},
                                                {"num_key_value_heads", 4},
                                                {"max_position_embeddings", 131072},
                                                {"rope_parameters", rope_parameters}};
  return ModelConfig::read(folder.path()).rope;
}

TEST(RopeTest, EveryScalingMatchesTransformers) {
  const json golden =
      json::parse(read_file(std::string(TLT_SOURCE_DIR) + "/tests/golden/rope.json", 1 << 20));
  const int64_t size = golden.at("head_size");
  for (const json& setting : golden.at("settings")) {
    const at::Tensor table = rope_table(read(setting.at("rope_parameters")), size, 501);
    for (size_t i = 0; i < golden.at("positions").size(); ++i) {
      const auto* row = table.data_ptr<float>() + golden["positions"][i].get<int64_t>() * size;
      for (size_t j = 0; j < static_cast<size_t>(size) / 2; ++j) {
        EXPECT_NEAR(row[j], setting.at("cos")[i][j].get<double>(), 1e-4)
            << setting.at("rope_parameters") << " position " << i << " angle " << j;
        EXPECT_NEAR(row[static_cast<size_t>(size) / 2 + j], setting.at("sin")[i][j].get<double>(),
                    1e-4)
            << setting.at("rope_parameters") << " position " << i << " angle " << j;
      }
    }
  }
}

}  // namespace
}  // namespace tlt::model
