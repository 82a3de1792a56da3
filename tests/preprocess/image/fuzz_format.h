// What the fuzz targets of picture formats do with their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "preprocess/image/image.h"

namespace evenkeel::preprocess {

// Reads the header and decodes the bytes as the format of `suffix`, within small limits. Returns 0, as libFuzzer wants.
inline int FuzzFormat(const std::string& suffix, const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  Limits limits;
  limits.max_image_pixels = 1 << 20;
  const auto header = ReadImageHeader(suffix, bytes, limits);
  if (!header.ok()) return 0;
  std::vector<uint8_t> rgb(header->rgb_bytes());
  (void)DecodeImage(suffix, bytes, limits, *header, rgb);
  return 0;
}

}  // namespace evenkeel::preprocess
