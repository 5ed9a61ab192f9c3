// SPDX-License-Identifier: Apache-2.0
#include "speculation/gate.h"

#include <gtest/gtest.h>

namespace tlt::speculation {
namespace {

SpeculationGate make_gate(const std::string& kind) {
  SpeculationOptions options;
  options.gate = kind;
  return SpeculationGate(options);
}

TEST(GateTest, LearnedGateIsOpen) {
  SpeculationGate gate = make_gate("learned");
  EXPECT_TRUE(gate.is_learned());
  EXPECT_TRUE(gate.opens(1));
  EXPECT_TRUE(gate.opens(1000));
}

TEST(GateTest, PaperGateDependsOnThisStepOnly) {
  SpeculationGate gate = make_gate("paper");
  EXPECT_FALSE(gate.is_learned());
  EXPECT_FALSE(gate.opens(33));
  EXPECT_TRUE(gate.opens(32));
  EXPECT_FALSE(gate.opens(33));
  EXPECT_TRUE(gate.opens(1));
}

TEST(GateTest, FastRlGateStaysOpenAfterTenLowSteps) {
  SpeculationGate gate = make_gate("release");
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(gate.opens(32)) << i;
  EXPECT_FALSE(gate.opens(33));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(gate.opens(32)) << i;
  EXPECT_TRUE(gate.opens(32));
  EXPECT_TRUE(gate.opens(500));
  gate.begin_rollout();
  EXPECT_FALSE(gate.opens(1));
}

TEST(GateTest, RestoredGateContinuesCounting) {
  SpeculationGate gate = make_gate("release");
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(gate.opens(1));
  SpeculationGate resumed = make_gate("release");
  resumed.restore(gate.low_steps());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(resumed.opens(1));
  EXPECT_TRUE(resumed.opens(1));
}

}  // namespace
}  // namespace tlt::speculation
