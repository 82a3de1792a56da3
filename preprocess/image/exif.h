// The EXIF orientation of a still, from its container's metadata. Nothing else of EXIF is read.
//
// 1 (as stored) where there is none, where it is damaged, or where its value is not 1 to 8. Only the tag in
// the first directory counts, and where there is no such tag, tiff:Orientation of XMP, as for Pillow's
// exif_transpose. Compressed texts of a PNG are not read, nor EXIF in its texts ("Raw profile type exif").
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evenkeel::preprocess {

uint32_t JpegOrientation(
    std::span<const std::byte> file);                      // APP1 segments of "Exif", joined; the last of XMP
uint32_t PngOrientation(std::span<const std::byte> file);  // the eXIf chunk and the text of XMP, the last
uint32_t WebpOrientation(std::span<const std::byte> file);  // the chunks that its head announces

}  // namespace evenkeel::preprocess
