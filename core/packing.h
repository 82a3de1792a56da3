// How an object is compressed as a whole, by the end of its name.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace evenkeel {

enum class Packing : uint8_t { kNone, kGzip, kZstd };

struct PackedEnd {
  std::string_view end;  // after a name that has an end of its own: a.tar.gz
  Packing packing;
};
inline constexpr std::array<PackedEnd, 3> kPackedEnds = {
    {{".gz", Packing::kGzip}, {".zst", Packing::kZstd}, {".zstd", Packing::kZstd}}};
inline constexpr std::string_view kPackedTarEnd = ".tgz";  // of .tar.gz

inline Packing PackingOf(std::string_view name) {
  for (const PackedEnd& packed : kPackedEnds)
    if (name.ends_with(packed.end)) return packed.packing;
  return name.ends_with(kPackedTarEnd) ? Packing::kGzip : Packing::kNone;
}

// "a.jsonl" of "a.jsonl.gz"; other names as they are.
inline std::string_view WithoutPackedEnd(std::string_view name) {
  for (const PackedEnd& packed : kPackedEnds)
    if (name.ends_with(packed.end)) return name.substr(0, name.size() - packed.end.size());
  return name;
}

}  // namespace evenkeel
