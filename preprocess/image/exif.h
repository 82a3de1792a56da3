// The EXIF orientation of a still, from its container's metadata. Nothing else of EXIF is read.
//
// 1 (as stored) if there is none, if it is damaged, or if its value is not 1 to 8. Only the tag in the first
// directory is used; if it is missing, tiff:Orientation of XMP, as in Pillow's exif_transpose. Compressed
// texts of a PNG are not read, nor EXIF inside its texts ("Raw profile type exif").
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evenkeel::preprocess {

uint32_t JpegOrientation(std::span<const std::byte> file);  // "Exif" APP1 segments, joined; the last XMP
uint32_t PngOrientation(std::span<const std::byte> file);   // the last eXIf chunk and the last XMP text
uint32_t WebpOrientation(std::span<const std::byte> file);  // the chunks that its header announces
uint32_t XmpOrientation(std::span<const std::byte> xmp);    // the first tiff:Orientation of an XMP packet

}  // namespace evenkeel::preprocess
