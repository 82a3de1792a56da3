// Copies into memory that will not be read soon.
//
// Example:
//     CopyPastCaches(part.subspan(offset, chunk.size()), chunk);
//
// What is not there: a faster memcpy. Ordinary stores first fetch each line that they overwrite and then push
// others out of the caches; these do neither, which halves the traffic to memory. Worth it where much more is
// written than the caches hold, and a loss where it is read again at once.
//
// Thread safety: functions without state. Ordered before whatever the caller does next, as memcpy is.
#pragma once

#include <cstddef>
#include <span>

namespace evenkeel::transport {

// `to` and `from` have the same size and do not overlap; any alignment.
void CopyPastCaches(std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace evenkeel::transport
