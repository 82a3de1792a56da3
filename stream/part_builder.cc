// Lists the parts of a rank and prepares their tasks from the plan.
#include "stream/part_builder.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "core/failure.h"
#include "core/status.h"
#include "stream/encoder_part.h"
#include "stream/llm_part.h"

namespace evenkeel::stream {
namespace {

constexpr absl::string_view kExcludeUrl = "evenkeel/exclude";

// The units (samples or items) of (rank, microbatch), in the order of their positions.
std::span<const uint32_t> UnitsOf(const PhasePlan& phase, uint32_t rank, uint32_t microbatch) {
  const size_t bucket = size_t{rank} * phase.num_microbatches + microbatch;
  return std::span(phase.order).subspan(phase.begin[bucket], phase.begin[bucket + 1] - phase.begin[bucket]);
}

}  // namespace

absl::Status WithExcludeLine(absl::Status status, const std::string& line) {
  const bool of_the_machine = KindOf(status) == FailureKind::kMachine;
  if (!status.ok() && !of_the_machine && !line.empty()) status.SetPayload(kExcludeUrl, absl::Cord(line));
  return status;
}

std::string ExcludeLine(const absl::Status& status) {
  const auto payload = status.GetPayload(kExcludeUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

PartBuilder::PartBuilder(const Stream& stream, PartEvents* events) : stream_(stream), events_(events) {
  for (const PhaseSpec& phase : stream.job.phases) {
    Ranks& ranks = ranks_[phase.phase.number()];
    if (phase.mesh.is_data_alone()) {
      for (uint32_t rank = 0; rank < phase.ranks.size(); ++rank) {
        ranks.emplace_back(phase.ranks[rank], Member{.replica = rank});
      }
    }
    for (size_t i = 0; i < phase.mesh.ranks.size(); ++i) {
      ranks.emplace_back(phase.mesh.ranks[i], phase.mesh.MemberAt(i));
    }
    std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
}

std::optional<Member> PartBuilder::MemberIn(const Phase& phase, uint32_t global_rank) const {
  const Ranks& ranks = ranks_[phase.number()];
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), global_rank,
                                      [](const auto& entry, uint32_t rank) { return entry.first < rank; });
  if (found == ranks.end() || found->first != global_rank) return std::nullopt;
  return found->second;
}

std::optional<uint32_t> PartBuilder::RankIn(const Phase& phase, uint32_t global_rank) const {
  const std::optional<Member> member = MemberIn(phase, global_rank);
  return member.has_value() ? std::optional(member->replica) : std::nullopt;
}

std::vector<PartName> PartBuilder::PartsOf(const StepPlan& plan, uint32_t global_rank) const {
  std::vector<PartName> names;
  for (const PhasePlan& phase : plan.plan.phases) {
    const std::optional<uint32_t> rank = RankIn(phase.phase, global_rank);
    if (!rank.has_value()) continue;
    const bool is_shared = stream_.job.IsSharedByGroups(*stream_.job.phase(phase.phase));
    PartName name{.phase = phase.phase, .step = plan.plan.step, .rank = *rank};
    for (name.microbatch = 0; name.microbatch < phase.num_microbatches; ++name.microbatch) {
      if (is_shared) name.rank = plan.plan.FirstOfGroup(*rank, name.microbatch);
      size_t num_pieces = 1;
      if (phase.phase != Phase::kLlm) {
        num_pieces =
            CutPieces(*stream_.processor, plan.plan, UnitsOf(phase, name.rank, name.microbatch)).size();
      }
      for (name.piece = 0; name.piece < num_pieces; ++name.piece) names.push_back(name);
      name.piece = 0;
    }
  }
  return names;
}

absl::StatusOr<std::unique_ptr<PartTask>> PartBuilder::Prepare(PlanPtr plan, const PartName& name) const {
  const PhasePlan* phase = plan->plan.phase(name.phase);
  const auto missing = [&name] {
    return absl::NotFoundError(absl::StrCat("the plan has no part ", DescribePart(name)));
  };
  if (phase == nullptr || name.rank >= phase->ranks.size() || name.microbatch >= phase->num_microbatches) {
    return missing();
  }
  const std::span<const uint32_t> units = UnitsOf(*phase, name.rank, name.microbatch);
  if (name.phase == Phase::kLlm) {
    if (name.piece != 0) return missing();
    return MakeLlmTask(stream_, std::move(plan), name, units, events_);
  }
  const auto pieces = CutPieces(*stream_.processor, plan->plan, units);
  if (name.piece >= pieces.size()) return missing();
  const auto [begin, end] = pieces[name.piece];
  return MakeEncoderTask(stream_, std::move(plan), name, static_cast<uint32_t>(pieces.size()),
                         units.subspan(begin, end - begin), events_);
}

}  // namespace evenkeel::stream
