// Stills from compressed bytes to resized RGB8 in one pass: rows are resized while they are decoded, so that
// the full picture is never in memory unless its format requires it.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(PictureHeader header, ReadPictureHeader(suffix, bytes, limits, options));
//     // header.size is what the processor sees; a family decides the resized size from it
//     PatchWriter writer(shape, resized.width, wire, frames_on_wire, table, pixels);  // preprocess/families/patches.h
//     PictureTarget target{.resized = resized, .filter = ResizeFilter::kBicubic, .sink = &writer};
//     EVENKEEL_RETURN_IF_ERROR(DecodePicture(suffix, bytes, limits, options, header, {&target, 1}));
//
// One decode serves several targets (tiles and a thumbnail, for example). If the decode fails midway, sinks
// have received some rows: the caller overwrites the result, as for every bad item.
//
// Thread safety: free functions; every thread keeps and reuses its own scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "preprocess/image/image.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

enum class ExifOrientation : uint8_t { kIgnore, kApply };

// The interpretation of a decoded picture. The defaults are those of Image.open(...).convert("RGB").
struct PictureOptions {
  Resampler resampler = Resampler::kPil;
  ColourOptions colour;
  ExifOrientation exif_orientation = ExifOrientation::kIgnore;
  // Let libjpeg reduce a JPEG by 2, 4 or 8 to the next size above every target, and resize the result. The
  // bytes are then no longer the resampler's. Ignored if a target is padded to a square.
  bool approximate = false;
};

// The family's options, overridden by the job's. With a resampler other than pil, transparency is blended
// onto white unless one of them sets it. InvalidArgument: an unknown word, with its key.
absl::StatusOr<PictureOptions> PictureOptionsOf(const ProcessorSpec& spec, const PictureOptions& family = {});
std::string_view ResamplerName(Resampler resampler);  // as in the job: "pil13"

struct PictureHeader {
  ImageSize stored;          // in the file
  uint32_t orientation = 1;  // EXIF, 1 to 8; 1: none
  ImageSize size;            // the size that DecodePicture resizes, after the options
  uint64_t stored_bytes = 0;
};

// Decodes no pixel; DecodePicture agrees with it on every file. Errors of ReadImageHeader, and Unimplemented
// for what the options refuse.
absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                                const Limits& limits, const PictureOptions& options);

// The dimensions that a family measures: those of the facts, swapped if the options apply a quarter turn.
ImageSize PictureSize(const MediaFacts& facts, const PictureOptions& options);

// ReadPictureHeader for a picture with known facts. DataLoss: its dimensions differ.
absl::StatusOr<PictureHeader> ReadKnownPictureHeader(std::string_view suffix,
                                                     std::span<const std::byte> bytes, const Limits& limits,
                                                     const PictureOptions& options, const MediaFacts& facts);

// One result: the picture, padded if requested, resized, and of that a window.
struct PictureTarget {
  // First pad the picture with this colour to a centred square of its longer side (LLaVA's expand2square).
  std::optional<Colour> square;
  ImageSize resized;  // size of the whole picture (or square) after resizing
  ResizeFilter filter = ResizeFilter::kBicubic;
  // The part of the resized picture that the sink receives; 0x0: all of it. Pixels outside the picture have the
  // colour `around`: black, like the padding of Hugging Face's centre crop.
  int32_t left = 0;
  int32_t top = 0;
  ImageSize window;
  Colour around = {0, 0, 0};
  RowSink* sink = nullptr;  // receives rows of `window` (or `resized`) from top to bottom
};

// DataLoss: truncated or corrupt, or the dimensions differ from `header`; ResourceExhausted; Unimplemented.
absl::Status DecodePicture(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                           const PictureOptions& options, const PictureHeader& header,
                           std::span<const PictureTarget> targets);

}  // namespace evenkeel::preprocess
