// TIFF through libtiff: the first page, turned upright by its orientation, as Pillow loads it. The only file that
// includes the library.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/exif.h"
#include "preprocess/image/image.h"
#include "preprocess/image/sample_rows.h"
#include "preprocess/image/turned_picture.h"

namespace evenkeel::preprocess {
namespace {

using Palette = std::array<Colour, 256>;

// A file in memory, and the library's first complaint about it.
struct Input {
  std::span<const std::byte> bytes;
  size_t position = 0;
  char message[160] = {};
};

Input& InputOf(thandle_t handle) { return *static_cast<Input*>(handle); }

tmsize_t Read(thandle_t handle, void* out, tmsize_t size) {
  Input& input = InputOf(handle);
  const size_t left = input.bytes.size() - std::min(input.position, input.bytes.size());
  const size_t count = std::min(static_cast<size_t>(std::max<tmsize_t>(size, 0)), left);
  if (count != 0) std::memcpy(out, input.bytes.data() + input.position, count);
  input.position += count;
  return static_cast<tmsize_t>(count);
}

tmsize_t Write(thandle_t, void*, tmsize_t) { return 0; }

toff_t Seek(thandle_t handle, toff_t offset, int from) {
  Input& input = InputOf(handle);
  const size_t base = from == SEEK_CUR ? input.position : from == SEEK_END ? input.bytes.size() : 0;
  input.position = base + offset;
  return input.position;
}

int Close(thandle_t) { return 0; }
toff_t SizeOf(thandle_t handle) { return InputOf(handle).bytes.size(); }

// For errors and warnings. A nonzero result keeps the library from printing it.
int OnMessage(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  Input& input = *static_cast<Input*>(user);
  if (input.message[0] == '\0') std::vsnprintf(input.message, sizeof(input.message), format, arguments);
  return 1;
}

using TiffPtr = std::unique_ptr<TIFF, void (*)(TIFF*)>;

// The library allocates what the directory names (at most 8 bytes for each stored offset of 2), and buffers for the
// chunks that are decoded: no allocation is larger than this. 'm': no memory mapping.
TiffPtr Open(Input& input, uint64_t decoded_bytes) {
  constexpr uint64_t kSmallBytes = 1 << 20;
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  const uint64_t most = kSmallBytes + 4 * input.bytes.size() + decoded_bytes;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(most));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), OnMessage, &input);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), OnMessage, &input);
  return {TIFFClientOpenExt("TIFF", "rm", &input, Read, Write, Seek, Close, SizeOf, nullptr, nullptr,
                            options.get()),
          TIFFClose};
}

// A tag of one value, or the library's default.
template <typename T>
T TagOf(TIFF* tiff, uint32_t tag) {
  T value = 0;
  TIFFGetFieldDefaulted(tiff, tag, &value);
  return value;
}

// The first page. Chunks are strips of whole rows, or tiles.
struct Page {
  ImageSize stored;  // as the pixels are stored
  uint32_t orientation = 1;
  SampleLayout layout;
  Palette palette{};
  bool tiled = false;
  ImageSize chunk;
  uint64_t chunk_bytes = 0;  // decoded, of one plane if samples are separate
  uint64_t row_bytes = 0;    // of a chunk's row

  uint32_t planes() const { return layout.separate ? layout.samples : 1; }
  uint32_t across() const { return (stored.width + chunk.width - 1) / chunk.width; }
  uint32_t down() const { return (stored.height + chunk.height - 1) / chunk.height; }
  uint64_t decoded_bytes() const { return chunk_bytes * across() * down() * planes(); }
  ImageSize upright() const { return Turns(orientation) ? ImageSize{stored.height, stored.width} : stored; }
};

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(
      "TIFF: ", what,
      "; supported are 1, 2, 4, 8 and 16 bits of grey, RGB and palettes, CMYK of 8 bits and YCbCr in "
      "JPEG, stored as they are or by CCITT, LZW, JPEG, deflate or PackBits"));
}

absl::Status CheckCompression(TIFF* tiff) {
  const auto compression = TagOf<uint16_t>(tiff, TIFFTAG_COMPRESSION);
  for (int known :
       {COMPRESSION_NONE, COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4, COMPRESSION_LZW,
        COMPRESSION_JPEG, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS, COMPRESSION_DEFLATE}) {
    if (compression == known && TIFFIsCODECConfigured(compression) != 0) return absl::OkStatus();
  }
  return Unsupported(absl::StrCat("compression ", compression));
}

// The colours of PhotometricInterpretation. The library converts the YCbCr of a JPEG, as Pillow asks it to.
absl::StatusOr<SampleLayout::Colours> ColoursOf(TIFF* tiff) {
  using Colours = SampleLayout::Colours;
  uint16_t photometric = 0;
  if (TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric) == 0)
    return absl::InvalidArgumentError("TIFF without a PhotometricInterpretation");
  switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
      return Colours::kInvertedGrey;
    case PHOTOMETRIC_MINISBLACK:
      return Colours::kGrey;
    case PHOTOMETRIC_RGB:
      return Colours::kRgb;
    case PHOTOMETRIC_PALETTE:
      return Colours::kPalette;
    case PHOTOMETRIC_SEPARATED:
      return Colours::kCmyk;
    case PHOTOMETRIC_YCBCR:
      if (TagOf<uint16_t>(tiff, TIFFTAG_COMPRESSION) == COMPRESSION_JPEG &&
          TagOf<uint16_t>(tiff, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_CONTIG &&
          TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) != 0) {
        return Colours::kRgb;
      }
      return Unsupported("YCbCr other than in JPEG");
    default:
      return Unsupported(absl::StrCat("PhotometricInterpretation ", photometric));
  }
}

// Which sample is the alpha, by the rules of Pillow's table of layouts. Four samples of RGB without a tag are RGBA.
absl::StatusOr<SampleLayout::Alpha> AlphaOf(TIFF* tiff, const SampleLayout& layout) {
  using Alpha = SampleLayout::Alpha;
  constexpr uint32_t kMaxExtra = 3;
  uint16_t count = 0;
  uint16_t* kinds = nullptr;
  const bool tagged = TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 0;
  const bool rgb = layout.colours == SampleLayout::Colours::kRgb;
  if (!tagged && rgb && layout.samples == 4 && !layout.separate) return Alpha::kStraight;
  if (!tagged) count = 0;
  const bool many = rgb || layout.colours == SampleLayout::Colours::kCmyk;
  if (layout.samples != layout.num_colours() + count || count > (many ? kMaxExtra : 1) ||
      (count != 0 && layout.bits < 8)) {
    return Unsupported(absl::StrCat(layout.samples, " samples a pixel, ", count, " of them extra"));
  }
  if (count == 0 || kinds[0] == EXTRASAMPLE_UNSPECIFIED) return Alpha::kNone;
  if (layout.colours == SampleLayout::Colours::kCmyk) return Unsupported("CMYK with transparency");
  if (layout.separate && count > 1) return Unsupported("transparency among several extra planes");
  if (kinds[0] == EXTRASAMPLE_UNASSALPHA) return Alpha::kStraight;
  if (!rgb || layout.separate) return Unsupported("premultiplied colours other than RGB in one plane");
  return Alpha::kPremultiplied;
}

absl::StatusOr<SampleLayout> LayoutOf(TIFF* tiff) {
  using Colours = SampleLayout::Colours;
  SampleLayout layout;
  EVENKEEL_ASSIGN_OR_RETURN(layout.colours, ColoursOf(tiff));
  layout.bits = TagOf<uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE);
  layout.samples = TagOf<uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL);
  layout.separate =
      layout.samples > 1 && TagOf<uint16_t>(tiff, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
  const auto format = TagOf<uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT);
  if (format != SAMPLEFORMAT_UINT)
    return Unsupported(absl::StrCat("samples of format ", format, ", not unsigned whole numbers"));
  const bool narrow = layout.bits == 1 || layout.bits == 2 || layout.bits == 4;
  const bool wide = layout.bits == 16;
  if (!(narrow || wide || layout.bits == 8) || (narrow && layout.samples != 1) ||
      (narrow && layout.num_colours() != 1)) {
    return Unsupported(absl::StrCat(layout.samples, " samples of ", layout.bits, " bits"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(layout.alpha, AlphaOf(tiff, layout));
  const bool wide_known =
      layout.colours == Colours::kRgb || (layout.colours == Colours::kGrey && layout.samples == 1);
  if (wide &&
      (!wide_known || layout.separate || TagOf<uint16_t>(tiff, TIFFTAG_FILLORDER) != FILLORDER_MSB2LSB ||
       layout.samples > layout.num_colours() + 1)) {
    return Unsupported("16 bits of other than grey alone, RGB or RGBA in one plane");
  }
  return layout;
}

absl::Status CheckOptions(const SampleLayout& layout, const ColourOptions& options) {
  using Colours = SampleLayout::Colours;
  if (layout.colours == Colours::kPalette && options.palette == Conversion::kRefuse)
    return absl::UnimplementedError("TIFF with a palette; the job's processor.palette is refuse");
  if (layout.colours == Colours::kCmyk && options.cmyk == Conversion::kRefuse)
    return absl::UnimplementedError("TIFF of CMYK; the job's processor.cmyk is refuse");
  if (layout.bits != 16) return absl::OkStatus();
  if (options.sixteen_bit == SixteenBit::kRefuse)
    return absl::UnimplementedError("TIFF of 16 bits; the job's processor.sixteen_bit is refuse");
  if (layout.samples == 1 && options.sixteen_bit == SixteenBit::kRefuseGrey) {
    return absl::UnimplementedError(
        "TIFF of one 16-bit grey channel: Pillow's releases disagree about its values; the job's "
        "processor.sixteen_bit can be clip_grey or high_byte");
  }
  return absl::OkStatus();
}

// The tag's, else that of the XMP packet, as in Pillow's exif_transpose.
uint32_t OrientationOf(TIFF* tiff) {
  uint16_t orientation = 0;
  if (TIFFGetField(tiff, TIFFTAG_ORIENTATION, &orientation) != 0) return orientation;
  uint32_t size = 0;
  const void* xmp = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_XMLPACKET, &size, &xmp) == 0) return 1;
  return XmpOrientation({static_cast<const std::byte*>(xmp), size});
}

absl::Status ReadPalette(TIFF* tiff, Page* page) {
  uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_COLORMAP, &red, &green, &blue) == 0)
    return absl::InvalidArgumentError("TIFF: a picture with a palette has no ColorMap");
  for (size_t i = 0; i < size_t{1} << page->layout.bits; ++i) {
    const auto high = [](uint16_t wide) { return static_cast<uint8_t>(wide >> 8); };
    page->palette[i] = {high(red[i]), high(green[i]), high(blue[i])};
  }
  return absl::OkStatus();
}

// The sizes of chunks come from the file: nothing is allocated by them before the limits are checked.
absl::Status ReadChunks(TIFF* tiff, const Limits& limits, Page* page) {
  page->tiled = TIFFIsTiled(tiff) != 0;
  if (page->tiled) {
    page->chunk = {TagOf<uint32_t>(tiff, TIFFTAG_TILEWIDTH), TagOf<uint32_t>(tiff, TIFFTAG_TILELENGTH)};
  } else {
    page->chunk = {page->stored.width,
                   std::min(TagOf<uint32_t>(tiff, TIFFTAG_ROWSPERSTRIP), page->stored.height)};
  }
  for (const ImageSize& size : {page->stored, page->chunk}) {
    if (size.width == 0 || size.height == 0)
      return absl::InvalidArgumentError("TIFF: a picture, tile or strip of 0 pixels");
    if (std::max(size.width, size.height) > limits.max_image_side) {
      return absl::ResourceExhaustedError(absl::StrCat("TIFF: a picture or tile of ", size.width, "x",
                                                       size.height, " pixels; limits.max_image_side is ",
                                                       limits.max_image_side));
    }
  }
  const SampleLayout& layout = page->layout;
  const uint64_t row_bits =
      uint64_t{page->chunk.width} * layout.bits * (layout.separate ? 1 : layout.samples);
  page->row_bytes = (row_bits + 7) / 8;
  page->chunk_bytes = page->row_bytes * page->chunk.height;
  return absl::OkStatus();
}

absl::StatusOr<Page> ReadPage(TIFF* tiff, const Limits& limits, const ColourOptions& options) {
  Page page;
  page.stored = {TagOf<uint32_t>(tiff, TIFFTAG_IMAGEWIDTH), TagOf<uint32_t>(tiff, TIFFTAG_IMAGELENGTH)};
  EVENKEEL_RETURN_IF_ERROR(CheckCompression(tiff));
  EVENKEEL_ASSIGN_OR_RETURN(page.layout, LayoutOf(tiff));
  EVENKEEL_RETURN_IF_ERROR(CheckOptions(page.layout, options));
  page.orientation = OrientationOf(tiff);
  if (page.layout.colours == SampleLayout::Colours::kPalette)
    EVENKEEL_RETURN_IF_ERROR(ReadPalette(tiff, &page));
  EVENKEEL_RETURN_IF_ERROR(ReadChunks(tiff, limits, &page));
  return page;
}

// Decodes one chunk. The library's warnings count: Pillow's copy and this one may continue differently after them.
absl::Status ReadChunk(TIFF* tiff, Input& input, const Page& page, ImageSize at, uint32_t plane,
                       uint8_t* out) {
  const uint32_t rows =
      page.tiled ? page.chunk.height : std::min(page.chunk.height, page.stored.height - at.height);
  const auto size = static_cast<tmsize_t>(page.row_bytes * rows);
  const auto sample = static_cast<uint16_t>(plane);
  std::memset(out, 0, page.chunk_bytes);
  input.message[0] = '\0';
  const tmsize_t read =
      page.tiled ? TIFFReadEncodedTile(tiff, TIFFComputeTile(tiff, at.width, at.height, 0, sample), out, size)
                 : TIFFReadEncodedStrip(tiff, TIFFComputeStrip(tiff, at.height, sample), out, size);
  if (read == size && input.message[0] == '\0') return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("TIFF of ", input.bytes.size(), " bytes, row ", at.height, " of ",
                                          page.stored.height, ": ",
                                          input.message[0] != '\0' ? input.message : "the data end"));
}

// Decodes all chunks of as many rows as a chunk has, for each such band, and passes them on as RGB.
absl::Status DecodePage(TIFF* tiff, Input& input, const Page& page, const ColourOptions& options,
                        BandSink& sink) {
  static thread_local ScratchBytes chunk_memory, row_memory;
  const uint32_t across = page.across();
  uint8_t* const chunks = chunk_memory.Get(page.chunk_bytes * across * page.planes());
  uint8_t* const rgb = row_memory.Get(size_t{3} * page.stored.width);
  SampleRows rows(page.layout, page.palette, options, page.stored.width);
  const auto chunk_at = [&](uint32_t plane, uint32_t i) {
    return chunks + page.chunk_bytes * (size_t{plane} * across + i);
  };
  for (uint32_t top = 0; top < page.stored.height; top += page.chunk.height) {
    for (uint32_t plane = 0; plane < page.planes(); ++plane) {
      for (uint32_t i = 0; i < across; ++i) {
        EVENKEEL_RETURN_IF_ERROR(
            ReadChunk(tiff, input, page, {i * page.chunk.width, top}, plane, chunk_at(plane, i)));
      }
    }
    const uint32_t count = std::min(page.chunk.height, page.stored.height - top);
    for (uint32_t y = 0; y < count; ++y) {
      for (uint32_t plane = 0; plane < page.planes(); ++plane) {
        for (uint32_t i = 0; i < across; ++i) {
          const uint32_t left = i * page.chunk.width;
          rows.Put(chunk_at(plane, i) + page.row_bytes * y, left,
                   std::min(page.chunk.width, page.stored.width - left), plane);
        }
      }
      rows.ToRgb(rgb);
      sink.TakeBand(rgb, size_t{3} * page.stored.width, 1);
    }
  }
  return absl::OkStatus();
}

class Tiff final : public ImageCodec {
 public:
  // Little or big endian, of 32-bit or 64-bit offsets (BigTIFF).
  bool HasMagic(std::span<const std::byte> bytes) const override {
    constexpr size_t kMagicBytes = 4;
    if (bytes.size() < kMagicBytes) return false;
    for (const char* magic : {"II*\0", "MM\0*", "II+\0", "MM\0+"}) {
      if (std::memcmp(bytes.data(), magic, kMagicBytes) == 0) return true;
    }
    return false;
  }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits& limits,
                                         const ColourOptions& options) const override {
    Input input{bytes};
    const TiffPtr tiff = Open(input, 0);
    if (tiff == nullptr) return absl::InvalidArgumentError(absl::StrCat("TIFF header: ", input.message));
    EVENKEEL_ASSIGN_OR_RETURN(const Page page, ReadPage(tiff.get(), limits, options));
    return ImageHeader{page.upright().width, page.upright().height, page.decoded_bytes()};
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits, const ColourOptions& options,
                      const ImageHeader& header, uint32_t, BandSink& sink) const override {
    static thread_local TurnedPicture turned;
    Input input{bytes};
    const TiffPtr tiff = Open(input, header.stored_bytes);
    if (tiff == nullptr) return absl::DataLossError(absl::StrCat("TIFF header: ", input.message));
    EVENKEEL_ASSIGN_OR_RETURN(const Page page, ReadPage(tiff.get(), limits, options));
    if (page.upright() != ImageSize{header.width, header.height} ||
        page.decoded_bytes() != header.stored_bytes)
      return absl::DataLossError("TIFF dimensions differ from those in the index");
    if (page.orientation == 1) return DecodePage(tiff.get(), input, page, options, sink);
    turned.Start(page.stored);
    EVENKEEL_RETURN_IF_ERROR(DecodePage(tiff.get(), input, page, options, turned));
    turned.Deliver(page.orientation, sink);
    return absl::OkStatus();
  }
};

}  // namespace

const ImageCodec& TiffCodec() {
  static const Tiff codec;
  return codec;
}

}  // namespace evenkeel::preprocess
