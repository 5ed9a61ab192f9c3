// SPDX-License-Identifier: Apache-2.0
#include "cluster/job_secret.h"

#include <gtest/gtest.h>

namespace tlt::cluster {
namespace {

TEST(JobSecretTest, RandomNumbersAreHexDigitsAndDiffer) {
  const std::string first = random_hex();
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(first, random_hex());
}

TEST(JobSecretTest, KeyDependsOnSecretAndPurpose) {
  const std::string key = derive_key("a secret", "rendezvous");
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(key, derive_key("a secret", "rendezvous"));
  EXPECT_NE(key, derive_key("another secret", "rendezvous"));
  EXPECT_NE(key, derive_key("a secret", "control"));
  EXPECT_NE(key, derive_key("", "rendezvous"));
}

}  // namespace
}  // namespace tlt::cluster
