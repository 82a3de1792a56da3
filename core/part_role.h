// The part that a member of a replica receives of its replica's part: the fields that its role needs.
//
// A worker makes whole parts alone; what a role receives is cut out of one. docs/parallelism.md has the table of fields.
//
// Example:
//     const PartLayout layout = RoleLayout(whole_layout, PartRole::kLast);
//     uint64_t num_bytes = layout.total_bytes();  // of `buffer`; known before the part is made
//     EVENKEEL_RETURN_IF_ERROR(WriteRolePart(whole_part, PartRole::kLast, buffer));
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/mesh.h"
#include "core/part.h"

namespace evenkeel {

// Whether a member with the role receives parts of the phase at all: middle stages get none of encoders.
bool RoleReceives(PartRole role, const Phase& phase);

// True if the role's part is the whole one.
bool RoleIsWhole(PartRole role, const Phase& phase);

// The layout of the role's part. `whole`: as its task or ReadPartLayout gives it.
PartLayout RoleLayout(const PartLayout& whole, PartRole role);

// Writes the role's part into `out`, which has RoleLayout(...).total_bytes(). `whole`: a part in the form that workers
// make. DataLoss: it is none. InvalidArgument: `out` has another size.
absl::Status WriteRolePart(std::span<const std::byte> whole, PartRole role, std::span<std::byte> out);

}  // namespace evenkeel
