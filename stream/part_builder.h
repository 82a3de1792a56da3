// From a plan to parts: which parts a rank receives, how large each is, and the work that makes it.
//
//   for (const PartName& name : builder.PartsOf(*plan, global_rank)) {
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<PartTask> task, builder.Prepare(plan, name));
//     std::vector<std::byte> part(task->num_bytes());     // exact
//   }
//
// Sizes are functions of the plan and of the processor's fields: nothing is read or decoded for them but the
// index. docs/worker.md lists the tensors of every part.
//
// Thread safety: all members are const and may be called from many threads; the tasks, too.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/bad_data.h"
#include "server/metrics.h"
#include "server/part_task.h"
#include "server/stream.h"

namespace evenkeel {

class PartBuilder {
 public:
  using PlanPtr = std::shared_ptr<const StepPlan>;

  // `stream` must outlive the builder and its tasks, and so must `metrics` where it is not null.
  PartBuilder(const Stream& stream, Metrics* metrics);

  // The parts of one global rank in canonical order: phase, microbatch, piece. Ranks and microbatches of an
  // encoder that have no item have no part; those of the llm always have one.
  std::vector<PartName> PartsOf(const StepPlan& plan, uint32_t global_rank) const;

  // NotFound: the plan has no such part; otherwise errors of Index::places.
  absl::StatusOr<std::unique_ptr<PartTask>> Prepare(PlanPtr plan, const PartName& name) const;

 private:
  const Stream& stream_;
  Metrics* const metrics_;
  const std::shared_ptr<BadData> bad_data_;
};

}  // namespace evenkeel
