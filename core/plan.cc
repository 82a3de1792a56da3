// Finds a phase or a route in a plan. A plan has few of both, so that a search from the beginning is fast
// enough.
#include "core/plan.h"

namespace evenkeel {

const PhasePlan* Plan::phase(const Phase& phase) const {
  for (const PhasePlan& candidate : phases) {
    if (candidate.phase == phase) return &candidate;
  }
  return nullptr;
}

const Route* Plan::route(const Phase& from, uint32_t microbatch) const {
  for (const Route& candidate : routes) {
    if (candidate.from == from && candidate.microbatch == microbatch) return &candidate;
  }
  return nullptr;
}

}  // namespace evenkeel
