// Any bytes as TIFF: an error of a type, or pixels. Never a crash, never memory beyond the limits.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  evenkeel::Limits limits;
  limits.max_image_pixels = 1 << 20;
  auto header = evenkeel::preprocess::ReadImageHeader("tif", bytes, limits);
  if (!header.ok()) return 0;
  std::vector<uint8_t> rgb(header->rgb_bytes());
  (void)evenkeel::preprocess::DecodeImage("tif", bytes, limits, *header, rgb);
  return 0;
}
