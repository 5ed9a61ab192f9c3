// SPDX-License-Identifier: Apache-2.0
#include "tinker/saved_path.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tlt::tinker {
namespace {

TEST(SavedPathTest, FoldersAreInsideTheSaveFolder) {
  EXPECT_EQ(folder_of("/s", weights_path("a-1:train:0", "x.y")), "/s/a-1-train-0/weights/x.y");
  EXPECT_EQ(folder_of("/s", sampler_weights_path("m", "n")), "/s/m/sampler_weights/n");
  for (const char* path :
       {"", "m/weights/n", "tinker://m/weights", "tinker://m/weights/", "tinker:///weights/n",
        "tinker://m/other/n", "tinker://m/weights/..", "tinker://../weights/n",
        "tinker://m/weights/a/b", "tinker://m/weights/.n", "tinker://m/weights/n.writing",
        "tinker://m/weights/a b", "tinker://m/weights/\xff"})
    EXPECT_THROW(folder_of("/s", path), InputError) << path;
  EXPECT_THROW(folder_of("/s", weights_path("m", std::string(129, 'n'))), InputError);
}

}  // namespace
}  // namespace tlt::tinker
