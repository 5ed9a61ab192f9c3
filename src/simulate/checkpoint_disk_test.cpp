// SPDX-License-Identifier: Apache-2.0
#include "simulate/checkpoint_disk.h"

#include <gtest/gtest.h>

namespace tlt::simulate {
namespace {

TEST(CheckpointDiskTest, OneIsWrittenAndOneWaits) {
  CheckpointDisk disk(/*copy_seconds=*/1, /*write_seconds=*/10);
  EXPECT_EQ(disk.save(100), 1);  // written from 101 to 111
  EXPECT_EQ(disk.save(102), 1);  // waits from 103, written from 111 to 121
  EXPECT_EQ(disk.save(104), 7);  // until the second one is begun, at 111
  EXPECT_EQ(disk.save(200), 1);
}

TEST(CheckpointDiskTest, ARunResumesFromTheNewestWholeCheckpoint) {
  CheckpointDisk disk(1, 10);
  EXPECT_EQ(disk.resumes_at(50), 0);
  disk.save(100);
  EXPECT_EQ(disk.resumes_at(110), 0);
  EXPECT_EQ(disk.resumes_at(111), 101);
  disk.save(120);
  EXPECT_EQ(disk.resumes_at(130), 101);
  disk.resumed(1000);
  EXPECT_EQ(disk.resumes_at(1130), 1101);
  EXPECT_EQ(disk.resumes_at(1131), 1121);
}

// A disk that is as fast as the steps makes them wait for nothing but the copies.
TEST(CheckpointDiskTest, StepsWaitOnlyForASlowDisk) {
  for (const double write_seconds : {5.0, 10.0, 20.0}) {
    CheckpointDisk disk(1, write_seconds);
    double now = 0;
    for (int step = 0; step < 100; ++step) {
      now += 9;
      now += disk.save(now);
    }
    EXPECT_NEAR(now / 100, std::max(10.0, write_seconds), 0.4) << write_seconds;
  }
}

}  // namespace
}  // namespace tlt::simulate
