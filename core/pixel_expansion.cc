// Expands u8 pixels to f32 in the consumer. The worker sends bytes and a table with 256 floats per channel,
// so that the result is a table look-up and equals the worker's values bit for bit.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/part.h"
#include "core/part_prefix.h"

namespace evenkeel {
namespace {

// A row on the wire has channels x frames_on_wire x area bytes, a row of the result channels x frames x area
// floats. Both must divide their buffer and give the same number of rows.
absl::Status Check(const PixelExpansion& e, size_t in_bytes, size_t out_floats) {
  if (e.channels == 0 || e.channels > kMaxExpansionChannels || e.frames == 0 ||
      e.frames > kMaxExpansionFrames || e.frames_on_wire == 0 || e.frames_on_wire > e.frames ||
      e.patch == 0 || e.patch > kMaxExpansionPatch || e.patch_width > kMaxExpansionPatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("pixel expansion: impossible form: ", e.channels, " channels, ", e.frames_on_wire,
                     " of ", e.frames, " frames, patch ", e.patch, " high, ", e.patch_width, " wide"));
  }
  if (e.table.size() != 256ull * e.channels) {
    return absl::InvalidArgumentError(absl::StrCat("pixel expansion: a table of ", e.table.size(),
                                                   " values for ", e.channels,
                                                   " channels, expected 256 each"));
  }
  uint64_t area = e.area();
  uint64_t wire_row = area * e.channels * e.frames_on_wire;
  uint64_t final_row = area * e.channels * e.frames;
  if (in_bytes % wire_row != 0 || out_floats % final_row != 0 ||
      in_bytes / wire_row != out_floats / final_row) {
    return absl::InvalidArgumentError(absl::StrCat("pixel expansion: ", in_bytes, " bytes in rows of ",
                                                   wire_row, " do not become ", out_floats,
                                                   " floats in rows of ", final_row));
  }
  return absl::OkStatus();
}

// out[i] = table[in[i]], for the pixels of one channel.
void LookUp(const float* table, const std::byte* in, size_t count, float* out) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    // Eight bytes are loaded at once. On a little-endian machine the byte at the lowest address is the lowest
    // of the word.
    uint64_t word;
    std::memcpy(&word, in + i, sizeof(word));
    for (int b = 0; b < 8; ++b) out[i + b] = table[(word >> (8 * b)) & 0xff];
  }
  for (; i < count; ++i) out[i] = table[std::to_integer<uint8_t>(in[i])];
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire form is little-endian");

}  // namespace

absl::Status ExpandPixels(const PixelExpansion& e, std::span<const std::byte> in, std::span<float> out) {
  if (absl::Status status = Check(e, in.size(), out.size()); !status.ok()) return status;
  const size_t area = e.area();
  const size_t wire_channel = area * e.frames_on_wire;
  const std::byte* from = in.data();
  const std::byte* end = from + in.size();
  float* to = out.data();
  while (from != end) {
    for (uint32_t c = 0; c < e.channels; ++c) {
      LookUp(e.table.data() + size_t{256} * c, from, wire_channel, to);
      // A still picture is sent as one frame, and a vision tower with a temporal patch of two expects it
      // twice.
      for (uint32_t f = e.frames_on_wire; f < e.frames; ++f) {
        std::memcpy(to + f * area, to + (f - e.frames_on_wire) * area, area * sizeof(float));
      }
      from += wire_channel;
      to += e.frames * area;
    }
  }
  return absl::OkStatus();
}

}  // namespace evenkeel
