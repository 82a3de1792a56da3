// Validates a worker's description of a step. A worker of another build, or a broken one, must not make the
// consumer allocate wrongly or index out of bounds later.
#include "client/step_description.h"

#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "proto/service.pb.h"

namespace evenkeel::client {
namespace {

constexpr uint32_t kMaxGroup = 1 << 20;  // above any number of ranks

// The job's phases. The reply has loads of every phase, in the job's order, which gives the phases their
// numbers.
class Phases {
 public:
  static absl::StatusOr<Phases> Make(const pb::DescribeStepReply& reply) {
    Phases phases;
    if (reply.loads_size() > static_cast<int>(kMaxPhases)) {
      return absl::InvalidArgumentError(
          absl::StrCat("loads of ", reply.loads_size(), " phases; a job has at most ", kMaxPhases));
    }
    for (const pb::PhaseLoads& loads : reply.loads()) {
      if (!IsPhaseName(loads.phase()) || phases.Find(loads.phase()).ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("loads of phase '", loads.phase(), "': the name is invalid or occurs twice"));
      }
      phases.known_.emplace_back(loads.phase(), static_cast<uint8_t>(phases.known_.size()));
    }
    return phases;
  }

  absl::StatusOr<Phase> Find(const std::string& name) const {
    for (const Phase& phase : known_) {
      if (phase.name() == name) return phase;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("phase '", name, "' is unknown: the step has no loads of it"));
  }

 private:
  std::vector<Phase> known_;
};

// The order of the parts of one rank, which is also the order in which they are hashed and delivered.
auto CanonicalKey(const PartName& name) {
  return std::make_tuple(name.phase.number(), name.microbatch, name.piece);
}

absl::StatusOr<std::vector<PlannedPart>> CheckParts(const pb::DescribeStepReply& reply,
                                                    const Phases& phases) {
  std::vector<PlannedPart> parts;
  parts.reserve(reply.parts_size());
  for (const pb::PartDescription& part : reply.parts()) {
    EVENKEEL_ASSIGN_OR_RETURN(Phase phase, phases.Find(part.phase()));
    PlannedPart planned{{phase, reply.step(), part.phase_rank(), part.microbatch(), part.piece()},
                        part.bytes(),
                        static_cast<PartRole>(part.role())};
    if (part.role() > static_cast<uint32_t>(PartRole::kLast)) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribePart(planned.name), " is of role ", part.role(), ", which does not exist"));
    }
    if (!parts.empty() && CanonicalKey(parts.back().name) >= CanonicalKey(planned.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribePart(planned.name), " is out of canonical order"));
    }
    if (planned.bytes == 0)
      return absl::InvalidArgumentError(absl::StrCat(DescribePart(planned.name), " is empty"));
    parts.push_back(planned);
  }
  return parts;
}

// Segments must be ascending by peer and inside the route's rows. The comparison with `rows - row` cannot
// overflow.
absl::StatusOr<std::vector<RouteSegment>> CheckSegments(
    const google::protobuf::RepeatedPtrField<pb::RouteSegment>& segments, uint64_t rows, size_t num_ranks,
    const char* side) {
  std::vector<RouteSegment> out;
  out.reserve(segments.size());
  uint32_t last_peer = 0;
  for (const pb::RouteSegment& segment : segments) {
    bool inside = segment.row() <= rows && segment.rows() <= rows - segment.row();
    if (segment.peer() >= num_ranks || segment.peer() < last_peer || !inside) {
      return absl::InvalidArgumentError(absl::StrCat(side, " segment of peer ", segment.peer(), ", rows ",
                                                     segment.row(), "+", segment.rows(), " of ", rows,
                                                     " is outside its route or out of order"));
    }
    last_peer = segment.peer();
    out.push_back({segment.peer(), segment.row(), segment.rows()});
  }
  return out;
}

// Whether what is sent can be what is received, of a rank whose rows stay.
bool StaysOnOneRank(const RankRoute& route) {
  uint64_t sent = 0, received = 0;
  std::set<uint32_t> peers;
  for (const RouteSegment& segment : route.send) {
    peers.insert(segment.peer);
    sent += segment.rows;
  }
  for (const RouteSegment& segment : route.receive) {
    peers.insert(segment.peer);
    received += segment.rows;
  }
  return peers.size() <= 1 && sent == received;
}

absl::StatusOr<LocalRoute> CheckRoute(const pb::RouteSlice& slice, const Phases& phases) {
  LocalRoute local;
  EVENKEEL_ASSIGN_OR_RETURN(local.from, phases.Find(slice.from()));
  EVENKEEL_ASSIGN_OR_RETURN(local.to, phases.Find(slice.to()));
  local.microbatch = slice.microbatch();
  local.num_ranks = slice.num_ranks();
  local.all_stay = slice.all_stay();
  RankRoute& route = local.route;
  route.rows_in = slice.rows_in();
  route.rows_out = slice.rows_out();
  EVENKEEL_ASSIGN_OR_RETURN(route.send, CheckSegments(slice.send(), route.rows_in, local.num_ranks, "send"));
  EVENKEEL_ASSIGN_OR_RETURN(route.receive,
                            CheckSegments(slice.receive(), route.rows_out, local.num_ranks, "receive"));
  if (local.all_stay && !StaysOnOneRank(route)) {
    return absl::InvalidArgumentError("a route said that all rows stay, and has rows of several ranks");
  }
  route.microbatch_offsets.assign(slice.microbatch_offsets().begin(), slice.microbatch_offsets().end());
  uint64_t last = 0;
  for (uint64_t offset : route.microbatch_offsets) {
    if (offset < last || offset > route.rows_out) {
      return absl::InvalidArgumentError("microbatch offsets are not ascending within the route's rows");
    }
    last = offset;
  }
  return local;
}

// `all`: one value per phase rank; empty unless requested.
template <typename T>
LoadSpread SpreadOf(const pb::PhaseLoads::Spread& spread, const google::protobuf::RepeatedField<T>& all) {
  LoadSpread out{.max = spread.max(), .mean = spread.mean()};
  if (spread.has_own()) out.own = spread.own();
  out.all.assign(all.begin(), all.end());
  return out;
}

absl::StatusOr<PhaseLoads> CheckLoads(const pb::PhaseLoads& loads, const Phases& phases) {
  PhaseLoads out;
  EVENKEEL_ASSIGN_OR_RETURN(out.phase, phases.Find(loads.phase()));
  out.num_ranks = loads.num_ranks();
  out.before = SpreadOf(loads.before_spread(), loads.before());
  out.after = SpreadOf(loads.after_spread(), loads.after());
  out.tokens_before = SpreadOf(loads.tokens_before_spread(), loads.tokens_before());
  out.tokens_after = SpreadOf(loads.tokens_after_spread(), loads.tokens_after());
  for (const LoadSpread* spread : {&out.before, &out.after, &out.tokens_before, &out.tokens_after}) {
    if (!spread->all.empty() && spread->all.size() != out.num_ranks) {
      return absl::InvalidArgumentError(absl::StrCat("loads of ", spread->all.size(), " ranks of phase ",
                                                     loads.phase(), ", which has ", out.num_ranks));
    }
  }
  return out;
}

// As many as a later release may name.
constexpr int kMaxAhead = 256;

absl::StatusOr<RankGroup> CheckGroup(const pb::ContextGroup& group) {
  if (group.size() == 0 || group.size() > kMaxGroup || group.first() > kMaxGroup ||
      group.first() % group.size() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks ", group.first(), "+", group.size(), " are no group"));
  }
  return RankGroup{group.first(), group.size()};
}

absl::StatusOr<std::vector<RankGroup>> CheckGroups(
    const google::protobuf::RepeatedPtrField<pb::ContextGroup>& groups) {
  std::vector<RankGroup> out;
  for (const pb::ContextGroup& group : groups) {
    EVENKEEL_ASSIGN_OR_RETURN(const RankGroup checked, CheckGroup(group));
    out.push_back(checked);
  }
  return out;
}

absl::StatusOr<StepGroups> CheckStepGroups(const pb::DescribeStepReply& reply) {
  StepGroups out;
  if (reply.groups_size() != 0 && reply.groups_size() != static_cast<int64_t>(reply.num_microbatches())) {
    return absl::InvalidArgumentError(
        absl::StrCat(reply.groups_size(), " groups for ", reply.num_microbatches(), " microbatches"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(out.of_microbatch, CheckGroups(reply.groups()));
  if (reply.ahead_size() > kMaxAhead) {
    return absl::InvalidArgumentError(absl::StrCat("groups of ", reply.ahead_size(), " steps ahead"));
  }
  for (const pb::ContextGroupsOfStep& ahead : reply.ahead()) {
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<RankGroup> groups, CheckGroups(ahead.groups()));
    out.ahead.push_back(std::move(groups));
  }
  return out;
}

}  // namespace

absl::StatusOr<StepDescription> CheckDescription(const pb::DescribeStepReply& reply, uint64_t step) {
  if (reply.step() != step) {
    return absl::InvalidArgumentError(absl::StrCat("asked for step ", step, ", got step ", reply.step()));
  }
  StepDescription out;
  out.step = step;
  out.num_microbatches = reply.num_microbatches();
  out.loss_tokens = reply.loss_tokens();
  out.num_samples = reply.num_samples();
  EVENKEEL_ASSIGN_OR_RETURN(const Phases phases, Phases::Make(reply));
  EVENKEEL_ASSIGN_OR_RETURN(out.parts, CheckParts(reply, phases));
  for (const pb::RouteSlice& slice : reply.routes()) {
    absl::StatusOr<LocalRoute> route = CheckRoute(slice, phases);
    if (!route.ok()) return AddContext(route.status(), absl::StrCat("route from ", slice.from()));
    out.routes.push_back(*std::move(route));
  }
  for (const pb::PhaseLoads& loads : reply.loads()) {
    EVENKEEL_ASSIGN_OR_RETURN(PhaseLoads checked, CheckLoads(loads, phases));
    out.loads.push_back(std::move(checked));
  }
  EVENKEEL_ASSIGN_OR_RETURN(out.groups, CheckStepGroups(reply));
  return out;
}

}  // namespace evenkeel::client
