// Writes rows of pixels into patches in the model's order, in each of the wire forms.
#include "preprocess/families/patches.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kLargestWaitingPatch = 32;
constexpr size_t kWideCopy = 16;
constexpr size_t kCacheLine = 64;
constexpr uint32_t kBlocksAhead = 3;  // how far ahead the target memory is prefetched

// Memory that a thread keeps from one writer to the next.
std::vector<std::vector<uint8_t>>& SpareOfThread() {
  static thread_local std::vector<std::vector<uint8_t>> spare;
  return spare;
}

// Prefetches the cache lines of `count` values that are written soon. The hardware prefetcher cannot follow
// the distances between patches.
template <typename T>
void FetchToWrite(const T* values, size_t count) {
  const char* const bytes = reinterpret_cast<const char*>(values);
  for (size_t i = 0; i < count * sizeof(T) + kCacheLine; i += kCacheLine) __builtin_prefetch(bytes + i, 1);
}

// Copies `count` lines of a patch, one after another.
template <uint32_t kLine>
void CopyLines(const uint8_t* in, size_t stride, uint32_t count, uint32_t line_bytes, uint8_t* out) {
  const uint32_t bytes = kLine != 0 ? kLine : line_bytes;
  uint32_t l = 0;
  // Copies more than a line; the next line overwrites the excess.
  if constexpr (kLine != 0 && kLine < kWideCopy) {
    for (; l + 1 < count; ++l) std::memcpy(out + bytes * l, in + stride * l, kWideCopy);
  }
  for (; l < count; ++l) std::memcpy(out + bytes * l, in + stride * l, bytes);
}

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

// The upper half of a float's bits, rounded to nearest, halves to even: 0x7fff, or 0x8000 if the kept part is
// odd, carries into it where it must. A NaN could become an infinity or a zero that way, so it keeps its bits
// and gets the quiet bit.
uint16_t ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void WriteFloats(std::span<const float> values, DType dtype, std::span<std::byte> out) {
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t rounded = ToBf16(values[i]);
    std::memcpy(out.data() + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
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
  if (shape.patch > kLargestWaitingPatch) return;
  std::vector<std::vector<uint8_t>>& spare = SpareOfThread();
  if (!spare.empty()) {
    waiting_ = std::move(spare.back());
    spare.pop_back();
  }
  const size_t bytes = size_t{3} * width * shape.patch + kWideCopy;
  if (waiting_.size() < bytes) waiting_.resize(bytes);
}

PatchWriter::~PatchWriter() {
  if (!waiting_.empty()) SpareOfThread().push_back(std::move(waiting_));
}

// Writes the lines of each patch and channel. kPatch: the side of a square patch, for sizes that the compiler
// should unroll; else 0. A row of the field is one patch, [3][frames][height][width]. The rows of a block of
// merge x merge patches, which the model merges into one token, follow each other, so along a line of pixels
// patches are in groups of `merge` rows, a block apart.
template <uint32_t kPatch, typename T, typename Convert>
void PatchWriter::PutPatches(const Lines& lines, Convert convert) {
  const uint32_t patch = kPatch != 0 ? kPatch : shape_.width(), merge = shape_.merge;
  const uint32_t height = kPatch != 0 ? kPatch : shape_.patch;
  const uint32_t patch_y = y_ / height, num_patches = width_ / patch;
  const size_t area = size_t{patch} * height;
  const size_t row_values = 3 * area * frames_;
  // The row of this line's first patch: all blocks above, then the block's own rows of patches above.
  const size_t first_row = (size_t{patch_y / merge} * num_patches + patch_y % merge) * merge;
  T* block = reinterpret_cast<T*>(out_.data()) + first_row * row_values + size_t{lines.first} * patch;
  const size_t values = size_t{patch} * lines.count, block_values = row_values * merge * merge;
  for (uint32_t x = 0; x < num_patches; x += merge, block += block_values) {
    const bool goes_on = x + kBlocksAhead * merge < num_patches;
    for (uint32_t m = 0; m < merge; ++m) {
      for (uint32_t c = 0; c < 3; ++c) {
        T* first = block + m * row_values + (c * frames_ + part_.first) * area;
        if (goes_on) FetchToWrite(first + kBlocksAhead * block_values, values);
        const uint8_t* in = lines.plane[c] + size_t{x + m} * patch;
        if constexpr (std::is_same_v<T, uint8_t>) {
          CopyLines<kPatch>(in, lines.stride, lines.count, patch, first);
        } else {
          for (uint32_t l = 0; l < lines.count; ++l) {
            for (uint32_t i = 0; i < patch; ++i) first[patch * l + i] = convert(in[lines.stride * l + i], c);
          }
        }
        for (uint32_t i = 1; i < part_.count; ++i) std::memcpy(first + i * area, first, values * sizeof(T));
      }
    }
  }
}

template <typename T, typename Convert>
void PatchWriter::PutAs(const Lines& lines, Convert convert) {
  const bool square = shape_.width() == shape_.patch;
  if (square && shape_.patch == 14) return PutPatches<14, T>(lines, convert);
  if (square && shape_.patch == 16) return PutPatches<16, T>(lines, convert);
  PutPatches<0, T>(lines, convert);
}

void PatchWriter::Put(const Lines& lines) {
  switch (wire_) {
    case Wire::kU8:
      return PutAs<uint8_t>(lines, [](uint8_t value, uint32_t) { return value; });
    case Wire::kBf16:
      return PutAs<uint16_t>(lines, [this](uint8_t value, uint32_t c) { return rounded_[256 * c + value]; });
    case Wire::kF32: {
      const float* table = table_.data();
      return PutAs<float>(lines, [table](uint8_t value, uint32_t c) { return table[256 * c + value]; });
    }
  }
}

void PatchWriter::Take(const PlanarRow& row) {
  const uint32_t line = y_ % shape_.patch;
  if (waiting_.empty()) {
    Put({{row.plane[0], row.plane[1], row.plane[2]}, 0, line, 1});
  } else {
    const size_t plane_bytes = size_t{width_} * shape_.patch;
    uint8_t* planes = waiting_.data();
    for (uint32_t c = 0; c < 3; ++c) {
      std::memcpy(planes + plane_bytes * c + size_t{width_} * line, row.plane[c], width_);
    }
    if (line + 1 == shape_.patch) {
      Put({{planes, planes + plane_bytes, planes + 2 * plane_bytes}, width_, 0, shape_.patch});
    }
  }
  ++y_;
}

}  // namespace evenkeel::preprocess
