// Converts between places in a mesh, coordinates and global ranks.
#include "core/mesh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/job_syntax.h"

namespace evenkeel {
namespace {

constexpr std::array<std::string_view, kNumMeshAxes> kAxisNames = {"tp", "cp", "dp", "pp"};

std::array<uint32_t, kNumMeshAxes> ByAxis(const Member& member) {
  return {member.tensor, member.context, member.replica, member.stage};
}

}  // namespace

uint64_t Mesh::members_per_replica() const {
  return uint64_t{size(MeshAxis::kTensor)} * size(MeshAxis::kContext) * size(MeshAxis::kPipeline);
}

Member Mesh::MemberAt(uint64_t place) const {
  std::array<uint32_t, kNumMeshAxes> at{};
  for (MeshAxis axis : order) {
    at[static_cast<size_t>(axis)] = static_cast<uint32_t>(place % size(axis));
    place /= size(axis);
  }
  return {.replica = at[2], .stage = at[3], .context = at[1], .tensor = at[0]};
}

uint32_t Mesh::RankAt(const Member& member) const {
  const auto at = ByAxis(member);
  uint64_t place = 0, stride = 1;
  for (MeshAxis axis : order) {
    place += stride * at[static_cast<size_t>(axis)];
    stride *= size(axis);
  }
  return ranks[place];
}

std::vector<uint32_t> Mesh::Leaders() const {
  std::vector<uint32_t> leaders;
  for (uint32_t replica = 0; replica < size(MeshAxis::kData); ++replica) {
    leaders.push_back(RankAt({.replica = replica}));
  }
  return leaders;
}

absl::StatusOr<Mesh::Order> ParseMeshOrder(std::string_view text) {
  const std::string given(text);
  const std::vector<std::string> words = absl::StrSplit(given, '-');
  Mesh::Order order{};
  std::array<bool, kNumMeshAxes> seen{};
  for (size_t i = 0; i < words.size() && words.size() == kNumMeshAxes; ++i) {
    const auto found = std::find(kAxisNames.begin(), kAxisNames.end(), words[i]);
    if (found == kAxisNames.end()) break;
    const auto axis = static_cast<size_t>(found - kAxisNames.begin());
    order[i] = static_cast<MeshAxis>(axis);
    seen[axis] = true;
  }
  if (std::all_of(seen.begin(), seen.end(), [](bool one) { return one; })) return order;
  return absl::InvalidArgumentError(
      absl::StrCat("'", ShortText(text),
                   "' does not name each of tp, cp, dp and pp once, the fastest first: tp-cp-dp-pp"));
}

std::string MeshOrderName(const Mesh::Order& order) {
  return absl::StrJoin(order, "-", [](std::string* out, MeshAxis axis) {
    out->append(kAxisNames[static_cast<size_t>(axis)]);
  });
}

std::string_view PartRoleName(PartRole role) {
  constexpr std::array<std::string_view, 4> kNames = {"whole", "first", "middle", "last"};
  return kNames[static_cast<size_t>(role)];
}

PartRole RoleOfStage(uint32_t stage, uint32_t num_stages) {
  if (num_stages == 1) return PartRole::kWhole;
  if (stage == 0) return PartRole::kFirst;
  return stage + 1 == num_stages ? PartRole::kLast : PartRole::kMiddle;
}

}  // namespace evenkeel
