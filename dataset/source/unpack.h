// Decompression of whole objects and of members of archives: gzip (RFC 1952) and Zstandard (RFC 8878), of several members or frames as well.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/packing.h"

namespace evenkeel::dataset {

// Compressed bytes are read in pieces of this size, the last one less.
inline constexpr uint64_t kUnpackPieceBytes = 4 << 20;

// Reads `size` bytes, in order and by up to kUnpackPieceBytes, by `read`, which fills what it is given from an offset; gives what they
// decompress to, in pieces, to `write`. DataLoss: damaged, cut off, or followed by other data; errors of `read` and `write`.
absl::Status Unpack(Packing packing, uint64_t size,
                    absl::FunctionRef<absl::Status(uint64_t, std::span<std::byte>)> read,
                    absl::FunctionRef<absl::Status(std::span<const std::byte>)> write);

}  // namespace evenkeel::dataset
