// The chunks of a PNG file, for those that libpng's functions do not return.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace evenkeel::preprocess {

// Calls take(type, content) for every chunk until the end of the file or the first unreadable one. Contents
// are views of `file`. Checksums are not checked.
template <typename Take>
void ForEachPngChunk(std::span<const std::byte> file, const Take& take) {
  constexpr size_t kSignature = 8, kLength = 4, kHead = 8, kAround = 12;  // length, type and checksum
  for (size_t at = kSignature; at + kAround <= file.size();) {
    uint64_t length = 0;
    for (size_t i = 0; i < kLength; ++i) length = length << 8 | std::to_integer<uint64_t>(file[at + i]);
    if (length > file.size() - at - kAround) break;
    const auto* type = reinterpret_cast<const char*>(file.data() + at + kLength);
    take(std::string_view(type, kHead - kLength), file.subspan(at + kHead, length));
    at += kAround + length;
  }
}

// The content of the last chunk of this type; nullopt: there is none.
inline std::optional<std::span<const std::byte>> LastPngChunk(std::span<const std::byte> file,
                                                              std::string_view type) {
  std::optional<std::span<const std::byte>> last;
  ForEachPngChunk(file, [&](std::string_view found, std::span<const std::byte> body) {
    if (found == type) last = body;
  });
  return last;
}

}  // namespace evenkeel::preprocess
