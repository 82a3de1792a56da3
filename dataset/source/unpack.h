// Decompression of whole objects: gzip (RFC 1952) and Zstandard (RFC 8878), of several members or frames as well.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace evenkeel::dataset {

enum class Packing : uint8_t { kNone, kGzip, kZstd };

// By the end of a name: .gz, .tgz; .zst, .zstd.
Packing PackingOf(std::string_view name);

// Reads `size` bytes, in order and by up to 4 MiB, by `read`, which fills what it is given from an offset; gives what they
// decompress to, in pieces, to `write`. DataLoss: damaged, cut off, or followed by other data; errors of `read` and `write`.
absl::Status Unpack(Packing packing, uint64_t size,
                    absl::FunctionRef<absl::Status(uint64_t, std::span<std::byte>)> read,
                    absl::FunctionRef<absl::Status(std::span<const std::byte>)> write);

}  // namespace evenkeel::dataset
