// Visits samples in the order of the index and not of the draws: neighbouring rows share pages.
//
// Example:
//     EVENKEEL_RETURN_IF_ERROR(VisitInIndexOrder(refs, [&](size_t i) { return Read(refs[i], &lengths[i]); }));
//
// Thread safety: a pure function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "core/words.h"

namespace evenkeel::dataset {

// Calls visit(i) for every place i of `refs`. Stops at the first error, and returns it.
template <typename Visit>
absl::Status VisitInIndexOrder(std::span<const SampleRef> refs, Visit visit) {
  std::vector<std::tuple<uint32_t, uint64_t, size_t>> rows;  // (dataset, row, place)
  rows.reserve(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) rows.emplace_back(refs[i].dataset, refs[i].index, i);
  std::sort(rows.begin(), rows.end());
  for (const auto& [dataset, row, place] : rows) {
    if (absl::Status status = visit(place); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
