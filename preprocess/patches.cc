#include "preprocess/patches.h"

#include <bit>
#include <cstring>

namespace evenkeel {
namespace {

std::array<uint16_t, 3 * 256> Rounded(const std::vector<float>& table) {
  std::array<uint16_t, 3 * 256> rounded;
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = ToBf16(table[i]);
  return rounded;
}

}  // namespace

std::vector<float> NormalizationTable(double rescale, const std::array<double, 3>& mean,
                                      const std::array<double, 3>& std) {
  std::vector<float> table(3 * 256);
  for (int c = 0; c < 3; ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      float x = static_cast<float>(byte * rescale);
      table[256 * c + byte] = (x - static_cast<float>(mean[c])) / static_cast<float>(std[c]);
    }
  }
  return table;
}

uint16_t ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

PatchWriter::PatchWriter(const PatchShape& shape, uint32_t width, Wire wire, uint32_t frames_on_wire,
                         Part part, const std::vector<float>& table, std::span<std::byte> out)
    : shape_(shape),
      width_(width),
      wire_(wire),
      frames_(frames_on_wire),
      part_(part),
      table_(table),
      out_(out) {
  if (wire == Wire::kBf16) rounded_ = Rounded(table);
}

// One row of pixels: a line of `patch` values for each patch and channel. kPatch is the patch's side where
// the compiler should know it, else 0.
template <uint32_t kPatch, typename T, typename Convert>
void PatchWriter::Put(const PlanarRow& row, Convert convert) {
  const uint32_t patch = kPatch != 0 ? kPatch : shape_.patch, merge = shape_.merge;
  const uint32_t patch_y = y_ / patch, line = y_ % patch, num_patches = width_ / patch;
  const size_t area = size_t{patch} * patch;
  const size_t row_values = 3 * area * frames_;
  // A block of merge x merge patches follows the one to its left, and those above.
  const size_t first_row = (size_t{patch_y / merge} * num_patches + patch_y % merge) * merge;
  T* block = reinterpret_cast<T*>(out_.data()) + first_row * row_values + size_t{line} * patch;
  for (uint32_t x = 0; x < num_patches; x += merge, block += row_values * merge * merge) {
    for (uint32_t m = 0; m < merge; ++m) {
      for (uint32_t c = 0; c < 3; ++c) {
        T* first = block + m * row_values + (c * frames_ + part_.first) * area;
        convert(row.plane[c] + size_t{x + m} * patch, c, patch, first);
        for (uint32_t i = 1; i < part_.count; ++i) std::memcpy(first + i * area, first, patch * sizeof(T));
      }
    }
  }
}

template <typename T, typename Convert>
void PatchWriter::PutAny(const PlanarRow& row, Convert convert) {
  if (shape_.patch == 14) return Put<14, T>(row, convert);
  if (shape_.patch == 16) return Put<16, T>(row, convert);
  Put<0, T>(row, convert);
}

void PatchWriter::Take(const PlanarRow& row) {
  auto look_up = [](const auto& table) {
    return [&table](const uint8_t* in, uint32_t c, uint32_t count, auto* out) {
      for (uint32_t x = 0; x < count; ++x) out[x] = table[256 * c + in[x]];
    };
  };
  switch (wire_) {
    case Wire::kU8:
      PutAny<uint8_t>(row, [](const uint8_t* in, uint32_t, uint32_t count, uint8_t* out) {
        std::memcpy(out, in, count);
      });
      break;
    case Wire::kBf16:
      PutAny<uint16_t>(row, look_up(rounded_));
      break;
    case Wire::kF32:
      PutAny<float>(row, look_up(table_));
      break;
  }
  ++y_;
}

}  // namespace evenkeel
