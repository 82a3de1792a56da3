// GIF through giflib: the first frame on its canvas, as Pillow opens it. The only file that includes it.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/image/image.h"

namespace evenkeel::preprocess {
namespace {

constexpr size_t kSignatureBytes = 6;
constexpr int kColours = 256;

struct Input {
  std::span<const std::byte> bytes;
  size_t position = 0;
};

int Read(GifFileType* gif, GifByteType* out, int size) {
  auto& input = *static_cast<Input*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(std::max(size, 0)), input.bytes.size() - input.position);
  if (count != 0) std::memcpy(out, input.bytes.data() + input.position, count);
  input.position += count;
  return static_cast<int>(count);
}

void Close(GifFileType* gif) {
  int ignored = 0;
  (void)DGifCloseFile(gif, &ignored);
}
using GifPtr = std::unique_ptr<GifFileType, void (*)(GifFileType*)>;

std::string_view NameOf(int error) {
  const char* const text = GifErrorString(error);
  return text != nullptr ? text : "the data end or are damaged";
}

// A file up to the pixels of its first frame.
struct FirstFrame {
  GifPtr gif{nullptr, Close};
  ImageSize canvas;
  std::optional<int> transparent;  // index of the colour
};

// `input` must outlive the result. InvalidArgument: there is no frame.
absl::StatusOr<FirstFrame> ReadFirstFrame(Input& input) {
  FirstFrame out;
  int error = 0;
  out.gif.reset(DGifOpen(&input, Read, &error));
  GifFileType* const gif = out.gif.get();
  const auto damaged = [&](int code) {
    return absl::InvalidArgumentError(
        absl::StrCat("GIF header at byte ", input.position, ": ", NameOf(code).data()));
  };
  if (gif == nullptr) return damaged(error);
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &record) == GIF_ERROR) return damaged(gif->Error);
    if (record == IMAGE_DESC_RECORD_TYPE) break;
    if (record != EXTENSION_RECORD_TYPE) return absl::InvalidArgumentError("GIF without a frame");
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return damaged(gif->Error);
    // Its first byte is its length; of several the last one with a transparent colour counts.
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 && (block[1] & 1) != 0)
      out.transparent = block[4];
    while (block != nullptr) {
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return damaged(gif->Error);
    }
  }
  if (DGifGetImageDesc(gif) == GIF_ERROR) return damaged(gif->Error);
  // A frame that extends beyond the screen enlarges it.
  const GifImageDesc& frame = gif->Image;
  out.canvas.width = static_cast<uint32_t>(std::max(gif->SWidth, frame.Left + frame.Width));
  out.canvas.height = static_cast<uint32_t>(std::max(gif->SHeight, frame.Top + frame.Height));
  return out;
}

// The colour of every index. Those that the palette lacks are black; without any palette an index is a grey.
std::array<Colour, kColours> ColoursOf(const FirstFrame& frame, const ColourOptions& options) {
  const GifFileType& gif = *frame.gif;
  const ColorMapObject* const map = gif.Image.ColorMap != nullptr ? gif.Image.ColorMap : gif.SColorMap;
  std::array<Colour, kColours> out{};
  for (int i = 0; i < kColours; ++i) {
    auto& colour = out[static_cast<size_t>(i)];
    if (map == nullptr) {
      colour.fill(static_cast<uint8_t>(i));
    } else if (i < map->ColorCount) {
      colour = {map->Colors[i].Red, map->Colors[i].Green, map->Colors[i].Blue};
    }
  }
  if (frame.transparent && options.background)
    out[static_cast<size_t>(*frame.transparent)] = *options.background;
  return out;
}

class Gif final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override {
    return bytes.size() >= kSignatureBytes && (std::memcmp(bytes.data(), "GIF87a", kSignatureBytes) == 0 ||
                                               std::memcmp(bytes.data(), "GIF89a", kSignatureBytes) == 0);
  }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits&,
                                         const ColourOptions& options) const override {
    if (options.palette == Conversion::kRefuse)
      return absl::UnimplementedError("GIF, which has a palette; the job's processor.palette is refuse");
    Input input{bytes};
    EVENKEEL_ASSIGN_OR_RETURN(const FirstFrame frame, ReadFirstFrame(input));
    return ImageHeader{frame.canvas.width, frame.canvas.height,
                       uint64_t{frame.canvas.width} * frame.canvas.height};
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits&, const ColourOptions& options,
                      const ImageHeader& header, uint32_t, BandSink& sink) const override {
    static thread_local ScratchBytes index_memory, row_memory;
    Input input{bytes};
    EVENKEEL_ASSIGN_OR_RETURN(const FirstFrame first, ReadFirstFrame(input));
    if (first.canvas != ImageSize{header.width, header.height})
      return absl::DataLossError("GIF dimensions differ from those in the index");
    // Around the frame the canvas is transparent, or has the first colour.
    uint8_t* const indices = index_memory.Get(size_t{header.width} * header.height);
    std::memset(indices, first.transparent.value_or(0), size_t{header.width} * header.height);
    EVENKEEL_RETURN_IF_ERROR(DecodeFrame(*first.gif, input, header.width, indices));
    const std::array<Colour, kColours> colours = ColoursOf(first, options);
    const size_t stride = size_t{3} * header.width;
    uint8_t* const row = row_memory.Get(stride);
    for (uint32_t y = 0; y < header.height; ++y) {
      const uint8_t* const from = indices + size_t{header.width} * y;
      for (uint32_t x = 0; x < header.width; ++x)
        std::memcpy(row + size_t{3} * x, colours[from[x]].data(), 3);
      sink.TakeBand(row, stride, 1);
    }
    return absl::OkStatus();
  }

 private:
  // Writes the frame's indices to its place on the canvas, of `width` columns. The rows of an interlaced one come
  // in four passes.
  static absl::Status DecodeFrame(GifFileType& gif, const Input& input, uint32_t width, uint8_t* canvas) {
    struct Pass {
      int first, step;
    };
    static constexpr Pass kWhole[] = {{0, 1}}, kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
    const GifImageDesc& frame = gif.Image;
    const std::span<const Pass> passes =
        frame.Interlace ? std::span<const Pass>(kInterlaced) : std::span<const Pass>(kWhole);
    for (const Pass& pass : passes) {
      for (int y = pass.first; y < frame.Height; y += pass.step) {
        uint8_t* const row = canvas + size_t{width} * static_cast<size_t>(frame.Top + y) + frame.Left;
        if (DGifGetLine(&gif, row, frame.Width) != GIF_ERROR) continue;
        return absl::DataLossError(absl::StrCat("GIF at byte ", input.position, " of ", input.bytes.size(),
                                                ", row ", y, " of ", frame.Height, ": ",
                                                NameOf(gif.Error).data()));
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

const ImageCodec& GifCodec() {
  static const Gif codec;
  return codec;
}

}  // namespace evenkeel::preprocess
