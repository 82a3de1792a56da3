#include "preprocess/patches.h"

#include <bit>
#include <cstring>

namespace evenkeel {
namespace {

// Writes one line of `patch` pixels of one channel.
void WriteLine(const uint8_t* pixels, uint32_t patch, const uint8_t*, uint8_t* out) {
  for (uint32_t x = 0; x < patch; ++x) out[x] = pixels[3 * x];
}
template <typename T>
void WriteLine(const uint8_t* pixels, uint32_t patch, const T* table, T* out) {
  for (uint32_t x = 0; x < patch; ++x) out[x] = table[pixels[3 * x]];
}

template <typename T>
void WriteRows(const PatchShape& shape, std::span<const uint8_t* const> frames, uint32_t width,
               uint32_t height, const T* table, T* out) {
  const uint32_t patch = shape.patch;
  const size_t stride = size_t{3} * width;
  const uint32_t side = patch * shape.merge;
  for (uint32_t top = 0; top < height; top += side) {
    for (uint32_t left = 0; left < width; left += side) {
      for (uint32_t block = 0; block < shape.merge * shape.merge; ++block) {
        size_t origin =
            stride * (top + block / shape.merge * patch) + size_t{3} * (left + block % shape.merge * patch);
        for (uint32_t c = 0; c < 3; ++c) {
          for (const uint8_t* frame : frames) {
            const uint8_t* pixels = frame + origin + c;
            for (uint32_t y = 0; y < patch; ++y, out += patch)
              WriteLine(pixels + stride * y, patch, table + 256 * c, out);
          }
        }
      }
    }
  }
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

void WritePatches(const PatchShape& shape, std::span<const uint8_t* const> frames, uint32_t width,
                  uint32_t height, Wire wire, uint32_t frames_on_wire, const std::vector<float>& table,
                  std::span<std::byte> out) {
  switch (wire) {
    case Wire::kU8: {
      static constexpr uint8_t kNoTable[3 * 256] = {};
      WriteRows<uint8_t>(shape, frames.first(frames_on_wire), width, height, kNoTable,
                         reinterpret_cast<uint8_t*>(out.data()));
      return;
    }
    case Wire::kBf16: {
      std::array<uint16_t, 3 * 256> rounded;
      for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = ToBf16(table[i]);
      WriteRows<uint16_t>(shape, frames, width, height, rounded.data(),
                          reinterpret_cast<uint16_t*>(out.data()));
      return;
    }
    case Wire::kF32:
      WriteRows<float>(shape, frames, width, height, table.data(), reinterpret_cast<float*>(out.data()));
      return;
  }
}

PatchWriter::PatchWriter(const PatchShape& shape, uint32_t width, Wire wire, uint32_t frames_on_wire,
                         const std::vector<float>& table, std::span<std::byte> out)
    : shape_(shape), width_(width), wire_(wire), copies_(frames_on_wire), table_(table), out_(out) {}

template <typename T, typename Convert>
void PatchWriter::Put(const PlanarRow& row, Convert convert) {
  const uint32_t patch = shape_.patch, merge = shape_.merge;
  const uint32_t patch_y = y_ / patch, line = y_ % patch;
  const size_t area = size_t{patch} * patch;
  const size_t row_values = 3 * area * copies_;
  T* out = reinterpret_cast<T*>(out_.data()) + size_t{line} * patch;
  for (uint32_t patch_x = 0; patch_x * patch < width_; ++patch_x) {
    const size_t block = size_t{patch_y / merge} * (width_ / patch / merge) + patch_x / merge;
    const size_t index = (block * merge + patch_y % merge) * merge + patch_x % merge;
    for (uint32_t c = 0; c < 3; ++c) {
      T* first = out + index * row_values + c * copies_ * area;
      convert(row.plane[c] + patch_x * patch, c, first);
      for (uint32_t i = 1; i < copies_; ++i) std::memcpy(first + i * area, first, patch * sizeof(T));
    }
  }
}

void PatchWriter::Take(const PlanarRow& row) {
  const uint32_t patch = shape_.patch;
  switch (wire_) {
    case Wire::kU8:
      Put<uint8_t>(row, [&](const uint8_t* in, uint32_t, uint8_t* out) { std::memcpy(out, in, patch); });
      break;
    case Wire::kBf16:
      Put<uint16_t>(row, [&](const uint8_t* in, uint32_t c, uint16_t* out) {
        for (uint32_t x = 0; x < patch; ++x) out[x] = ToBf16(table_[256 * c + in[x]]);
      });
      break;
    case Wire::kF32:
      Put<float>(row, [&](const uint8_t* in, uint32_t c, float* out) {
        for (uint32_t x = 0; x < patch; ++x) out[x] = table_[256 * c + in[x]];
      });
      break;
  }
  ++y_;
}

}  // namespace evenkeel
