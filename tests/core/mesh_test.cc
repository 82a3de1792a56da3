// Coordinates, ranks and roles of members of a mesh.
#include "core/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Mesh MeshOf(uint32_t tensor, uint32_t context, uint32_t data, uint32_t pipeline,
            std::string_view order = "tp-cp-dp-pp") {
  Mesh mesh{.order = *ParseMeshOrder(order), .sizes = {tensor, context, data, pipeline}};
  mesh.ranks.resize(mesh.num_members());
  std::iota(mesh.ranks.begin(), mesh.ranks.end(), 0);
  return mesh;
}

// The example of core/mesh.h, and Megatron's formula g = tp + TP * (cp + CP * (dp + DP * pp)).
TEST(Mesh, DefaultOrderIsMegatrons) {
  const Mesh mesh = MeshOf(4, 2, 16, 2);
  EXPECT_EQ(mesh.MemberAt(137), (Member{.replica = 1, .stage = 1, .context = 0, .tensor = 1}));
  EXPECT_EQ(mesh.RankAt({.replica = 1, .stage = 1}), 136u);
  for (uint32_t g = 0; g < 256; ++g) {
    const Member at = mesh.MemberAt(g);
    EXPECT_EQ(at.tensor + 4 * (at.context + 2 * (at.replica + 16 * at.stage)), g);
  }
}

TEST(Mesh, StagesMayBeFasterThanReplicas) {
  const Mesh mesh = MeshOf(2, 1, 3, 2, "tp-cp-pp-dp");
  EXPECT_THAT(mesh.Leaders(), ElementsAre(0, 4, 8));
  EXPECT_EQ(mesh.MemberAt(7), (Member{.replica = 1, .stage = 1, .tensor = 1}));
}

TEST(Mesh, RankAtInvertsMemberAtForEveryOrder) {
  std::mt19937 random(3);
  std::array<std::string, 4> axes = {"cp", "dp", "pp", "tp"};
  do {
    Mesh mesh = MeshOf(2, 3, 4, 5, axes[0] + "-" + axes[1] + "-" + axes[2] + "-" + axes[3]);
    std::shuffle(mesh.ranks.begin(), mesh.ranks.end(), random);
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> seen;
    for (uint64_t place = 0; place < mesh.num_members(); ++place) {
      const Member at = mesh.MemberAt(place);
      EXPECT_EQ(mesh.RankAt(at), mesh.ranks[place]);
      seen.insert({at.replica, at.stage, at.context, at.tensor});
    }
    EXPECT_EQ(seen.size(), mesh.num_members());
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST(Mesh, RefusesOrdersThatDoNotNameEveryAxisOnce) {
  for (const char* text : {"", "tp-cp-dp", "tp-cp-dp-dp", "tp-cp-dp-ep", "tp-cp-dp-pp-tp", "TP-CP-DP-PP"}) {
    EXPECT_THAT(ParseMeshOrder(text).status().message(), HasSubstr("tp, cp, dp and pp once")) << text;
  }
  EXPECT_EQ(MeshOrderName(*ParseMeshOrder("pp-tp-dp-cp")), "pp-tp-dp-cp");
}

TEST(Mesh, RolesFollowTheStage) {
  EXPECT_EQ(RoleOfStage(0, 1), PartRole::kWhole);
  EXPECT_EQ(RoleOfStage(0, 3), PartRole::kFirst);
  EXPECT_EQ(RoleOfStage(1, 3), PartRole::kMiddle);
  EXPECT_EQ(RoleOfStage(2, 3), PartRole::kLast);
}

}  // namespace
}  // namespace evenkeel
