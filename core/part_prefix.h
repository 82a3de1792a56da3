// Numbers that the writer and the reader of parts share. Internal to core.
// Thread safety: constants; needs none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/part.h"

namespace evenkeel {

inline constexpr std::string_view kPartMagic = "EVKP";
inline constexpr uint32_t kPlainPartFormat = 1;
inline constexpr uint32_t kTokensPartFormat = 2;  // a tensor may have a token form
inline constexpr uint32_t kFieldsPartFormat = 3;  // that form may have some of the fields only
static_assert(kFieldsPartFormat == kPartFormatVersion);
inline constexpr uint64_t kPartPrefixBytes = 16;

// What a reader accepts, so that a hostile header cannot make it take memory out of proportion to its size.
inline constexpr size_t kMaxPartTensors = 1024;
inline constexpr size_t kMaxPartKeys = 1 << 20;
inline constexpr size_t kMaxTensorHeaderBytes = 64 << 10;
inline constexpr size_t kMaxTensorNameBytes = 256;
inline constexpr size_t kMaxTensorRank = 8;
inline constexpr uint32_t kMaxExpansionChannels = 16;
inline constexpr uint32_t kMaxExpansionFrames = 64;
inline constexpr uint32_t kMaxExpansionPatch = 1024;

}  // namespace evenkeel
