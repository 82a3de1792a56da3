// Writes a received step as one run of bytes, and reads it with the checks of a worker's description and parts.
#include "client/shared_step.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/step_description.h"
#include "core/part_role.h"
#include "core/status.h"
#include "proto/service.pb.h"

namespace evenkeel::client {
namespace {

constexpr uint64_t kVersion = 0x31505453'4b564545;  // also differs between byte orders
constexpr uint64_t kPrefixBytes = 16;

void FillGroup(const RankGroup& from, pb::ContextGroup* to) {
  to->set_first(from.first);
  to->set_size(from.size);
}

void FillSegments(const std::vector<RouteSegment>& from,
                  google::protobuf::RepeatedPtrField<pb::RouteSegment>* to) {
  for (const RouteSegment& segment : from) {
    pb::RouteSegment& added = *to->Add();
    added.set_peer(segment.peer);
    added.set_row(segment.row);
    added.set_rows(segment.rows);
  }
}

void FillRoute(const LocalRoute& from, pb::RouteSlice* to) {
  to->set_from(std::string(PhaseName(from.from)));
  to->set_to(std::string(PhaseName(from.to)));
  to->set_microbatch(from.microbatch);
  to->set_num_ranks(from.num_ranks);
  to->set_all_stay(from.all_stay);
  FillSegments(from.route.send, to->mutable_send());
  FillSegments(from.route.receive, to->mutable_receive());
  to->set_rows_in(from.route.rows_in);
  to->set_rows_out(from.route.rows_out);
  to->mutable_microbatch_offsets()->Add(from.route.microbatch_offsets.begin(),
                                        from.route.microbatch_offsets.end());
}

template <typename T>
void FillSpread(const LoadSpread& from, pb::PhaseLoads::Spread* to, google::protobuf::RepeatedField<T>* all) {
  to->set_max(from.max);
  to->set_mean(from.mean);
  if (from.own.has_value()) to->set_own(*from.own);
  for (double value : from.all) all->Add(static_cast<T>(value));
}

void FillLoads(const PhaseLoads& from, pb::PhaseLoads* to) {
  to->set_phase(std::string(PhaseName(from.phase)));
  to->set_num_ranks(from.num_ranks);
  FillSpread(from.before, to->mutable_before_spread(), to->mutable_before());
  FillSpread(from.after, to->mutable_after_spread(), to->mutable_after());
  FillSpread(from.tokens_before, to->mutable_tokens_before_spread(), to->mutable_tokens_before());
  FillSpread(from.tokens_after, to->mutable_tokens_after_spread(), to->mutable_tokens_after());
}

// The views of the base class are of the owner's memory.
struct BorrowedStep : StepData {
  std::shared_ptr<const void> owner;
};

}  // namespace

absl::StatusOr<SharedStep> SharedStep::Of(const StepData& step, PartRole role) {
  SharedStep out;
  pb::DescribeStepReply reply;
  reply.set_step(step.step);
  reply.set_num_microbatches(step.num_microbatches);
  reply.set_loss_tokens(step.loss_tokens);
  reply.set_num_samples(step.num_samples);
  uint64_t bytes = 0;
  for (const PartData& part : step.parts) {
    if (!RoleReceives(role, part.name.phase)) continue;
    Part planned{part.bytes, role, part.bytes.size()};
    if (role != PartRole::kWhole && part.role != PartRole::kWhole) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribePart(part.name), " was received for the ", std::string(PartRoleName(part.role)),
          " stage and cannot be passed on to others; receive it whole"));
    }
    if (!RoleIsWhole(role, part.name.phase)) {
      EVENKEEL_ASSIGN_OR_RETURN(const PartLayout layout, ReadPartLayout(part.bytes));
      planned.num_bytes = RoleLayout(layout, role).total_bytes();
    }
    pb::PartDescription& description = *reply.add_parts();
    description.set_phase(std::string(PhaseName(part.name.phase)));
    description.set_phase_rank(part.name.rank);
    description.set_microbatch(part.name.microbatch);
    description.set_piece(part.name.piece);
    description.set_bytes(planned.num_bytes);
    description.set_role(static_cast<uint32_t>(role == PartRole::kWhole ? part.role : role));
    bytes += planned.num_bytes;
    out.parts_.push_back(planned);
  }
  if (role != PartRole::kMiddle) {
    for (const LocalRoute& route : step.routes) FillRoute(route, reply.add_routes());
  }
  for (const PhaseLoads& loads : step.loads) FillLoads(loads, reply.add_loads());
  for (const RankGroup& group : step.groups.of_microbatch) FillGroup(group, reply.add_groups());
  for (const std::vector<RankGroup>& groups : step.groups.ahead) {
    pb::ContextGroupsOfStep& ahead = *reply.add_ahead();
    for (const RankGroup& group : groups) FillGroup(group, ahead.add_groups());
  }
  out.description_ = reply.SerializeAsString();
  out.num_bytes_ = AlignPart(kPrefixBytes + out.description_.size()) + bytes;
  return out;
}

absl::Status SharedStep::Write(std::span<std::byte> out) const {
  if (out.size() != num_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the step has ", num_bytes_, " bytes, the memory for it ", out.size()));
  }
  const uint64_t prefix[] = {kVersion, description_.size()};
  static_assert(sizeof(prefix) == kPrefixBytes);
  std::memcpy(out.data(), prefix, sizeof(prefix));
  std::memcpy(out.data() + kPrefixBytes, description_.data(), description_.size());
  uint64_t at = AlignPart(kPrefixBytes + description_.size());
  std::memset(out.data() + kPrefixBytes + description_.size(), 0, at - kPrefixBytes - description_.size());
  for (const Part& part : parts_) {
    const std::span<std::byte> target = out.subspan(at, part.num_bytes);
    if (part.role == PartRole::kWhole) {
      std::memcpy(target.data(), part.bytes.data(), part.bytes.size());
    } else {
      EVENKEEL_RETURN_IF_ERROR(WriteRolePart(part.bytes, part.role, target));
    }
    at += part.num_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StepData>> ReadSharedStep(std::span<const std::byte> bytes,
                                                               std::shared_ptr<const void> owner,
                                                               uint64_t step) {
  uint64_t prefix[2] = {};
  if (bytes.size() < kPrefixBytes) return absl::DataLossError("a shared step is shorter than its prefix");
  std::memcpy(prefix, bytes.data(), kPrefixBytes);
  if (prefix[0] != kVersion || prefix[1] > bytes.size() - kPrefixBytes ||
      AlignPart(kPrefixBytes + prefix[1]) > bytes.size()) {
    return absl::DataLossError("not a shared step: run all members of a replica with one release");
  }
  pb::DescribeStepReply reply;
  if (!reply.ParseFromArray(bytes.data() + kPrefixBytes, static_cast<int>(prefix[1]))) {
    return absl::DataLossError("the description of a shared step is damaged");
  }
  EVENKEEL_ASSIGN_OR_RETURN(StepDescription description, CheckDescription(reply, step));
  auto out = std::make_shared<BorrowedStep>();
  uint64_t at = AlignPart(kPrefixBytes + prefix[1]);
  for (const PlannedPart& part : description.parts) {
    if (part.bytes > bytes.size() - at) return absl::DataLossError("a shared step ends within a part");
    const std::span<const std::byte> own = bytes.subspan(at, part.bytes);
    EVENKEEL_ASSIGN_OR_RETURN(PartView view, ReadPart(own));
    out->parts.push_back({part.name, std::move(view), own, part.role});
    at += part.bytes;
  }
  out->step = step;
  out->num_microbatches = description.num_microbatches;
  out->loss_tokens = description.loss_tokens;
  out->num_samples = description.num_samples;
  out->routes = std::move(description.routes);
  out->loads = std::move(description.loads);
  out->groups = std::move(description.groups);
  out->owner = std::move(owner);
  return out;
}

}  // namespace evenkeel::client
