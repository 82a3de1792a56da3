// Converts plans and streams to messages of the control plane.
#include "server/step_reply.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/part_role.h"
#include "core/status.h"
#include "proto/service.pb.h"

namespace evenkeel::server {
namespace {

void AddSegments(const std::vector<RouteSegment>& segments,
                 google::protobuf::RepeatedPtrField<pb::RouteSegment>& out) {
  for (const RouteSegment& segment : segments) {
    pb::RouteSegment& added = *out.Add();
    added.set_peer(segment.peer);
    added.set_row(segment.row);
    added.set_rows(segment.rows);
  }
}

void AddRoute(const Route& route, const RankRoute& local, pb::RouteSlice& out) {
  out.set_from(std::string(PhaseName(route.from)));
  out.set_to(std::string(PhaseName(route.to)));
  out.set_microbatch(route.microbatch);
  out.set_num_ranks(static_cast<uint32_t>(route.ranks.size()));
  out.set_all_stay(route.all_stay);
  AddSegments(local.send, *out.mutable_send());
  AddSegments(local.receive, *out.mutable_receive());
  out.set_rows_in(local.rows_in);
  out.set_rows_out(local.rows_out);
  out.mutable_microbatch_offsets()->Add(local.microbatch_offsets.begin(), local.microbatch_offsets.end());
}

// `values`: one per phase rank; `own`: this rank's index, if the phase runs on it.
template <typename T>
void SetSpread(const stream::Spread& spread, const std::vector<T>& values, std::optional<uint32_t> own,
               pb::PhaseLoads::Spread& out) {
  out.set_max(spread.max);
  out.set_mean(spread.mean);
  if (own.has_value()) out.set_own(static_cast<double>(values[*own]));
}

void AddSpreads(const PhasePlan& phase, const stream::LoadSpreads& spreads, std::optional<uint32_t> own,
                pb::PhaseLoads& out) {
  out.set_phase(std::string(PhaseName(phase.phase)));
  out.set_num_ranks(static_cast<uint32_t>(phase.ranks.size()));
  SetSpread(spreads.before, phase.load_before, own, *out.mutable_before_spread());
  SetSpread(spreads.after, phase.load_after, own, *out.mutable_after_spread());
  SetSpread(spreads.tokens_before, phase.tokens_before, own, *out.mutable_tokens_before_spread());
  SetSpread(spreads.tokens_after, phase.tokens_after, own, *out.mutable_tokens_after_spread());
}

void AddAllLoads(const PhasePlan& phase, pb::PhaseLoads& out) {
  out.mutable_before()->Add(phase.load_before.begin(), phase.load_before.end());
  out.mutable_after()->Add(phase.load_after.begin(), phase.load_after.end());
  out.mutable_tokens_before()->Add(phase.tokens_before.begin(), phase.tokens_before.end());
  out.mutable_tokens_after()->Add(phase.tokens_after.begin(), phase.tokens_after.end());
}

// The rank whose side of a route between the phases `global_rank` has: where both phases have one mesh, the leader of
// its replica, since the members at each pair of coordinates exchange among themselves; likewise for the last stage of an
// llm whose rows a generator takes; else its own. nullopt: none.
std::optional<uint32_t> RouteRank(const Job& job, const stream::PartBuilder& builder, const Route& route,
                                  uint32_t global_rank) {
  const PhaseSpec& from = *job.phase(route.from);
  const PhaseSpec& to = *job.phase(route.to);
  if (from.phase.is_generator() && to.mesh.stages() > 1) {
    // Rows of a generator come from the last stage. Its ranks have none of the llm's.
    const std::optional<Member> member = builder.MemberIn(to.phase, global_rank);
    if (!member.has_value()) return global_rank;
    if (member->stage + 1 < to.mesh.stages()) return std::nullopt;
    return to.ranks[member->replica];
  }
  if (from.ranks != to.ranks || from.mesh != to.mesh) return global_rank;
  const std::optional<Member> member = builder.MemberIn(from.phase, global_rank);
  if (!member.has_value()) return std::nullopt;
  if (!RoleReceives(RoleOfStage(member->stage, from.mesh.stages()), from.phase)) return std::nullopt;
  return from.ranks[member->replica];
}

bool HasRank(const Job& job, const stream::PartBuilder& builder, uint32_t global_rank) {
  return std::any_of(job.phases.begin(), job.phases.end(), [&](const PhaseSpec& phase) {
    return builder.RankIn(phase.phase, global_rank).has_value();
  });
}

void AddGroup(const RankGroup& group, google::protobuf::RepeatedPtrField<pb::ContextGroup>& out) {
  pb::ContextGroup& added = *out.Add();
  added.set_first(group.first);
  added.set_size(group.size);
}

// The groups of an llm rank in the first plan, and those of several ranks in the others.
void AddGroups(std::span<const std::shared_ptr<const stream::StepPlan>> plans, uint32_t rank,
               pb::DescribeStepReply& reply) {
  for (size_t step = 0; step < plans.size(); ++step) {
    const Plan& plan = plans[step]->plan;
    std::set<RankGroup> several;
    for (uint32_t m = 0; m < plan.num_microbatches; ++m) {
      const RankGroup& group = plan.groups[rank * size_t{plan.num_microbatches} + m];
      if (step == 0) AddGroup(group, *reply.mutable_groups());
      if (group.size > 1) several.insert(group);
    }
    if (step == 0) continue;
    pb::ContextGroupsOfStep& ahead = *reply.add_ahead();
    for (const RankGroup& group : several) AddGroup(group, *ahead.mutable_groups());
  }
}

absl::Status AddParts(const stream::PartBuilder& builder, const PartPool& pool, uint64_t max_part_bytes,
                      const std::shared_ptr<const stream::StepPlan>& plan, uint32_t global_rank, bool whole,
                      pb::DescribeStepReply& reply) {
  for (const PartName& name : builder.PartsOf(*plan, global_rank)) {
    PartRole role = PartRole::kWhole;
    if (!whole) {
      role = RoleOfStage(builder.MemberIn(name.phase, global_rank)->stage,
                         builder.job().phase(name.phase)->mesh.stages());
    }
    if (!RoleReceives(role, name.phase)) continue;
    EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<stream::PartTask> task, builder.Prepare(plan, name));
    const uint64_t cut = CutBytes(*task, role);
    EVENKEEL_RETURN_IF_ERROR(pool.CheckFits(*task, cut));
    if (task->num_bytes() > max_part_bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          DescribePart(name), " has ", task->num_bytes(), " bytes, but a message has at most ",
          max_part_bytes, ": lower the job's microbatch.capacity_tokens or the pixels and frames per item"));
    }
    pb::PartDescription& part = *reply.add_parts();
    part.set_phase(std::string(PhaseName(name.phase)));
    part.set_phase_rank(name.rank);
    part.set_microbatch(name.microbatch);
    part.set_piece(name.piece);
    part.set_bytes(cut != 0 ? cut : task->num_bytes());
    part.set_role(static_cast<uint32_t>(role));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeStep(const stream::Stream& stream, const stream::PartBuilder& builder,
                          const PartPool& pool, uint64_t max_part_bytes,
                          std::span<const std::shared_ptr<const stream::StepPlan>> plans,
                          const pb::DescribeStepRequest& request, pb::DescribeStepReply& reply) {
  const std::shared_ptr<const stream::StepPlan>& plan = plans.front();
  const uint32_t global_rank = request.rank();
  if (!HasRank(stream.job, builder, global_rank)) {
    return absl::InvalidArgumentError(absl::StrCat("no phase of the job has global rank ", global_rank));
  }
  reply.set_step(plan->plan.step);
  reply.set_num_microbatches(plan->plan.num_microbatches);
  reply.set_loss_tokens(plan->plan.loss_tokens);
  reply.set_num_samples(plan->plan.samples.size());
  EVENKEEL_RETURN_IF_ERROR(
      AddParts(builder, pool, max_part_bytes, plan, global_rank, request.whole(), reply));
  // Only the rank's own side of each route: its size does not grow with the number of ranks.
  for (const Route& route : plan->plan.routes) {
    const std::optional<uint32_t> rank = RouteRank(stream.job, builder, route, global_rank);
    if (!rank.has_value()) continue;
    const auto found = std::lower_bound(route.ranks.begin(), route.ranks.end(), *rank);
    if (found == route.ranks.end() || *found != *rank) continue;
    AddRoute(route, route.per_rank[found - route.ranks.begin()], *reply.add_routes());
  }
  for (size_t i = 0; i < plan->plan.phases.size(); ++i) {
    const PhasePlan& phase = plan->plan.phases[i];
    pb::PhaseLoads& loads = *reply.add_loads();
    AddSpreads(phase, plan->spreads[i], builder.RankIn(phase.phase, global_rank), loads);
    if (request.all_loads()) AddAllLoads(phase, loads);
  }
  const std::optional<uint32_t> llm_rank = builder.RankIn(Phase::kLlm, global_rank);
  if (stream.job.groups.given && llm_rank.has_value()) AddGroups(plans, *llm_rank, reply);
  return absl::OkStatus();
}

void DescribeStream(const stream::Stream& stream, pb::DescribeReply& reply) {
  reply.set_job_name(stream.job.name);
  reply.set_stream_version(kStreamVersion);
  reply.set_part_format(kPartFormatVersion);
  reply.set_stream_digest(stream.stream_digest.Hex());
  reply.set_layout_digest(stream.layout_digest.Hex());
  reply.set_sequences(std::string(SequencesName(stream.job.sequences)));
  if (stream.num_steps) reply.set_num_steps(*stream.num_steps);
  reply.mutable_group_sizes()->Add(stream.job.groups.sizes.begin(), stream.job.groups.sizes.end());
  for (const PhaseSpec& spec : stream.job.phases) {
    pb::PhaseRanks& phase = *reply.add_phases();
    phase.set_phase(std::string(PhaseName(spec.phase)));
    phase.mutable_ranks()->Add(spec.ranks.begin(), spec.ranks.end());
    phase.set_once_per_microbatch(spec.runs == Runs::kOncePerMicrobatch);
    if (!spec.mesh.is_data_alone()) {
      phase.mutable_mesh()->set_order(MeshOrderName(spec.mesh.order));
      phase.mutable_mesh()->set_tensor(spec.mesh.size(MeshAxis::kTensor));
      phase.mutable_mesh()->set_context(spec.mesh.size(MeshAxis::kContext));
      phase.mutable_mesh()->set_data(spec.mesh.size(MeshAxis::kData));
      phase.mutable_mesh()->set_pipeline(spec.mesh.stages());
      phase.mutable_members()->Add(spec.mesh.ranks.begin(), spec.mesh.ranks.end());
    }
    for (Medium medium : kItemMedia) {
      if (spec.phase.takes(medium)) phase.add_media(static_cast<uint32_t>(medium));
    }
    phase.set_is_generator(spec.phase.is_generator());
  }
}

}  // namespace evenkeel::server
