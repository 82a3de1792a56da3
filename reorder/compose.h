// Composes and inverts rearrangements of rows over ranks.
//
// If each phase is balanced separately, an encoder's outputs are rearranged twice: back to where their
// samples were drawn, and on to where the llm needs them (OrchMLLM, rearrangement composition). The composed
// route moves every row once.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(Rearrangement home, Inverse(to_encoder));
//     EVENKEEL_ASSIGN_OR_RETURN(Rearrangement route, Compose(home, to_llm));
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::reorder {

// Rows [from_row, from_row + rows) of rank `from` become rows [to_row, to_row + rows) of rank `to`.
struct RowRun {
  uint32_t from = 0;
  uint64_t from_row = 0;
  uint32_t to = 0;
  uint64_t to_row = 0;
  uint64_t rows = 0;

  friend bool operator==(const RowRun&, const RowRun&) = default;
};

// A one-to-one map of rows to rows. Rows that no run names have nowhere to go, or come from nowhere.
struct Rearrangement {
  uint32_t num_ranks = 0;
  std::vector<RowRun> runs;  // canonical form: by (from, from_row), none empty, none that continues the last
};

// InvalidArgument: a rank that is none, rows beyond 2^63, or two runs with a row in common, on either side.
absl::Status CheckRearrangement(const Rearrangement& rearrangement);

// What undoes it: every row back to where it came from. InvalidArgument: see CheckRearrangement.
absl::StatusOr<Rearrangement> Inverse(const Rearrangement& rearrangement);

// `second` after `first`, in canonical form; O(runs log runs). Rows that either of them leaves out are left
// out. InvalidArgument: see CheckRearrangement; also where the numbers of ranks differ.
absl::StatusOr<Rearrangement> Compose(const Rearrangement& first, const Rearrangement& second);

}  // namespace evenkeel::reorder
