#include "core/plan.h"

#include <vector>

#include "core/max_over_mean.h"
#include "gtest/gtest.h"
#include "tests/usual_phases.h"

namespace evenkeel {
namespace {

TEST(Plan, FindsPhasesAndRoutesThatItHasAndNoOthers) {
  Plan plan;
  plan.phases.resize(2);
  plan.phases[1].phase = kAudioPhase;
  plan.routes.resize(3);
  for (uint32_t i = 0; i < 3; ++i) {
    plan.routes[i].from = kAudioPhase;
    plan.routes[i].microbatch = i;
  }
  EXPECT_EQ(plan.phase(Phase::kLlm), &plan.phases[0]);
  EXPECT_EQ(plan.phase(kAudioPhase), &plan.phases[1]);
  EXPECT_EQ(plan.phase(kVisionPhase), nullptr);
  EXPECT_EQ(plan.route(kAudioPhase, 2), &plan.routes[2]);
  EXPECT_EQ(plan.route(kAudioPhase, 3), nullptr);
  EXPECT_EQ(plan.route(kVisionPhase, 0), nullptr);
}

TEST(MaxOverMean, IsOneWhereLoadsAreAlikeOrNone) {
  EXPECT_EQ(MaxOverMean({}), 1);
  EXPECT_EQ(MaxOverMean(std::vector<double>{0, 0}), 1);
  EXPECT_EQ(MaxOverMean(std::vector<double>{3, 3, 3}), 1);
  EXPECT_EQ(MaxOverMean(std::vector<double>{1, 5, 0, 2}), 2.5);
}

}  // namespace
}  // namespace evenkeel
