// Where the members of a phase's replicas are: a mesh over global ranks, with tensor, context, data and pipeline
// parallelism.
//
// A replica of a phase is planned for as one: all ranks with the same data coordinate. Its members are the ranks of the
// other three axes. The leader is the member at tensor 0, context 0, stage 0.
//
// Example:
//     Mesh mesh{.sizes = {4, 2, 16, 2}, .ranks = all};           // 0 to 255; the order is tp-cp-dp-pp
//     const Member one = mesh.MemberAt(137);                     // replica 1, stage 1, context 0, tensor 1
//     uint32_t rank = mesh.RankAt({.replica = 1, .stage = 1});   // 136
//
// Thread safety: plain values; needs none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel {

enum class MeshAxis : uint8_t { kTensor, kContext, kData, kPipeline };
inline constexpr size_t kNumMeshAxes = 4;

// Coordinates of one member.
struct Member {
  uint32_t replica = 0;  // data
  uint32_t stage = 0;    // pipeline
  uint32_t context = 0;
  uint32_t tensor = 0;

  friend bool operator==(const Member&, const Member&) = default;
};

struct Mesh {
  using Order = std::array<MeshAxis, kNumMeshAxes>;
  static constexpr Order kDefaultOrder = {MeshAxis::kTensor, MeshAxis::kContext, MeshAxis::kData,
                                          MeshAxis::kPipeline};

  Order order = kDefaultOrder;                              // the first axis varies fastest
  std::array<uint32_t, kNumMeshAxes> sizes = {1, 1, 1, 1};  // by MeshAxis
  std::vector<uint32_t> ranks;  // global, in the order of the mesh: as many as the sizes multiply to

  uint32_t size(MeshAxis axis) const { return sizes[static_cast<size_t>(axis)]; }
  uint32_t stages() const { return size(MeshAxis::kPipeline); }
  // Whether every replica is one rank.
  bool is_data_alone() const { return members_per_replica() == 1; }
  uint64_t members_per_replica() const;
  uint64_t num_members() const { return members_per_replica() * size(MeshAxis::kData); }

  // `place`: below num_members().
  Member MemberAt(uint64_t place) const;
  uint32_t RankAt(const Member& member) const;
  // The global rank of each replica's leader.
  std::vector<uint32_t> Leaders() const;

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// "tp-cp-dp-pp": all four axes, the fastest first. InvalidArgument, without a place, for anything else.
absl::StatusOr<Mesh::Order> ParseMeshOrder(std::string_view text);
std::string MeshOrderName(const Mesh::Order& order);

// Which fields of a replica's parts a member receives. The numbers are those of the control plane.
enum class PartRole : uint8_t {
  kWhole = 0,   // everything: a replica without pipeline stages
  kFirst = 1,   // first stage: tokens and media
  kMiddle = 2,  // documents and positions
  kLast = 3,    // last stage: labels, weights of the loss, which items are valid
};
std::string_view PartRoleName(PartRole role);
PartRole RoleOfStage(uint32_t stage, uint32_t num_stages);

}  // namespace evenkeel
