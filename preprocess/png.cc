// PNG through libpng, as Pillow's convert("RGB") sees it. The only file that includes it.
//
// Alpha and tRNS are dropped, 16-bit channels lose their low byte. Grey of 16 bits is refused: Pillow's
// releases disagree about it. setjmp is only called in functions that have nothing to destroy.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image.h"

namespace evenkeel {
namespace {

constexpr size_t kSignatureBytes = 8;

// One reading and everything that its callbacks reach.
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

bool ReadInfo(PngReader& reader, const Limits& limits) {
  if (setjmp(reader.jump) != 0) return false;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnError, OnWarning);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return false;
  png_set_read_fn(reader.png, &reader, Read);
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, nullptr,
                              -1);  // profiles and texts are skipped
  png_set_user_limits(reader.png, static_cast<uint32_t>(limits.max_image_side) + 1,
                      static_cast<uint32_t>(limits.max_image_side) + 1);
  png_read_info(reader.png, reader.info);
  return true;
}

bool SetTransforms(PngReader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  png_structp png = reader.png;
  int color = png_get_color_type(png, reader.info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  if (color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, reader.info);
  return true;
}

// `rows` has one pointer for each row of an interlaced image.
bool ReadPixels(PngReader& reader, png_bytepp rows, uint8_t* rgb, size_t stride, uint32_t height) {
  if (setjmp(reader.jump) != 0) return false;
  if (rows != nullptr) {
    png_read_image(reader.png, rows);
    reader.rows_done = height;
  } else {
    for (; reader.rows_done < height; ++reader.rows_done) {
      png_read_row(reader.png, rgb + stride * reader.rows_done, nullptr);
    }
  }
  png_read_end(reader.png, nullptr);
  return true;
}

class Png final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override {
    return bytes.size() >= kSignatureBytes &&
           png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) == 0;
  }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes,
                                         const Limits& limits) const override {
    PngReader reader(bytes);
    if (!ReadInfo(reader, limits))
      return absl::InvalidArgumentError(absl::StrCat("PNG header: ", reader.message));
    return HeaderOf(reader);
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits, const ImageHeader& header,
                      std::span<uint8_t> rgb) const override {
    PngReader reader(bytes);
    if (!ReadInfo(reader, limits)) return absl::DataLossError(absl::StrCat("PNG header: ", reader.message));
    EVENKEEL_ASSIGN_OR_RETURN(ImageHeader actual, HeaderOf(reader));
    if (actual.width != header.width || actual.height != header.height) {
      return absl::DataLossError("PNG with other dimensions than the index says");
    }
    size_t stride = size_t{3} * header.width;
    if (!SetTransforms(reader)) return absl::DataLossError(absl::StrCat("PNG: ", reader.message));
    if (png_get_rowbytes(reader.png, reader.info) != stride)
      return absl::InternalError("PNG: rows are not RGB8");
    std::vector<png_bytep> rows;
    if (png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE) {
      for (uint32_t y = 0; y < header.height; ++y) rows.push_back(rgb.data() + stride * y);
    }
    if (!ReadPixels(reader, rows.empty() ? nullptr : rows.data(), rgb.data(), stride, header.height)) {
      return absl::DataLossError(absl::StrCat("PNG at byte ", reader.position, " of ", bytes.size(), ", row ",
                                              reader.rows_done, " of ", header.height, ": ", reader.message));
    }
    return CheckPalette(reader);
  }

 private:
  static absl::StatusOr<ImageHeader> HeaderOf(const PngReader& reader) {
    ImageHeader header{png_get_image_width(reader.png, reader.info),
                       png_get_image_height(reader.png, reader.info), 0};
    header.stored_bytes = png_get_rowbytes(reader.png, reader.info) * uint64_t{header.height};
    if (png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_GRAY &&
        png_get_bit_depth(reader.png, reader.info) == 16) {
      return absl::UnimplementedError(
          "PNG of one 16-bit grey channel: Pillow's releases disagree about its values");
    }
    return header;
  }

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

}  // namespace evenkeel
