// SPDX-License-Identifier: Apache-2.0
#include "cli/find_model.h"

#include <gtest/gtest.h>

namespace tlt::cli {
namespace {

TEST(HubCacheTest, IsTheHuggingFaceCache) {
  EXPECT_EQ(hub_cache({{"HOME", "/home/a"}}), "/home/a/.cache/huggingface/hub");
  EXPECT_EQ(hub_cache({{"HOME", "/home/a"}, {"HF_HOME", "/data/hf"}}), "/data/hf/hub");
  EXPECT_EQ(hub_cache({{"HF_HOME", "/data/hf"}, {"HF_HUB_CACHE", "/hub"}}), "/hub");
  EXPECT_EQ(hub_cache({{"HOME", "/home/a"}, {"HF_HOME", ""}}), "/home/a/.cache/huggingface/hub");
}

TEST(FindHubModelTest, OtherNamesAreUnchanged) {
  for (const char* name : {"models/demo/x", "/tmp/x", "x", "./a/b", "../a", "a/", "a/b/c", ""})
    EXPECT_EQ(find_hub_model(name), name);
}

}  // namespace
}  // namespace tlt::cli
