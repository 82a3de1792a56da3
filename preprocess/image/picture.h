// Stills from their compressed bytes to resized RGB8, in one pass: rows are resized while they are decoded,
// so that the full picture is never held where its format allows that.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(PictureHeader header, ReadPictureHeader(suffix, bytes, limits, options));
//     // header.size is what the processor sees; a family decides the resized size from it
//     PatchWriter writer(shape, resized.width, wire, frames_on_wire, table, pixels);  // preprocess/families/patches.h
//     PictureTarget target{.resized = resized, .filter = ResizeFilter::kBicubic, .sink = &writer};
//     EVENKEEL_RETURN_IF_ERROR(DecodePicture(suffix, bytes, limits, options, header, {&target, 1}));
//
// One decode serves several targets (tiles and a thumbnail, say). Where the decode fails midway, sinks have
// received some rows: the caller overwrites what they wrote, as for every bad item.
//
// Thread safety: free functions; scratch memory is kept by each thread and reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/job.h"
#include "core/words.h"
#include "preprocess/image/image.h"
#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

enum class ExifOrientation : uint8_t { kIgnore, kApply };

// What a decoded picture means. The defaults are those of Image.open(...).convert("RGB").
struct PictureOptions {
  Resampler resampler = Resampler::kPil;
  ColourOptions colour;
  ExifOrientation exif_orientation = ExifOrientation::kIgnore;
  // Let libjpeg reduce a JPEG by 2, 4 or 8, to the next size above every target, and resize that. No longer
  // the resampler's bytes. Not where a target is padded to a square.
  bool approximate = false;
};

// The family's options with what the job asks for instead; with another resampler than pil, transparency is
// blended onto white unless either says otherwise. InvalidArgument: an unknown word, with its key.
absl::StatusOr<PictureOptions> PictureOptionsOf(const ProcessorSpec& spec, const PictureOptions& family = {});
// Every option that changes values, for the family's AddTo. Nothing is added for defaults but the resampler.
void AddTo(CanonicalText& text, const PictureOptions& options);

struct PictureHeader {
  ImageSize stored;          // in the file
  uint32_t orientation = 1;  // EXIF, 1 to 8; 1 where there is none
  ImageSize size;            // what DecodePicture resizes: after the options
  uint64_t stored_bytes = 0;
};

// Decodes no pixel; DecodePicture agrees with it on every file. Errors as ReadImageHeader, and Unimplemented
// for what the options refuse.
absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view suffix, std::span<const std::byte> bytes,
                                                const Limits& limits, const PictureOptions& options);

// The dimensions that a family measures: the facts' own, or swapped where the options apply a quarter turn.
ImageSize PictureSize(const MediaFacts& facts, const PictureOptions& options);

// As ReadPictureHeader, of a picture whose facts are known. DataLoss: it has other dimensions.
absl::StatusOr<PictureHeader> ReadKnownPictureHeader(std::string_view suffix,
                                                     std::span<const std::byte> bytes, const Limits& limits,
                                                     const PictureOptions& options, const MediaFacts& facts);

// One result: the picture on its canvas, resized; of that, a window.
struct PictureTarget {
  // Pad the picture to a square of its longer side first, centred (LLaVA's expand2square), with this colour.
  std::optional<Colour> square;
  ImageSize resized;  // of the whole picture (or square)
  ResizeFilter filter = ResizeFilter::kBicubic;
  // The part of the resized picture that the sink receives; all of it where its size is 0x0. What lies beyond
  // the picture is black, as a centre crop of Hugging Face pads.
  int32_t left = 0;
  int32_t top = 0;
  ImageSize window;
  RowSink* sink = nullptr;  // receives rows of `window` (or `resized`), top to bottom, each once
};

// DataLoss: truncated or corrupt, or other dimensions than `header` says; ResourceExhausted; Unimplemented.
absl::Status DecodePicture(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                           const PictureOptions& options, const PictureHeader& header,
                           std::span<const PictureTarget> targets);

}  // namespace evenkeel::preprocess
