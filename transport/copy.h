// Copies into memory that will not be read soon.
//
// Example:
//     CopyPastCaches(part.subspan(offset, chunk.size()), chunk);
//
// It is not a faster memcpy. Ordinary stores first read each cache line that they overwrite, and evict other
// lines; these stores do neither, which halves the traffic to memory. That pays if much more is written than
// the caches hold, and costs time if the target is read soon.
//
// Thread safety: functions without state. The stores are ordered before whatever the caller does next, as
// with memcpy.
#pragma once

#include <cstddef>
#include <span>

namespace evenkeel::transport {

// `to` and `from` have the same size and do not overlap; any alignment.
void CopyPastCaches(std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace evenkeel::transport
