// AVIF and HEIF, which are one container: the primary picture, decoded by dav1d or by FFmpeg's HEVC decoder,
// and converted as Pillow's users get it. AVIF is what Pillow reads with libavif: its turns are left to
// EXIF's option. HEIF is what pillow-heif reads with libheif: cut and turned as the file says.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

extern "C" {
#include <libavutil/frame.h>
#include <libavutil/pixdesc.h>
}

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/ffmpeg.h"
#include "preprocess/image/heif_boxes.h"
#include "preprocess/image/heif_colours.h"
#include "preprocess/image/image.h"
#include "preprocess/image/turned_picture.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

std::string SizeText(ImageSize size) { return absl::StrCat(size.width, "x", size.height); }

// A coded picture may be larger than what it shows, by less than a block.
constexpr uint64_t kLargestBlock = 128;

absl::Status CheckSide(const HeifPicture& picture, const Limits& limits) {
  const uint64_t width = uint64_t{picture.tile.width} * picture.columns,
                 height = uint64_t{picture.tile.height} * picture.rows;
  if (width == 0 || height == 0) return absl::InvalidArgumentError("HEIF: a picture of 0 pixels");
  const char* limit = nullptr;
  if (width * height > limits.max_image_pixels) limit = "max_image_pixels";
  if (std::max(width, height) > limits.max_image_side) limit = "max_image_side";
  if (limit == nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("HEIF: a picture or its tiles of ", width, "x", height, " pixels; limits.", limit, " is ",
                   limit == std::string_view("max_image_side") ? uint64_t{limits.max_image_side}
                                                               : limits.max_image_pixels));
}

// libheif makes 4:4:4 of pictures whose samples of colour are shifted, in a way of its own at their edges.
absl::Status CheckShift(const HeifPlacement& placement, bool half_width, bool half_height) {
  const bool shifts = half_height ? placement.shifts_420 : placement.shifts_422;
  if (!half_width || !shifts) return absl::OkStatus();
  return absl::UnimplementedError(
      "HEIF: an odd side that is turned or mirrored, an odd number of pixels cut off, or 4:2:2 turned, are "
      "not "
      "supported with fewer samples of colour than of pixels");
}

// What the parameters of HEVC say of samples, before there is a frame.
absl::Status CheckShift(const HeifFile& file) {
  constexpr size_t kChromaByte = 16;
  const std::span<const std::byte> parameters = file.picture.tiles[0].configuration;
  if (file.picture.codec != HeifCodec::kHevc || parameters.size() <= kChromaByte) return absl::OkStatus();
  const auto format = std::to_integer<uint32_t>(parameters[kChromaByte]) & 3;
  return CheckShift(file.placement, format == 1 || format == 2, format == 1);
}

// The boxes of a file whose sizes are within the limits.
absl::StatusOr<HeifFile> Open(std::span<const std::byte> bytes, const Limits& limits) {
  EVENKEEL_ASSIGN_OR_RETURN(HeifFile file, ReadHeif(bytes));
  EVENKEEL_RETURN_IF_ERROR(CheckSide(file.picture, limits));
  EVENKEEL_RETURN_IF_ERROR(CheckShift(file));
  if (!file.alpha) return file;
  if (file.alpha->codec != file.picture.codec)
    return absl::UnimplementedError("HEIF: an alpha of another codec than its picture is not supported");
  if (file.premultiplied)
    return absl::UnimplementedError("HEIF: colours multiplied by their alpha are not supported");
  if (file.alpha->size != file.picture.size) {
    return absl::UnimplementedError(absl::StrCat("HEIF: an alpha of ", SizeText(file.alpha->size),
                                                 " pixels for a picture of ", SizeText(file.picture.size),
                                                 " is not supported"));
  }
  if (file.picture.codec == HeifCodec::kHevc && file.alpha_placement != file.placement)
    return absl::UnimplementedError(
        "HEIF: an alpha that is cut or turned otherwise than its picture is not supported");
  EVENKEEL_RETURN_IF_ERROR(CheckSide(*file.alpha, limits));
  return file;
}

// An image of AV1 shows one frame, whose layers may be frames of their own. Without a bound, a few bytes each
// could make the decoder decode any number of hidden ones.
absl::Status CheckFrames(std::span<const std::byte> data) {
  constexpr uint32_t kMaxFrames = 8, kFrameHeader = 3, kFrame = 6;
  uint32_t frames = 0;
  for (size_t at = 0; at < data.size();) {
    const auto head = std::to_integer<uint32_t>(data[at]);
    const uint32_t type = head >> 3 & 15;
    at += (head & 4) != 0 ? 2 : 1;
    uint64_t size = at <= data.size() ? data.size() - at : 0;
    if ((head & 2) != 0) {
      size = 0;
      for (int shift = 0; shift < 56; shift += 7) {
        if (at >= data.size()) return absl::DataLossError("AVIF: the data of an image end inside a size");
        const auto byte = std::to_integer<uint64_t>(data[at++]);
        size |= (byte & 127) << shift;
        if ((byte & 128) == 0) break;
      }
    }
    if (at > data.size() || size > data.size() - at)
      return absl::DataLossError(absl::StrCat("AVIF: an image of ", data.size(), " bytes ends early"));
    at += size;
    if ((type == kFrame || type == kFrameHeader) && ++frames > kMaxFrames)
      return absl::UnimplementedError(absl::StrCat("AVIF: an image of more than ", kMaxFrames, " frames"));
  }
  return absl::OkStatus();
}

// The formats of planes whose values HeifRows knows.
bool IsKnown(AVPixelFormat format) {
  constexpr AVPixelFormat kKnown[] = {AV_PIX_FMT_GRAY8,     AV_PIX_FMT_GRAY10,    AV_PIX_FMT_GRAY12,
                                      AV_PIX_FMT_YUV420P,   AV_PIX_FMT_YUVJ420P,  AV_PIX_FMT_YUV420P10,
                                      AV_PIX_FMT_YUV420P12, AV_PIX_FMT_YUV422P,   AV_PIX_FMT_YUVJ422P,
                                      AV_PIX_FMT_YUV422P10, AV_PIX_FMT_YUV422P12, AV_PIX_FMT_YUV444P,
                                      AV_PIX_FMT_YUVJ444P,  AV_PIX_FMT_YUV444P10, AV_PIX_FMT_YUV444P12,
                                      AV_PIX_FMT_GBRP,      AV_PIX_FMT_GBRP10,    AV_PIX_FMT_GBRP12};
  return std::find(std::begin(kKnown), std::end(kKnown), format) != std::end(kKnown);
}

bool IsFullRange(const AVFrame& frame) { return frame.color_range == AVCOL_RANGE_JPEG; }

// The stream's number, which may be none of the enumeration's.
template <typename Enumeration>
uint16_t NumberOf(const Enumeration& value) {
  int number = 0;
  static_assert(sizeof(number) == sizeof(value));
  std::memcpy(&number, &value, sizeof(number));
  return static_cast<uint16_t>(number);
}

CodedColours ColoursOf(const AVFrame& frame) {
  return {NumberOf(frame.color_primaries), NumberOf(frame.colorspace), IsFullRange(frame)};
}

// Decodes the tiles of a picture one after the other, with one decoder while their parameters stay the same.
class TileDecoder {
 public:
  explicit TileDecoder(const HeifPicture& picture) : picture_(picture) {}

  absl::StatusOr<FramePtr> Decode(size_t number) {
    const HeifTile& tile = picture_.tiles[number];
    EVENKEEL_RETURN_IF_ERROR(Prepare(tile));
    PacketPtr packet(av_packet_alloc());
    EVENKEEL_RETURN_IF_ERROR(Fill(tile, packet.get()));
    FramePtr frame(av_frame_alloc());
    if (frame == nullptr) return absl::InternalError("FFmpeg: no memory");
    int code = avcodec_send_packet(decoder_.get(), packet.get());
    if (code >= 0) code = avcodec_send_packet(decoder_.get(), nullptr);
    if (code >= 0) code = avcodec_receive_frame(decoder_.get(), frame.get());
    if (code == AVERROR(ENOMEM)) return absl::InternalError("FFmpeg: no memory");
    if (code < 0) return Damaged(number, code == AVERROR_EOF ? "the data end" : FfmpegMessage(code));
    EVENKEEL_RETURN_IF_ERROR(Check(*frame, number));
    return frame;
  }

 private:
  // Decoders of AV1 find everything in the data.
  absl::Status Prepare(const HeifTile& tile) {
    const bool av1 = picture_.codec == HeifCodec::kAv1;
    const std::span<const std::byte> configuration = av1 ? std::span<const std::byte>() : tile.configuration;
    if (decoder_ != nullptr && configuration.data() == configuration_.data()) {
      avcodec_flush_buffers(decoder_.get());
      return absl::OkStatus();
    }
    configuration_ = configuration;
    const uint64_t pixels = (picture_.tile.width + kLargestBlock) * (picture_.tile.height + kLargestBlock);
    EVENKEEL_ASSIGN_OR_RETURN(decoder_, OpenStillDecoder(av1 ? "libdav1d" : "hevc", configuration, pixels));
    return absl::OkStatus();
  }

  absl::Status Fill(const HeifTile& tile, AVPacket* packet) const {
    size_t size = 0;
    for (const auto& extent : tile.extents) size += extent.size();
    if (packet == nullptr || av_new_packet(packet, static_cast<int>(size)) < 0)
      return absl::InternalError("FFmpeg: no memory");
    uint8_t* out = packet->data;
    for (const auto& extent : tile.extents) {
      if (!extent.empty()) std::memcpy(out, extent.data(), extent.size());
      out += extent.size();
    }
    packet->flags |= AV_PKT_FLAG_KEY;
    if (picture_.codec != HeifCodec::kAv1) return absl::OkStatus();
    return CheckFrames({reinterpret_cast<const std::byte*>(packet->data), size});
  }

  absl::Status Damaged(size_t number, absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat("HEIF: image ", number + 1, " of ", picture_.tiles.size(), ": ", what));
  }

  absl::Status Check(const AVFrame& frame, size_t number) {
    const auto format = static_cast<AVPixelFormat>(frame.format);
    if (frame.decode_error_flags != 0 || (frame.flags & AV_FRAME_FLAG_CORRUPT) != 0)
      return Damaged(number, "it is corrupt");
    if (frame.width != static_cast<int>(picture_.tile.width) ||
        frame.height != static_cast<int>(picture_.tile.height)) {
      return Damaged(number, absl::StrCat("it is ", frame.width, "x", frame.height,
                                          " pixels, but the file says ", SizeText(picture_.tile)));
    }
    if (!IsKnown(format)) {
      const char* const name = av_get_pix_fmt_name(format);
      return absl::UnimplementedError(
          absl::StrCat("HEIF: pixels as ", name == nullptr ? "?" : name, " are not supported"));
    }
    if (number != 0 && format != format_)
      return Damaged(number, "its pixels are of another kind than the first's");
    format_ = format;
    return absl::OkStatus();
  }

  const HeifPicture& picture_;
  CodecPtr decoder_;
  std::span<const std::byte> configuration_;
  AVPixelFormat format_ = AV_PIX_FMT_NONE;
};

// A decoded picture, in the frame of its only tile, or in `canvas`.
struct Decoded {
  FramePtr first;
  CodedPlanes planes;
};

// Describes the planes of a frame; where they lie is filled in later.
CodedPlanes PlanesOf(const AVFrame& frame, const HeifPicture& picture) {
  const AVPixFmtDescriptor& format = *av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  CodedPlanes planes;
  planes.size = picture.size;
  planes.depth = static_cast<uint32_t>(format.comp[0].depth);
  planes.grey = format.nb_components == 1;
  planes.half_width = format.log2_chroma_w != 0;
  planes.half_height = format.log2_chroma_h != 0;
  planes.colours = picture.colours.value_or(ColoursOf(frame));
  return planes;
}

uint32_t Half(uint32_t side, bool half) { return half ? (side + 1) / 2 : side; }

// Copies the part of a tile that lies in the picture.
void Paste(const AVFrame& frame, const HeifPicture& picture, size_t number, CodedPlanes& planes,
           const std::array<uint8_t*, 3>& canvas) {
  const auto column = static_cast<uint32_t>(number % picture.columns),
             row = static_cast<uint32_t>(number / picture.columns);
  const uint32_t left = column * picture.tile.width, top = row * picture.tile.height;
  const size_t bytes = planes.depth > 8 ? 2 : 1;
  for (size_t i = 0; i < (planes.grey ? 1u : 3u); ++i) {
    const bool wide = i == 0 || !planes.half_width, high = i == 0 || !planes.half_height;
    const uint32_t x = wide ? left : left / 2, y = high ? top : top / 2;
    const uint32_t width = std::min(Half(picture.tile.width, !wide), Half(picture.size.width, !wide) - x),
                   height = std::min(Half(picture.tile.height, !high), Half(picture.size.height, !high) - y);
    for (uint32_t r = 0; r < height; ++r) {
      std::memcpy(canvas[i] + planes.yuv[i].stride * (y + r) + bytes * x,
                  frame.data[i] + static_cast<ptrdiff_t>(frame.linesize[i]) * r, bytes * width);
    }
  }
}

absl::StatusOr<Decoded> DecodePictureItem(const HeifPicture& picture, ScratchBytes& memory) {
  TileDecoder decoder(picture);
  Decoded out;
  EVENKEEL_ASSIGN_OR_RETURN(out.first, decoder.Decode(0));
  out.planes = PlanesOf(*out.first, picture);
  CodedPlanes& planes = out.planes;
  const size_t num_planes = planes.grey ? 1 : 3;
  if (picture.tiles.size() == 1) {
    for (size_t i = 0; i < num_planes; ++i)
      planes.yuv[i] = {out.first->data[i], static_cast<size_t>(out.first->linesize[i])};
    return out;
  }
  if ((planes.half_width && picture.tile.width % 2 != 0) ||
      (planes.half_height && picture.tile.height % 2 != 0))
    return absl::UnimplementedError("HEIF: a grid of tiles with an odd side is not supported");
  const size_t bytes = planes.depth > 8 ? 2 : 1;
  size_t total = 0;
  std::array<size_t, 3> begins{};
  for (size_t i = 0; i < num_planes; ++i) {
    begins[i] = total;
    planes.yuv[i].stride = bytes * Half(picture.size.width, i != 0 && planes.half_width);
    total += planes.yuv[i].stride * Half(picture.size.height, i != 0 && planes.half_height);
  }
  uint8_t* const canvas = memory.Get(total);
  std::array<uint8_t*, 3> firsts{};
  for (size_t i = 0; i < num_planes; ++i) planes.yuv[i].first = firsts[i] = canvas + begins[i];
  Paste(*out.first, picture, 0, planes, firsts);
  for (size_t number = 1; number < picture.tiles.size(); ++number) {
    EVENKEEL_ASSIGN_OR_RETURN(const FramePtr frame, decoder.Decode(number));
    Paste(*frame, picture, number, planes, firsts);
  }
  return out;
}

// Decodes the file and passes on the rows of the shown part, as they are stored.
absl::Status DecodeFile(const HeifFile& file, const HeifPlacement& shown, const ColourOptions& options,
                        BandSink& sink) {
  static thread_local ScratchBytes picture_memory, alpha_memory, row_memory;
  EVENKEEL_ASSIGN_OR_RETURN(Decoded picture, DecodePictureItem(file.picture, picture_memory));
  if (file.picture.codec == HeifCodec::kHevc)
    EVENKEEL_RETURN_IF_ERROR(CheckShift(shown, picture.planes.half_width, picture.planes.half_height));
  Decoded alpha;
  if (file.alpha) {
    EVENKEEL_ASSIGN_OR_RETURN(alpha, DecodePictureItem(*file.alpha, alpha_memory));
    if (alpha.planes.depth != picture.planes.depth) {
      return absl::UnimplementedError(absl::StrCat("HEIF: an alpha of ", alpha.planes.depth,
                                                   " bits for a picture of ", picture.planes.depth,
                                                   " bits is not supported"));
    }
    picture.planes.alpha = alpha.planes.yuv[0];
    picture.planes.alpha_full_range = IsFullRange(*alpha.first);
  }
  EVENKEEL_ASSIGN_OR_RETURN(HeifRows rows, HeifRows::Make(picture.planes, file.picture.codec));
  const size_t stored = size_t{4} * file.picture.size.width, width = shown.cut.width;
  uint8_t* const rgba = row_memory.Get(stored + 3 * width);
  uint8_t* const rgb = rgba + stored;
  for (uint32_t y = 0; y < shown.cut.height; ++y) {
    rows.ToRgba(shown.top + y, rgba);
    RgbaToRgb(rgba + size_t{4} * shown.left, shown.cut.width, file.alpha ? options.background : std::nullopt,
              rgb);
    sink.TakeBand(rgb, 3 * width, 1);
  }
  return absl::OkStatus();
}

class Heif final : public ImageCodec {
 public:
  bool HasMagic(std::span<const std::byte> bytes) const override { return HasHeifMagic(bytes); }

  absl::StatusOr<ImageHeader> ReadHeader(std::span<const std::byte> bytes, const Limits& limits,
                                         const ColourOptions&) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const HeifFile file, Open(bytes, limits));
    return HeaderOf(file);
  }

  absl::Status Decode(std::span<const std::byte> bytes, const Limits& limits, const ColourOptions& options,
                      const ImageHeader& header, uint32_t, BandSink& sink) const override {
    static thread_local TurnedPicture turned;
    EVENKEEL_ASSIGN_OR_RETURN(const HeifFile file, Open(bytes, limits));
    const ImageHeader now = HeaderOf(file);
    if (now.width != header.width || now.height != header.height)
      return absl::DataLossError("HEIF dimensions differ from those in the index");
    const HeifPlacement shown = ShownOf(file);
    if (shown.orientation == 1) return DecodeFile(file, shown, options, sink);
    turned.Start(shown.cut);
    EVENKEEL_RETURN_IF_ERROR(DecodeFile(file, shown, options, turned));
    turned.Deliver(shown.orientation, sink);
    return absl::OkStatus();
  }

 private:
  // What the library does to the picture. Pillow leaves an AVIF's turns to EXIF and ignores a cut.
  static HeifPlacement ShownOf(const HeifFile& file) {
    if (file.picture.codec == HeifCodec::kHevc) return file.placement;
    return {.cut = file.picture.size};
  }
  static ImageHeader HeaderOf(const HeifFile& file) {
    const HeifPlacement shown = ShownOf(file);
    const bool turns = Turns(shown.orientation);
    const ImageSize size = turns ? ImageSize{shown.cut.height, shown.cut.width} : shown.cut;
    const uint64_t pixels = uint64_t{file.picture.tile.width} * file.picture.columns *
                            file.picture.tile.height * file.picture.rows;
    return {size.width, size.height, (file.alpha ? 4 : 3) * pixels,
            file.picture.codec == HeifCodec::kAv1 ? file.placement.orientation : 1};
  }
};

}  // namespace

const ImageCodec& HeifCodecs() {
  static const Heif codec;
  return codec;
}

}  // namespace evenkeel::preprocess
