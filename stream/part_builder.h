// From a plan to parts: which parts a rank receives, how large each is, and the work that makes it.
//
// Example:
//     for (const PartName& name : builder.PartsOf(*plan, global_rank)) {
//       EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<PartTask> task, builder.Prepare(plan, name));
//       std::vector<std::byte> part(task->num_bytes());  // exact
//     }
//
// Sizes are functions of the plan and of the processor's fields: they need the index, but no data is read or
// decoded. docs/worker.md lists the tensors of every part.
//
// Thread safety: all members are const and may be called from many threads; so may the tasks'.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "stream/part_events.h"
#include "stream/part_task.h"
#include "stream/stream.h"

namespace evenkeel::stream {

class PartBuilder {
 public:
  using PlanPtr = std::shared_ptr<const StepPlan>;

  // `stream` must outlive the builder and its tasks, and so must `events` unless it is null.
  PartBuilder(const Stream& stream, PartEvents* events);

  const Job& job() const { return stream_.job; }

  // The phase rank of `global_rank`, whichever member of its replica it is; nullopt if the phase does not run
  // on it. Logarithmic in the number of ranks.
  std::optional<uint32_t> RankIn(const Phase& phase, uint32_t global_rank) const;
  // Its coordinates; `replica` is the phase rank.
  std::optional<Member> MemberIn(const Phase& phase, uint32_t global_rank) const;

  // The parts of the replicas that one global rank is a member of, in canonical order: phase, microbatch, piece.
  // An encoder's rank and microbatch without items has no part; the llm's always has one.
  std::vector<PartName> PartsOf(const StepPlan& plan, uint32_t global_rank) const;

  // NotFound: the plan has no such part; otherwise errors of Index::places.
  absl::StatusOr<std::unique_ptr<PartTask>> Prepare(PlanPtr plan, const PartName& name) const;

 private:
  // Of each phase of the job: (global rank, coordinates), ascending by rank.
  using Ranks = std::vector<std::pair<uint32_t, Member>>;

  const Stream& stream_;
  PartEvents* const events_;
  std::array<Ranks, kMaxPhases> ranks_;  // by the phase's number
};

}  // namespace evenkeel::stream
