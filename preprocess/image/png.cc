// PNG through libpng, with the result of Pillow's convert("RGB"). The only file that includes it.
//
// Alpha and tRNS are dropped or blended, and 16-bit channels lose their low byte; 16-bit grey depends on the
// options. setjmp is only called in functions that have nothing to destroy.
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/exif.h"
#include "preprocess/image/image.h"
#include "preprocess/image/png_chunk.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kSignatureBytes = 8;

// One read, and everything that its callbacks reach.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  char message[128] = {};
  std::span<const std::byte> bytes;
  size_t position = 0;
  uint32_t rows_done = 0;

  explicit PngReader(std::span<const std::byte> bytes) : bytes(bytes) {}
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader.message, message, sizeof(reader.message) - 1);
  std::longjmp(reader.jump, 1);
}

void OnWarning(png_structp, png_const_charp) {}

void Read(png_structp png, png_bytep out, size_t size) {
  auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
  if (size > reader.bytes.size() - reader.position) png_error(png, "the data ends");
  std::memcpy(out, reader.bytes.data() + reader.position, size);
  reader.position += size;
}

bool ReadInfo(PngReader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnError, OnWarning);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return false;
  png_set_read_fn(reader.png, &reader, Read);
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, nullptr,
                              -1);  // profiles and texts are skipped
  // Sides are checked by our own limit, which has a name in the job.
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_read_info(reader.png, reader.info);
  return true;
}

// One channel of 16 bits: the variant that Pillow's releases treat differently.
bool IsWideGrey(const PngReader& reader) {
  return png_get_bit_depth(reader.png, reader.info) == 16 &&
         png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_GRAY;
}

// The layout of the library's output rows.
enum class Layout { kRgb, kRgba, kWideGrey };

// Rows keep their alpha only if it is blended, and 16 bits only if they are clipped here.
Layout LayoutOf(const PngReader& reader, const ColourOptions& options) {
  if (IsWideGrey(reader) && options.sixteen_bit == SixteenBit::kClipGrey) return Layout::kWideGrey;
  const bool has_alpha = (png_get_color_type(reader.png, reader.info) & PNG_COLOR_MASK_ALPHA) != 0;
  return has_alpha && options.background ? Layout::kRgba : Layout::kRgb;
}

// Blends the palette's colours onto `background` by its tRNS chunk. Pillow also uses a chunk that comes
// before the palette or has more entries; the library ignores those, so the chunk is read here.
bool BlendPalette(PngReader& reader, const Colour& background) {
  if (setjmp(reader.jump) != 0) return false;
  png_colorp palette = nullptr;
  int num_palette = 0;
  const std::optional<std::span<const std::byte>> alpha = LastPngChunk(reader.bytes, "tRNS");
  if (!alpha || png_get_PLTE(reader.png, reader.info, &palette, &num_palette) == 0) return true;
  std::array<png_color, PNG_MAX_PALETTE_LENGTH> blended;
  for (int i = 0; i < num_palette; ++i) {
    const auto entry = static_cast<size_t>(i);
    const uint8_t opacity = entry < alpha->size() ? std::to_integer<uint8_t>((*alpha)[entry]) : 255;
    const uint8_t rgba[] = {palette[i].red, palette[i].green, palette[i].blue, opacity};
    uint8_t rgb[3];
    RgbaToRgb(rgba, 1, background, rgb);
    blended[entry] = {rgb[0], rgb[1], rgb[2]};
  }
  png_set_PLTE(reader.png, reader.info, blended.data(), num_palette);
  return true;
}

// The colour that means transparent in a grey or RGB picture, as bytes; nullopt if there is none or
// transparency is dropped. It is compared like in Pillow: of 16 bits the low byte (with the high byte of a
// pixel's colour), of grey with two or four bits the number itself, which is not widened like the pixels are.
std::optional<Colour> KeyOf(const PngReader& reader, const ColourOptions& options) {
  png_color_16p key = nullptr;
  const int color = png_get_color_type(reader.png, reader.info);
  if (!options.background || (color != PNG_COLOR_TYPE_GRAY && color != PNG_COLOR_TYPE_RGB) ||
      png_get_tRNS(reader.png, reader.info, nullptr, nullptr, &key) == 0 || key == nullptr) {
    return std::nullopt;
  }
  auto low = [](png_uint_16 value) { return static_cast<uint8_t>(value & 0xff); };
  if (color == PNG_COLOR_TYPE_RGB) return Colour{low(key->red), low(key->green), low(key->blue)};
  // Pillow has two-colour pictures as 0 and 255.
  const bool two_colours = png_get_bit_depth(reader.png, reader.info) == 1;
  const uint8_t grey = two_colours ? (key->gray != 0 ? 255 : 0) : low(key->gray);
  return Colour{grey, grey, grey};
}

size_t BytesPerPixel(Layout layout) { return layout == Layout::kRgb ? 3 : layout == Layout::kRgba ? 4 : 2; }

// Sets libpng's own conversions to the layout. Palettes and grey of few bits become bytes.
bool SetTransforms(PngReader& reader, Layout layout) {
  if (setjmp(reader.jump) != 0) return false;
  png_structp png = reader.png;
  png_set_interlace_handling(png);
  if (layout != Layout::kWideGrey) {
    int color = png_get_color_type(png, reader.info);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    if (layout == Layout::kRgba) png_set_tRNS_to_alpha(png);
    if (color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png);
    png_set_strip_16(png);
    if (layout == Layout::kRgb) png_set_strip_alpha(png);
  }
  png_read_update_info(png, reader.info);
  return true;
}

// Reads the next `count` rows of an image that is not interlaced.
bool ReadRows(PngReader& reader, uint8_t* out, size_t stride, uint32_t count) {
  if (setjmp(reader.jump) != 0) return false;
  for (uint32_t r = 0; r < count; ++r, ++reader.rows_done)
    png_read_row(reader.png, out + stride * r, nullptr);
  return true;
}

// Reads all rows of an interlaced image; each pass fills in some of their pixels.
bool ReadPasses(PngReader& reader, uint8_t* out, size_t stride, uint32_t height) {
  if (setjmp(reader.jump) != 0) return false;
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    for (reader.rows_done = 0; reader.rows_done < height; ++reader.rows_done) {
      png_read_row(reader.png, out + stride * reader.rows_done, nullptr);
    }
  }
  return true;
}

bool ReadEnd(PngReader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  png_read_end(reader.png, nullptr);
  return true;
}

// Grey of 16 bits, high byte first. Values above 255 become white, as in those releases of Pillow that clip
// them instead of taking the high byte.
void ClippedToRgb(const uint8_t* wide, uint32_t width, uint8_t* rgb) {
  for (uint32_t x = 0; x < width; ++x, wide += 2, rgb += 3)
    rgb[0] = rgb[1] = rgb[2] = wide[0] != 0 ? 255 : wide[1];
}

// For layouts that the library cannot convert to RGB.
void RowToRgb(Layout layout, const uint8_t* row, uint32_t width, const ColourOptions& options, uint8_t* rgb) {
  layout == Layout::kRgba ? RgbaToRgb(row, width, options.background, rgb) : ClippedToRgb(row, width, rgb);
}

// Pixels of exactly this colour are the transparent ones of a picture with a colour key; there are no half
// transparent ones.
void ReplaceColour(const Colour& colour, const Colour& by, uint8_t* rgb, size_t num_pixels) {
  for (uint8_t* pixel = rgb; pixel != rgb + 3 * num_pixels; pixel += 3) {
    if (std::equal(colour.begin(), colour.end(), pixel)) std::copy(by.begin(), by.end(), pixel);
  }
}

// `key`: the result of KeyOf() before the library's transforms were set.
bool DecodeBands(PngReader& reader, Layout layout, const std::optional<Colour>& key,
                 const ColourOptions& options, const ImageHeader& header, BandSink& sink) {
  static thread_local ScratchBytes row_memory, band_memory;
  const size_t stride = BytesPerPixel(layout) * header.width, rgb_stride = size_t{3} * header.width;
  const bool interlaced = png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE;
  uint8_t* rows = row_memory.Get(stride * (interlaced ? header.height : kBandRows));
  uint8_t* band = layout == Layout::kRgb ? nullptr : band_memory.Get(rgb_stride * kBandRows);
  if (interlaced && !ReadPasses(reader, rows, stride, header.height)) return false;
  for (uint32_t y = 0; y < header.height; y += kBandRows) {
    const uint32_t count = std::min(kBandRows, header.height - y);
    if (!interlaced && !ReadRows(reader, rows, stride, count)) return false;
    // Interlaced pictures are decoded as a whole first, others band by band.
    uint8_t* from = interlaced ? rows + stride * y : rows;
    for (uint32_t r = 0; band != nullptr && r < count; ++r) {
      RowToRgb(layout, from + stride * r, header.width, options, band + rgb_stride * r);
    }
    uint8_t* rgb = band != nullptr ? band : from;
    if (key) ReplaceColour(*key, *options.background, rgb, size_t{header.width} * count);
    sink.TakeBand(rgb, rgb_stride, count);
  }
  return ReadEnd(reader);
}

class Png final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override {
    return bytes.size() >= kSignatureBytes &&
           png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) == 0;
  }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits&,
                                         const ColourOptions& options) const override {
    PngReader reader(bytes);
    if (!ReadInfo(reader)) return absl::InvalidArgumentError(absl::StrCat("PNG header: ", reader.message));
    EVENKEEL_RETURN_IF_ERROR(CheckVariant(reader, options));
    ImageHeader header = HeaderOf(reader);
    header.orientation = PngOrientation(bytes);
    return header;
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits&, const ColourOptions& options,
                      const ImageHeader& header, uint32_t, BandSink& sink) const override {
    PngReader reader(bytes);
    if (!ReadInfo(reader)) return absl::DataLossError(absl::StrCat("PNG header: ", reader.message));
    EVENKEEL_RETURN_IF_ERROR(CheckVariant(reader, options));
    const ImageHeader actual = HeaderOf(reader);
    if (actual.width != header.width || actual.height != header.height) {
      return absl::DataLossError("PNG dimensions differ from those in the index");
    }
    const Layout layout = LayoutOf(reader, options);
    const std::optional<Colour> key = KeyOf(reader, options);
    const bool paletted = png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE;
    if ((paletted && options.background && !BlendPalette(reader, *options.background)) ||
        !SetTransforms(reader, layout)) {
      return absl::DataLossError(absl::StrCat("PNG: ", reader.message));
    }
    // Checked before anything is written: the buffers are sized by our layout.
    if (png_get_rowbytes(reader.png, reader.info) != BytesPerPixel(layout) * header.width)
      return absl::InternalError("PNG: the size of a row does not fit its layout");
    if (!DecodeBands(reader, layout, key, options, header, sink)) {
      return absl::DataLossError(absl::StrCat("PNG at byte ", reader.position, " of ", bytes.size(), ", row ",
                                              reader.rows_done, " of ", header.height, ": ", reader.message));
    }
    return CheckPalette(reader);
  }

 private:
  static ImageHeader HeaderOf(const PngReader& reader) {
    ImageHeader header{png_get_image_width(reader.png, reader.info),
                       png_get_image_height(reader.png, reader.info)};
    header.stored_bytes = png_get_rowbytes(reader.png, reader.info) * uint64_t{header.height};
    return header;
  }

  static absl::Status CheckVariant(const PngReader& reader, const ColourOptions& options) {
    const bool wide = png_get_bit_depth(reader.png, reader.info) == 16;
    if (wide && options.sixteen_bit == SixteenBit::kRefuse) {
      return absl::UnimplementedError("PNG of 16 bits; the job's processor.sixteen_bit is refuse");
    }
    if (IsWideGrey(reader) && options.sixteen_bit == SixteenBit::kRefuseGrey) {
      return absl::UnimplementedError(
          "PNG of one 16-bit grey channel: Pillow's releases disagree about its values; the job's "
          "processor.sixteen_bit can be clip_grey or high_byte");
    }
    if (options.palette == Conversion::kRefuse &&
        png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE) {
      return absl::UnimplementedError("PNG with a palette; the job's processor.palette is refuse");
    }
    return absl::OkStatus();
  }

  // A pixel beyond the palette is found only while decoding; the library only warns about it.
  static absl::Status CheckPalette(const PngReader& reader) {
    png_colorp palette = nullptr;
    int num_palette = 0;
    if (png_get_PLTE(reader.png, reader.info, &palette, &num_palette) == 0) return absl::OkStatus();
    int used = png_get_palette_max(reader.png, reader.info);
    if (used < num_palette) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("PNG uses colour ", used, " of a palette of ", num_palette));
  }
};

}  // namespace

const ImageCodec& PngCodec() {
  static const Png codec;
  return codec;
}

}  // namespace evenkeel::preprocess
