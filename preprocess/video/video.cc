// Probes videos and decodes their chosen frames: one pass over the packets for the index, then one decode of
// the packets that the chosen frames need. If that shortcut fails, everything is decoded.
#include "preprocess/video/video.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

extern "C" {
#include <libavutil/display.h>
}

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/ffmpeg.h"
#include "preprocess/image/turned_picture.h"
#include "preprocess/scratch.h"
#include "preprocess/video/frame_rgb.h"
#include "preprocess/video/video_index.h"

namespace evenkeel::preprocess {
namespace {

// Decoders that give the same bytes on every CPU (docs/safety.md explains how that is ensured).
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
    case AV_CODEC_ID_AV1:
      return "libdav1d";
    case AV_CODEC_ID_CINEPAK:
      return "cinepak";
    default:
      return absl::UnimplementedError(absl::StrCat("video codec '", avcodec_get_name(id),
                                                   "' is not supported: its decoder is not known to give the "
                                                   "same bytes on every CPU; re-encode the video as H.264"));
  }
}

uint32_t RotationOf(AVStream& stream) {
  size_t size = 0;
  const uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  if (matrix == nullptr || size < 9 * sizeof(int32_t)) return 0;
  int32_t values[9];
  std::memcpy(values, matrix, sizeof(values));
  // The matrix's first row is the image of the horizontal axis; its larger component gives the nearest
  // quarter turn. torchcodec and decord use no more of it, so a mirroring is ignored.
  const int64_t along = values[0], across = values[1];
  if (std::abs(across) > std::abs(along)) return across > 0 ? 90 : 270;
  return along < 0 ? 180 : 0;
}

// `frames` divided by `span`, in the stream's time base; 0/1 if that is not a valid rate.
AVRational RateOver(const AVStream& stream, uint64_t frames, int64_t span) {
  const AVRational unit = stream.time_base;
  AVRational rate{0, 1};
  if (unit.num <= 0 || unit.den <= 0) return rate;
  if (__builtin_mul_overflow(span, int64_t{unit.num}, &span)) return rate;
  if (span > 0) av_reduce(&rate.num, &rate.den, static_cast<int64_t>(frames) * unit.den, span, 1 << 30);
  return rate.num > 0 && rate.den > 0 ? rate : AVRational{0, 1};
}

// Frames per second of the video's own time, from its packets.
AVRational MeasuredRate(const AVStream& stream, const VideoIndex& index) {
  return RateOver(stream, index.num_frames, index.span);
}

bool IsRate(AVRational rate) { return rate.num > 0 && rate.den > 0; }

// The container's average rate, unless the frames' times differ from it by more than 2 %: then the rate is
// variable, the header is wrong, or the AVI has empty slots, as FFmpeg writes them for H.264.
AVRational PlausibleRate(const AVStream& stream, const VideoIndex& index) {
  const AVRational said = stream.avg_frame_rate, measured = MeasuredRate(stream, index);
  if (!IsRate(said)) {
    if (measured.num > 0) return measured;
    const AVRational guess = stream.r_frame_rate;
    return IsRate(guess) ? guess : AVRational{0, 1};
  }
  if (measured.num == 0 || index.num_frames < 2) return said;
  const double ratio = av_q2d(measured) / av_q2d(said);
  return ratio > 0.98 && ratio < 1.02 ? said : measured;
}

// torchcodec's rate: packets over their span. torchcodec divides doubles, which may differ in the last bit.
AVRational TorchcodecRate(const AVStream& stream, const VideoIndex& index) {
  if (index.packet_times.empty()) return {0, 1};
  return RateOver(stream, index.packet_times.size(), index.packets_end - index.packet_times.front());
}

AVRational RateOf(FrameLoader loader, const AVStream& stream, const VideoIndex& index) {
  AVRational rate{0, 1};
  if (loader == FrameLoader::kTorchcodec) rate = TorchcodecRate(stream, index);
  if (loader == FrameLoader::kPyav || loader == FrameLoader::kDecord) rate = stream.avg_frame_rate;
  return IsRate(rate) ? rate : PlausibleRate(stream, index);
}

// PyAV's count is the header's, if there is one, bounded here by the frames that can be decoded.
uint32_t FramesOf(FrameLoader loader, const AVStream& stream, const VideoIndex& index) {
  if (loader == FrameLoader::kTorchcodec && !index.times.empty())
    return static_cast<uint32_t>(index.packet_times.size());
  if (loader == FrameLoader::kPyav && stream.nb_frames > 0)
    return static_cast<uint32_t>(std::min<int64_t>(stream.nb_frames, index.num_frames));
  return index.num_frames;
}

InverseTransform TransformOf(FrameLoader loader) {
  return loader == FrameLoader::kAccurate ? InverseTransform::kSimple : InverseTransform::kEncoders;
}

StreamChoice StreamOf(FrameLoader loader) {
  switch (loader) {
    case FrameLoader::kTorchcodec:
      return StreamChoice::kBest;
    case FrameLoader::kDecord:
      return StreamChoice::kBestOfAny;
    case FrameLoader::kPyav:
      return StreamChoice::kFirst;
    case FrameLoader::kAccurate:
      return StreamChoice::kFirstDefault;
  }
  return StreamChoice::kFirstDefault;
}

absl::Status CheckSize(std::span<const std::byte> bytes, const Limits& limits) {
  if (bytes.size() <= limits.max_video_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("video of ", bytes.size(), " bytes; limits.max_video_bytes is ", limits.max_video_bytes));
}

// Memory that a thread keeps from one video to the next.
struct VideoScratch {
  VideoIndex index;
  std::vector<uint32_t> chosen;
  std::vector<PacketUse> uses;
  FrameRgb rgb;
  TurnedPicture turned;
};

VideoScratch& KeptScratch() {
  static thread_local VideoScratch scratch;
  return scratch;
}

// Identifies the frames that leave the decoder and passes the chosen ones to the sink.
class FramePicker {
 public:
  FramePicker(const MediaFacts& facts, VideoScratch& scratch, const VideoWish& wish, const FrameSink& sink)
      : facts_(facts),
        index_(scratch.index),
        chosen_(scratch.chosen),
        turn_(wish.upright ? facts.rotation : 0),
        loader_(wish.loader),
        sink_(sink),
        rgb_(scratch.rgb),
        turned_(scratch.turned) {}

  bool done() const { return position_ == chosen_.size(); }
  // The error of a frame or of the sink; decoding again would not help.
  const absl::Status& refused() const { return refused_; }
  uint64_t repeated() const { return repeated_; }

  // `strict`: a missing chosen frame is an error instead of being replaced.
  void Begin(bool strict) {
    strict_ = strict;
    count_ = 0;
    last_.reset();
  }

  absl::Status Take(const AVFrame& frame) {
    const uint64_t number = NumberOf(frame);
    if (number == kNoFrame || done()) return absl::OkStatus();
    EVENKEEL_RETURN_IF_ERROR(Check(frame, number));
    while (!done() && chosen_[position_] < number) {  // this chosen frame is missing
      if (strict_)
        return absl::DataLossError(absl::StrCat("video frame ", chosen_[position_], " is missing"));
      EVENKEEL_RETURN_IF_ERROR(
          HandOut(last_ != nullptr ? *last_ : frame, chosen_[position_], /*stands_in=*/true));
    }
    if (!done() && chosen_[position_] == number) {
      EVENKEEL_RETURN_IF_ERROR(HandOut(frame, number, /*stands_in=*/false));
    }
    // It may have to replace later frames that are missing.
    if (!strict_ && !done()) last_.reset(av_frame_clone(&frame));
    return absl::OkStatus();
  }

  // After the decode: the last frame replaces all that are missing.
  absl::Status Finish() {
    while (!done()) {
      if (last_ == nullptr) return absl::DataLossError("no frame of the video can be decoded");
      EVENKEEL_RETURN_IF_ERROR(HandOut(*last_, chosen_[position_], /*stands_in=*/true));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr uint64_t kNoFrame = ~uint64_t{0};

  // The number of a decoded frame. SendPackets put the packet's index into its time. Frames of hidden
  // packets, or of no packet, are made up by the decoder and ignored.
  uint64_t NumberOf(const AVFrame& frame) {
    if (frame.pts < 0 || frame.pts >= static_cast<int64_t>(index_.packets.size())) return kNoFrame;
    const VideoPacket& packet = index_.packets[frame.pts];
    if (!packet.shows) return kNoFrame;
    return index_.ordered ? packet.frame : count_++;
  }

  absl::Status Check(const AVFrame& frame, uint64_t number) const {
    if (frame.decode_error_flags != 0 || (frame.flags & AV_FRAME_FLAG_CORRUPT) != 0) {
      return absl::DataLossError(
          absl::StrCat("video frame ", number, " of ", facts_.num_frames, " is corrupt"));
    }
    if (frame.width != static_cast<int>(facts_.width) || frame.height != static_cast<int>(facts_.height)) {
      return absl::DataLossError(absl::StrCat("video frame ", number, " is ", frame.width, "x", frame.height,
                                              ", but the index has ", facts_.width, "x", facts_.height));
    }
    return absl::OkStatus();
  }

  // Passes the frame to the sink for every position of the list that has `number`.
  absl::Status HandOut(const AVFrame& frame, uint64_t number, bool stands_in) {
    auto rows = [&](BandSink& sink) -> absl::Status {
      if (turn_ == 0) return rgb_.Convert(frame, loader_, sink);
      turned_.Start({facts_.width, facts_.height});
      EVENKEEL_RETURN_IF_ERROR(rgb_.Convert(frame, loader_, turned_));
      turned_.Deliver(OrientationOf(turn_), sink);
      return absl::OkStatus();
    };
    refused_ = absl::OkStatus();
    for (; refused_.ok() && !done() && chosen_[position_] == number; ++position_) {
      refused_ = sink_(position_, rows);
      repeated_ += stands_in;
    }
    return refused_;
  }

  const MediaFacts& facts_;
  const VideoIndex& index_;
  std::span<const uint32_t> chosen_;
  uint32_t turn_;
  FrameLoader loader_;
  const FrameSink& sink_;
  FrameRgb& rgb_;
  TurnedPicture& turned_;
  FramePtr last_;  // the previous frame
  bool strict_ = false;
  absl::Status refused_;
  uint64_t count_ = 0;
  uint64_t repeated_ = 0;
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

// Sends the packets that `uses` selects, and a null packet at the end, until the picker has all chosen
// frames.
absl::Status SendPackets(MediaInput& input, AVCodecContext& decoder, std::span<const PacketUse> uses,
                         FramePicker& picker) {
  PacketPtr packet(av_packet_alloc());
  FramePtr frame(av_frame_alloc());
  for (size_t i = 0; i < uses.size() && !picker.done() && input.Next(*packet); ++i) {
    if (uses[i] == PacketUse::kSkip) {
      av_packet_unref(packet.get());
      continue;
    }
    if (uses[i] == PacketUse::kRestart) {
      avcodec_send_packet(&decoder, nullptr);
      EVENKEEL_RETURN_IF_ERROR(Drain(decoder, *frame, picker));
      avcodec_flush_buffers(&decoder);
    }
    packet->pts = static_cast<int64_t>(i);  // identifies the frame (FramePicker::NumberOf)
    int code = avcodec_send_packet(&decoder, packet.get());
    av_packet_unref(packet.get());
    if (code < 0 && code != AVERROR(EAGAIN)) {
      return absl::DataLossError(absl::StrCat("video packet ", i, ": ", FfmpegMessage(code)));
    }
    EVENKEEL_RETURN_IF_ERROR(Drain(decoder, *frame, picker));
  }
  if (picker.done()) return absl::OkStatus();
  avcodec_send_packet(&decoder, nullptr);
  return Drain(decoder, *frame, picker);
}

// The number of the first frame that a decoder delivers. If the file was cut out of a longer video, frames
// before it refer to pictures from before the cut. 0 if it is not found within as many pixels as the limits
// allow for a few frames.
absl::StatusOr<uint32_t> FirstDecoded(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits, FrameLoader loader, const char* name,
                                      const VideoIndex& index) {
  constexpr uint64_t kFrames = 4;
  MediaInput input;
  EVENKEEL_RETURN_IF_ERROR(
      input.Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits, Parameters::kOfPackets, StreamOf(loader)));
  EVENKEEL_ASSIGN_OR_RETURN(CodecPtr decoder, OpenDecoder(input, name, limits, TransformOf(loader)));
  const AVCodecParameters& said = *input.stream().codecpar;
  const uint64_t pixels = std::max<uint64_t>(1, uint64_t{1} * said.width * said.height);
  const uint64_t most = std::min<uint64_t>(index.packets.size(), kFrames * limits.max_video_pixels / pixels);
  PacketPtr packet(av_packet_alloc());
  FramePtr frame(av_frame_alloc());
  for (uint64_t i = 0; i < most && input.Next(*packet); ++i) {
    packet->pts = static_cast<int64_t>(i);
    const int code = avcodec_send_packet(decoder.get(), packet.get());
    av_packet_unref(packet.get());
    if (code < 0) return 0;
    while (avcodec_receive_frame(decoder.get(), frame.get()) >= 0) {
      if (frame->pts < 0 || frame->pts >= static_cast<int64_t>(index.packets.size())) return 0;
      const VideoPacket& first = index.packets[frame->pts];
      if (first.shows) return first.frame;
    }
  }
  return 0;
}

// Indexes the frames that a decode delivers, which may exclude some at the beginning.
absl::Status IndexFrames(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         FrameLoader loader, const char* name, MediaInput& input, VideoIndex& index) {
  EVENKEEL_RETURN_IF_ERROR(IndexVideo(input, limits, index, Untimed::kLead));
  const VideoPacket& front = index.packets.front();
  if (index.times.empty() || (front.starts && front.frame == 0)) return absl::OkStatus();
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t first, FirstDecoded(suffix, bytes, limits, loader, name, index));
  // The decoder delivers some of them, so their order matters and is unknown.
  if (first < index.num_untimed) {
    MediaInput again;  // the caller continues to use the stream of `input`
    EVENKEEL_RETURN_IF_ERROR(
        again.Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits, Parameters::kOfPackets, StreamOf(loader)));
    return IndexVideo(again, limits, index);
  }
  DropFramesBefore(first, index);
  return absl::OkStatus();
}

// An opened video with its decoder.
struct Source {
  MediaInput input;
  const char* name = nullptr;
  CodecPtr decoder;
};

absl::Status OpenSource(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                        Parameters parameters, FrameLoader loader, Source& source, VideoIndex& index) {
  MediaInput& input = source.input;
  EVENKEEL_RETURN_IF_ERROR(
      input.Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits, parameters, StreamOf(loader)));
  EVENKEEL_ASSIGN_OR_RETURN(source.name, DecoderOf(input.stream().codecpar->codec_id));
  EVENKEEL_ASSIGN_OR_RETURN(source.decoder, OpenDecoder(input, source.name, limits, TransformOf(loader)));
  return IndexFrames(suffix, bytes, limits, loader, source.name, input, index);
}

}  // namespace

absl::StatusOr<MediaFacts> ProbeVideo(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits, FrameLoader loader) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  MediaInput input;
  EVENKEEL_RETURN_IF_ERROR(
      input.Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits, Parameters::kOfPackets, StreamOf(loader)));
  AVStream& stream = input.stream();
  EVENKEEL_ASSIGN_OR_RETURN(const char* name, DecoderOf(stream.codecpar->codec_id));
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  if (stream.codecpar->width <= 0 || stream.codecpar->height <= 0) {
    return absl::InvalidArgumentError("the video's header has no width and height");
  }
  facts.width = static_cast<uint32_t>(stream.codecpar->width);
  facts.height = static_cast<uint32_t>(stream.codecpar->height);
  EVENKEEL_RETURN_IF_ERROR(CheckVideoPixels(facts.width, facts.height, limits.max_video_pixels));
  facts.rotation = loader == FrameLoader::kPyav ? 0 : RotationOf(stream);
  VideoIndex& index = KeptScratch().index;
  EVENKEEL_RETURN_IF_ERROR(IndexFrames(suffix, bytes, limits, loader, name, input, index));
  facts.num_frames = FramesOf(loader, stream, index);
  AVRational rate = RateOf(loader, stream, index);
  if (rate.num <= 0)
    return absl::InvalidArgumentError(
        "the video has no frame rate: neither its header nor its frames' times give one");
  facts.fps_num = static_cast<uint32_t>(rate.num);
  facts.fps_den = static_cast<uint32_t>(rate.den);
  facts.duration_us =
      static_cast<uint64_t>(av_rescale(facts.num_frames, int64_t{1000000} * rate.den, rate.num));
  return facts;
}

MediaFacts Upright(const MediaFacts& facts) {
  MediaFacts upright = facts;
  if (facts.rotation % 180 == 90) std::swap(upright.width, upright.height);
  upright.rotation = 0;
  return upright;
}

absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, const VideoWish& wish, const FrameSink& sink,
                         uint64_t* repeated) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  VideoScratch& scratch = KeptScratch();
  auto& [index, chosen, uses, rgb, turned] = scratch;
  const FrameLoader loader = wish.loader;
  // Reading parameters from packets decodes a key frame, which costs as much as several other frames, so the
  // header is tried first.
  std::optional<Source> source(std::in_place);
  EVENKEEL_RETURN_IF_ERROR(OpenSource(suffix, bytes, limits, Parameters::kOfHeader, loader, *source, index));
  if (source->input.knows_header_only() && !(index.divisible && ShowsInOrder(index))) {
    source.emplace();
    EVENKEEL_RETURN_IF_ERROR(
        OpenSource(suffix, bytes, limits, Parameters::kOfPackets, loader, *source, index));
  }
  auto& [input, name, decoder] = *source;
  wish.choose(index.times, Emptied(chosen));
  if (loader == FrameLoader::kTorchcodec) FramesOfPackets(index, chosen);
  PacketsFor(index, chosen, Emptied(uses));
  rgb.ForgetLarge();
  FramePicker picker(facts, scratch, wish, sink);
  // First only the packets that the chosen frames need. Any failure there may be the shortcut's, so only a
  // decode of everything has an error that counts (unless a frame or the sink was refused).
  if (index.divisible) {
    EVENKEEL_RETURN_IF_ERROR(input.Rewind());
    picker.Begin(/*strict=*/true);
    (void)SendPackets(input, *decoder, uses, picker);
    EVENKEEL_RETURN_IF_ERROR(picker.refused());
    // Decode everything, with a new decoder: rewinding may have lost `input`'s parameters.
    if (!picker.done()) {
      MediaInput again;
      EVENKEEL_RETURN_IF_ERROR(
          again.Open(suffix, bytes, AVMEDIA_TYPE_VIDEO, limits, Parameters::kOfPackets, StreamOf(loader)));
      EVENKEEL_ASSIGN_OR_RETURN(decoder, OpenDecoder(again, name, limits, TransformOf(loader)));
      uses.assign(index.packets.size(), PacketUse::kSend);
    }
  }
  if (!picker.done()) {  // a decode of everything delivers the frames, or the error
    EVENKEEL_RETURN_IF_ERROR(input.Rewind());
    picker.Begin(/*strict=*/false);
    EVENKEEL_RETURN_IF_ERROR(SendPackets(input, *decoder, uses, picker));
    EVENKEEL_RETURN_IF_ERROR(picker.Finish());
  }
  *repeated += picker.repeated();
  return absl::OkStatus();
}

absl::Status DecodeVideo(std::string_view suffix, std::span<const std::byte> bytes, const Limits& limits,
                         const MediaFacts& facts, std::span<const uint32_t> chosen, FrameLoader loader,
                         const FrameSink& sink, uint64_t* repeated) {
  VideoWish wish{.choose = [&](std::span<const int64_t>,
                               std::vector<uint32_t>& out) { out.assign(chosen.begin(), chosen.end()); },
                 .loader = loader};
  return DecodeVideo(suffix, bytes, limits, facts, wish, sink, repeated);
}

}  // namespace evenkeel::preprocess
