// The chunks of a PNG as they stand in the file, for what libpng does not tell of them.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace evenkeel {

// What the last chunk of this type holds, wherever it stands; nothing where there is none before the end of
// the file or of what can be read. A view of `file`. Checksums are not looked at.
inline std::optional<std::span<const std::byte>> LastPngChunk(std::span<const std::byte> file,
                                                              std::string_view type) {
  constexpr size_t kSignature = 8, kLength = 4, kHead = 8, kAround = 12;  // length, type and checksum
  std::optional<std::span<const std::byte>> last;
  for (size_t at = kSignature; at + kAround <= file.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < kLength; ++i) length = length << 8 | std::to_integer<uint64_t>(file[at + i]);
    if (length > file.size() - at - kAround) break;
    if (std::memcmp(file.data() + at + kLength, type.data(), type.size()) == 0)
      last = file.subspan(at + kHead, length);
    at += kAround + length;
  }
  return last;
}

}  // namespace evenkeel
