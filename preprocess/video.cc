#include "preprocess/video.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

extern "C" {
#include <libavutil/display.h>
#include <libswscale/swscale.h>
}

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/ffmpeg.h"

namespace evenkeel {
namespace {

struct ScalerFree {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
using ScalerPtr = std::unique_ptr<SwsContext, ScalerFree>;

constexpr int kScalerFlags =
    SWS_BILINEAR | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
constexpr int kAlignment = 64;

// Decoders that were seen to give the same bytes with every set of CPU features
// (tests/preprocess/video_test.cc).
absl::StatusOr<const char*> DecoderOf(AVCodecID id) {
  switch (id) {
    case AV_CODEC_ID_H264:
      return "h264";
    case AV_CODEC_ID_HEVC:
      return "hevc";
    case AV_CODEC_ID_MPEG4:
      return "mpeg4";
    case AV_CODEC_ID_MJPEG:
      return "mjpeg";
    case AV_CODEC_ID_VP8:
      return "vp8";
    case AV_CODEC_ID_VP9:
      return "vp9";
    case AV_CODEC_ID_CINEPAK:
      return "cinepak";
    default:
      return absl::UnimplementedError(
          absl::StrCat("video codec '", avcodec_get_name(id),
                       "': its decoder is not known to give the same bytes everywhere"));
  }
}

// False for packets that carry no frame to show.
bool ShowsFrame(const AVPacket& packet, AVCodecID id) {
  if ((packet.flags & AV_PKT_FLAG_DISCARD) != 0) return false;
  return id != AV_CODEC_ID_VP8 || (packet.data[0] & 0x10) != 0;
}

uint32_t RotationOf(AVStream& stream) {
  size_t size = 0;
  const uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  if (matrix == nullptr || size < 9 * sizeof(int32_t)) return 0;
  int32_t values[9];
  std::memcpy(values, matrix, sizeof(values));
  // The first row of a pure rotation tells its quarter without an arc tangent.
  if (values[0] == 0 && values[1] > 0) return 90;
  if (values[0] == 0 && values[1] < 0) return 270;
  return values[0] < 0 && values[1] == 0 ? 180 : 0;
}

struct PacketCount {
  uint64_t frames = 0;
  int64_t first_pts = std::numeric_limits<int64_t>::max();
  int64_t end_pts = std::numeric_limits<int64_t>::min();
};

absl::StatusOr<PacketCount> CountPackets(MediaInput& input, const Limits& limits) {
  PacketPtr packet(av_packet_alloc());
  PacketCount count;
  uint64_t packets = 0;
  while (input.Next(*packet)) {
    if (++packets > 2 * limits.max_video_frames) break;
    if (ShowsFrame(*packet, input.stream().codecpar->codec_id)) {
      ++count.frames;
      int64_t pts = packet->pts != AV_NOPTS_VALUE ? packet->pts : packet->dts;
      constexpr int64_t kSane = int64_t{1} << 60;
      if (pts > -kSane && pts < kSane && packet->duration >= 0 && packet->duration < kSane) {
        count.first_pts = std::min(count.first_pts, pts);
        count.end_pts = std::max(count.end_pts, pts + packet->duration);
      }
    }
    av_packet_unref(packet.get());
  }
  if (packets > 2 * limits.max_video_frames || count.frames > limits.max_video_frames) {
    return absl::ResourceExhaustedError(
        absl::StrCat("video of more frames than limits.max_video_frames ", limits.max_video_frames));
  }
  if (count.frames == 0) return absl::InvalidArgumentError("video without frames");
  return count;
}

// The container's average rate, else frames over the span of their times.
AVRational RateOf(const AVStream& stream, const PacketCount& count) {
  AVRational rate = stream.avg_frame_rate;
  if (rate.num > 0 && rate.den > 0) return rate;
  int64_t span = count.end_pts > count.first_pts ? count.end_pts - count.first_pts : 0;
  AVRational per_frame = stream.time_base;
  if (span > 0 && per_frame.num > 0 && per_frame.den > 0) {
    int64_t seconds_num = 0;
    if (!__builtin_mul_overflow(span, int64_t{per_frame.num}, &seconds_num) && seconds_num > 0) {
      av_reduce(&rate.num, &rate.den, static_cast<int64_t>(count.frames) * per_frame.den, seconds_num,
                1 << 30);
      if (rate.num > 0 && rate.den > 0) return rate;
    }
  }
  rate = stream.r_frame_rate;
  return rate.num > 0 && rate.den > 0 ? rate : AVRational{0, 1};
}

absl::Status CheckSize(std::span<const std::byte> bytes, const Limits& limits) {
  if (bytes.size() <= limits.max_video_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("video of ", bytes.size(), " bytes; limits.max_video_bytes is ", limits.max_video_bytes));
}

// Converts frames to RGB8, tightly packed.
class RgbConverter {
 public:
  absl::StatusOr<std::span<const uint8_t>> Convert(const AVFrame& frame) {
    EVENKEEL_RETURN_IF_ERROR(Prepare(frame));
    uint8_t* planes[4] = {padded_.data() + offset_, nullptr, nullptr, nullptr};
    int strides[4] = {stride_, 0, 0, 0};
    if (sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides) !=
        frame.height) {
      return absl::DataLossError("frame cannot be converted to RGB");
    }
    const size_t row = size_t{3} * frame.width;
    for (int y = 0; y < frame.height; ++y) {
      std::memcpy(packed_.data() + row * y, planes[0] + size_t{static_cast<unsigned>(stride_)} * y, row);
    }
    return std::span<const uint8_t>(packed_);
  }

 private:
  absl::Status Prepare(const AVFrame& frame) {
    const bool full = frame.color_range == AVCOL_RANGE_JPEG;
    const int space =
        frame.colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_DEFAULT : static_cast<int>(frame.colorspace);
    if (scaler_ != nullptr && frame.format == format_ && full == full_ && space == space_)
      return absl::OkStatus();
    auto format = static_cast<AVPixelFormat>(frame.format);
    scaler_.reset(sws_getContext(frame.width, frame.height, format, frame.width, frame.height,
                                 AV_PIX_FMT_RGB24, kScalerFlags, nullptr, nullptr, nullptr));
    if (scaler_ == nullptr) return absl::UnimplementedError(absl::StrCat("pixel format ", frame.format));
    const int* coefficients = sws_getCoefficients(space);
    sws_setColorspaceDetails(scaler_.get(), coefficients, full, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0,
                             1 << 16, 1 << 16);
    // The scaler writes whole vectors: rows and the whole are padded, then packed.
    stride_ = (3 * frame.width + 2 * kAlignment - 1) / kAlignment * kAlignment;
    padded_.assign(static_cast<size_t>(stride_) * (frame.height + 1) + kAlignment, 0);
    offset_ = (kAlignment - reinterpret_cast<uintptr_t>(padded_.data()) % kAlignment) % kAlignment;
    packed_.resize(size_t{3} * frame.width * frame.height);
    format_ = frame.format;
    full_ = full;
    space_ = space;
    return absl::OkStatus();
  }

  ScalerPtr scaler_;
  int format_ = -1;
  bool full_ = false;
  int space_ = -1;
  int stride_ = 0;
  size_t offset_ = 0;
  std::vector<uint8_t> padded_;
  std::vector<uint8_t> packed_;
};

// Counts frames as they leave the decoder and hands out the chosen ones.
class FramePicker {
 public:
  FramePicker(const MediaFacts& facts, std::span<const uint32_t> chosen, const FrameSink& sink)
      : facts_(facts), chosen_(chosen), sink_(sink) {}

  bool done() const { return position_ == chosen_.size(); }

  absl::Status Take(const AVFrame& frame) {
    const uint64_t number = number_++;
    if (frame.decode_error_flags != 0 || (frame.flags & AV_FRAME_FLAG_CORRUPT) != 0) {
      return absl::DataLossError(
          absl::StrCat("video frame ", number, " of ", facts_.num_frames, " is corrupt"));
    }
    if (frame.width != static_cast<int>(facts_.width) || frame.height != static_cast<int>(facts_.height)) {
      return absl::DataLossError(absl::StrCat("video frame ", number, " is ", frame.width, "x", frame.height,
                                              " where the index says ", facts_.width, "x", facts_.height));
    }
    bool wanted = chosen_[position_] == number;
    // The last frames may stand for others that never come: keep a frame unless the next one wanted is in
    // sight.
    if (!wanted) {
      last_.reset(av_frame_clone(&frame));
      return absl::OkStatus();
    }
    EVENKEEL_ASSIGN_OR_RETURN(std::span<const uint8_t> rgb, converter_.Convert(frame));
    last_.reset();
    return HandOut(number, rgb);
  }

  // The decode has ended: the last frame stands for all that are missing.
  absl::Status Finish(uint64_t* repeated) {
    if (done()) return absl::OkStatus();
    if (number_ == 0) return absl::DataLossError("video of which no frame can be decoded");
    if (last_ != nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(latest_, converter_.Convert(*last_));
    }
    for (; !done(); ++position_, ++*repeated) EVENKEEL_RETURN_IF_ERROR(sink_(position_, latest_));
    return absl::OkStatus();
  }

 private:
  absl::Status HandOut(uint64_t number, std::span<const uint8_t> rgb) {
    latest_ = rgb;
    for (; !done() && chosen_[position_] == number; ++position_)
      EVENKEEL_RETURN_IF_ERROR(sink_(position_, rgb));
    return absl::OkStatus();
  }

  const MediaFacts& facts_;
  std::span<const uint32_t> chosen_;
  const FrameSink& sink_;
  RgbConverter converter_;
  FramePtr last_;                    // a frame after the last one converted
  std::span<const uint8_t> latest_;  // the last one converted
  uint64_t number_ = 0;
  size_t position_ = 0;
};

absl::Status Drain(AVCodecContext& decoder, AVFrame& frame, FramePicker& picker) {
  while (!picker.done()) {
    int code = avcodec_receive_frame(&decoder, &frame);
    if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return absl::OkStatus();
    if (code < 0) return absl::DataLossError(absl::StrCat("video: ", FfmpegMessage(code)));
    absl::Status status = picker.Take(frame);
    av_frame_unref(&frame);
    EVENKEEL_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MediaFacts> ProbeVideo(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  EVENKEEL_ASSIGN_OR_RETURN(MediaInput input, MediaInput::Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits));
  AVStream& stream = input.stream();
  EVENKEEL_RETURN_IF_ERROR(DecoderOf(stream.codecpar->codec_id).status());
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  if (stream.codecpar->width <= 0 || stream.codecpar->height <= 0) {
    return absl::InvalidArgumentError("video without dimensions");
  }
  facts.width = static_cast<uint32_t>(stream.codecpar->width);
  facts.height = static_cast<uint32_t>(stream.codecpar->height);
  if (uint64_t{facts.width} * facts.height > limits.max_video_pixels) {
    return absl::ResourceExhaustedError(absl::StrCat("video of ", facts.width, "x", facts.height,
                                                     " pixels; limits.max_video_pixels is ",
                                                     limits.max_video_pixels));
  }
  facts.rotation = RotationOf(stream);
  EVENKEEL_ASSIGN_OR_RETURN(PacketCount count, CountPackets(input, limits));
  facts.num_frames = static_cast<uint32_t>(count.frames);
  AVRational rate = RateOf(stream, count);
  if (rate.num <= 0) return absl::InvalidArgumentError("video without a frame rate");
  facts.fps_num = static_cast<uint32_t>(rate.num);
  facts.fps_den = static_cast<uint32_t>(rate.den);
  facts.duration_us =
      static_cast<uint64_t>(av_rescale(facts.num_frames, int64_t{1000000} * rate.den, rate.num));
  return facts;
}

absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, std::span<const uint32_t> chosen, const FrameSink& sink,
                         uint64_t* repeated) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  EVENKEEL_ASSIGN_OR_RETURN(MediaInput input, MediaInput::Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits));
  EVENKEEL_ASSIGN_OR_RETURN(const char* name, DecoderOf(input.stream().codecpar->codec_id));
  EVENKEEL_ASSIGN_OR_RETURN(CodecPtr decoder, OpenDecoder(input, name, limits));
  FramePicker picker(facts, chosen, sink);
  PacketPtr packet(av_packet_alloc());
  FramePtr frame(av_frame_alloc());
  uint64_t packets = 0;
  while (!picker.done() && packets <= 2 * limits.max_video_frames && input.Next(*packet)) {
    int code = avcodec_send_packet(decoder.get(), packet.get());
    av_packet_unref(packet.get());
    if (code < 0 && code != AVERROR(EAGAIN)) {
      return absl::DataLossError(absl::StrCat("video packet ", packets, ": ", FfmpegMessage(code)));
    }
    ++packets;
    EVENKEEL_RETURN_IF_ERROR(Drain(*decoder, *frame, picker));
  }
  if (!picker.done()) {
    avcodec_send_packet(decoder.get(), nullptr);
    EVENKEEL_RETURN_IF_ERROR(Drain(*decoder, *frame, picker));
  }
  return picker.Finish(repeated);
}

}  // namespace evenkeel
