// Stills: JPEG, PNG, WebP -> RGB8, exactly the bytes of Pillow's `Image.open(...).convert("RGB")`.
//
// Alpha is dropped (hidden colours show) and EXIF is ignored, as the model's own processor does. The declared
// type and the magic must agree; nothing is probed. Every limit is enforced before memory is taken.
//
//   EVENKEEL_ASSIGN_OR_RETURN(ImageHeader header, ReadImageHeader("jpg", bytes, limits));
//   std::vector<uint8_t> rgb(header.rgb_bytes());
//   EVENKEEL_RETURN_IF_ERROR(DecodeImage("jpg", bytes, limits, header, rgb));   // [height, width, 3]
//
// Thread safety: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"

namespace evenkeel {

struct ImageHeader {
  uint32_t width = 0;
  uint32_t height = 0;
  uint64_t stored_bytes = 0;  // of the pixels in the file's own layout, before compression

  uint64_t rgb_bytes() const { return uint64_t{3} * width * height; }
};

// One still format. `ReadHeader` decodes no pixel; the decoder agrees with it on every file.
class ImageCodec {
 public:
  virtual ~ImageCodec() = default;
  virtual bool HasMagic(std::span<const std::byte> bytes) const = 0;
  // InvalidArgument: damaged; Unimplemented: a variant without a promise.
  virtual absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes,
                                                 const Limits& limits) const = 0;
  // `rgb` has header.rgb_bytes(). DataLoss: truncated or corrupt, with how far it got; ResourceExhausted.
  virtual absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits,
                              const ImageHeader& header, std::span<uint8_t> rgb) const = 0;
};

const ImageCodec& JpegCodec();  // jpeg.cc
const ImageCodec& PngCodec();   // png.cc
const ImageCodec& WebpCodec();  // webp.cc

// The codec that `suffix` declares ("jpg", "jpeg", "png", "webp" after its last dot), with its magic checked.
// Unimplemented: no such format here; InvalidArgument: the bytes are something else.
absl::StatusOr<const ImageCodec*> ImageCodecOf(std::string_view suffix, std::span<const std::byte> bytes);

// Header and limits. InvalidArgument, ResourceExhausted, Unimplemented.
absl::StatusOr<ImageHeader> ReadImageHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                            const Limits& limits);
// As ReadImageHeader and ImageCodec::Decode. `rgb` must have header.rgb_bytes().
absl::Status DecodeImage(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const ImageHeader& header, std::span<uint8_t> rgb);

}  // namespace evenkeel
