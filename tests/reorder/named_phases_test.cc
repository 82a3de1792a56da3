// Phases that problems and traces name, and the phase of every item.
#include "reorder/named_phases.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "reorder/item_phases.h"
#include "tests/reorder/random_problem.h"

namespace evenkeel::reorder {
namespace {

TEST(NamedPhases, HaveTheNumbersAndMediaThatTheirNamesImply) {
  const auto phases =
      NamedPhases(std::vector<std::string>{"depth", "audio", "llm", "vision", "tower", "depth"});
  ASSERT_TRUE(phases.ok()) << phases.status();
  const std::vector<uint8_t> expected = {3, 2, 0, 1, 4, 3};
  for (size_t p = 0; p < expected.size(); ++p) EXPECT_EQ((*phases)[p].number(), expected[p]) << p;
  EXPECT_EQ(MediaNames((*phases)[0]), "image");
  EXPECT_EQ(MediaNames((*phases)[1]), "audio");
  EXPECT_EQ(MediaNames((*phases)[2]), "");
  EXPECT_EQ(MediaNames((*phases)[3]), "image,video");
}

TEST(NamedPhases, AGeneratorTakesTargets) {
  const auto phases = NamedPhases(std::vector<std::string>{"llm", "generator", "vision"});
  ASSERT_TRUE(phases.ok()) << phases.status();
  EXPECT_TRUE((*phases)[1].generates(Medium::kImage));
  EXPECT_EQ((*phases)[1].number(), 3);
  const ItemPhases table(*phases);
  EXPECT_EQ(table.KindOf(1).tower, kTargetTower);
  EXPECT_EQ(table.Find(table.KindOf(1)), 1u);
  EXPECT_EQ(table.Find({.medium = Medium::kImage}), 2u);
  EXPECT_EQ(table.Find({.medium = Medium::kAudio, .tower = kTargetTower}), std::nullopt);
}

TEST(NamedPhases, HaveDifferentNumbersUpToTheLargestJob) {
  std::vector<std::string> names = {"llm"};
  for (size_t p = 1; p < kMaxPhases; ++p) names.push_back(absl::StrCat("tower", p));
  const auto phases = NamedPhases(names);
  ASSERT_TRUE(phases.ok()) << phases.status();
  std::set<uint8_t> numbers;
  for (const Phase& phase : *phases) numbers.insert(phase.number());
  EXPECT_EQ(numbers.size(), kMaxPhases);
  names.push_back("last");
  EXPECT_NE(NamedPhases(names).status().message().find("more than 16 phases, the llm included; 'last'"),
            std::string::npos)
      << NamedPhases(names).status();
  names = {"Depth"};
  EXPECT_NE(NamedPhases(names).status().message().find("'Depth' is not the name of a phase"),
            std::string::npos);
}

TEST(ItemPhases, FindTheKindOfItemThatTheyGiveForAPhase) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Below below = BelowFrom(seed);
    std::vector<Phase> phases = {Phase::kLlm};
    for (uint64_t p = 1 + below(kMaxPhases - 1); p > 0; --p) {
      Phase& phase = phases.emplace_back(Phase(absl::StrCat("p", p), static_cast<uint8_t>(phases.size())));
      phase.Add(kItemMedia[below(kItemMedia.size())]);
      if (below(2) == 0) phase.Add(kItemMedia[below(kItemMedia.size())]);
    }
    const ItemPhases table(phases);
    for (size_t p = 1; p < phases.size(); ++p) {
      EXPECT_EQ(table.Find(table.KindOf(p)), p) << seed;
      EXPECT_TRUE(phases[p].encodes(table.KindOf(p).medium)) << seed;
    }
    EXPECT_EQ(table.Find({.medium = Medium::kImage, .tower = 200}), std::nullopt);
  }
}

}  // namespace
}  // namespace evenkeel::reorder
