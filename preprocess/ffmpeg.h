// FFmpeg's objects as unique_ptrs, and a container opened from memory. No other file frees FFmpeg's objects.
//
// Demuxers are chosen by declared type and magic bytes, never by probing; nothing but the given bytes is ever
// opened.
//
// Thread safety: a MediaInput belongs to one thread.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"

namespace evenkeel::preprocess {

struct PacketFree {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FrameFree {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};
struct CodecFree {
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
};
struct IoFree {
  void operator()(AVIOContext* io) const;
};
struct FormatFree {
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
};
using PacketPtr = std::unique_ptr<AVPacket, PacketFree>;
using FramePtr = std::unique_ptr<AVFrame, FrameFree>;
using CodecPtr = std::unique_ptr<AVCodecContext, CodecFree>;
using IoPtr = std::unique_ptr<AVIOContext, IoFree>;
using FormatPtr = std::unique_ptr<AVFormatContext, FormatFree>;

// The text of an FFmpeg error code, such as "Invalid data found when processing input".
std::string FfmpegMessage(int code);

// Where the parameters of streams come from.
enum class Parameters : uint8_t {
  kOfPackets,  // the headers, and the first packets, of which some are decoded
  kOfHeader,   // the header alone, where a decoder needs no more: see MediaInput::knows_header_only
};

// Which of a container's streams of one type is read. Attached pictures (covers) are considered only by kBest
// and kBestOfAny, which nearly always rank them last.
enum class StreamChoice : uint8_t {
  kFirstDefault,  // the first one marked default, else the first
  kBest,       // FFmpeg's: default, then frames found at the beginning, then bit rate (av_find_best_stream)
  kBestOfAny,  // the same without a preference for default ones, as in FFmpeg 4
  kFirst,
};

// A container, one of whose streams is read.
//
// Example:
//     MediaInput input;
//     EVENKEEL_RETURN_IF_ERROR(input.Open("mp4", bytes, AVMEDIA_TYPE_VIDEO, limits));
//
// Cannot be moved: FFmpeg holds its address.
class MediaInput {
 public:
  MediaInput() = default;
  MediaInput(const MediaInput&) = delete;
  MediaInput& operator=(const MediaInput&) = delete;

  // Opens the container that `suffix` declares and picks a stream of `type` by `choice`. Call it once.
  // InvalidArgument: not what is declared, damaged, no such stream; Unimplemented: an unknown type;
  // ResourceExhausted: more streams than limits.max_streams.
  absl::Status Open(std::string_view suffix, std::span<const std::byte> bytes, AVMediaType type,
                    const Limits& limits, Parameters parameters = Parameters::kOfPackets,
                    StreamChoice choice = StreamChoice::kFirstDefault);

  // True after an Open() that failed because the container has no stream of the type.
  bool lacks_stream() const { return stream_ < 0; }

  AVFormatContext& format() { return *format_; }
  AVStream& stream() { return *format_->streams[stream_]; }
  // True if no packet has been decoded: Parameters::kOfHeader was given, and the stream is H.264 in MP4 with
  // its parameter sets in the header, which does not tell whether frames are shown in another order than they
  // are decoded. A decoder that meets such frames too late can drop frames.
  bool knows_header_only() const { return knows_header_only_; }

  // Goes back to the first packet. Parameters that were learned from packets can be missing afterwards, so
  // open the decoder before.
  absl::Status Rewind();

  // Reads the next whole packet of the stream; false at the end. Damaged and empty packets are skipped, so
  // that the pass that counts and the pass that decodes see the same ones. `cut_off`: also returns packets of
  // which the file has only the beginning.
  bool Next(AVPacket& packet, bool cut_off = false);

 private:
  struct Memory {
    std::span<const std::byte> bytes;
    size_t position = 0;
  };
  absl::Status OpenContainer();
  // Whether the choice of the stream depends on the first packets.
  bool ChoosesByPackets() const;
  absl::Status LearnParameters();
  void IgnoreOtherStreams();
  static int ReadMemory(void* opaque, uint8_t* out, int size);
  static int64_t SeekMemory(void* opaque, int64_t offset, int whence);

  Memory memory_;
  IoPtr io_;
  FormatPtr format_;  // closed before io_
  const char* demuxer_ = nullptr;
  AVMediaType type_ = AVMEDIA_TYPE_UNKNOWN;
  StreamChoice choice_ = StreamChoice::kFirstDefault;
  uint32_t max_streams_ = 0;
  uint64_t max_pixels_ = 0;
  int stream_ = 0;
  bool knows_header_only_ = false;
};

// ResourceExhausted: a picture larger than `max_pixels`, which is limits.max_video_pixels.
absl::Status CheckVideoPixels(int64_t width, int64_t height, uint64_t max_pixels);

// The inverse transform of codecs that leave its rounding open (MPEG-4, Motion JPEG).
enum class InverseTransform : uint8_t {
  kSimple,    // one for all
  kEncoders,  // that of the encoder which the stream names (Xvid), as every user of FFmpeg gets it
};

// A decoder for the stream: one thread, bit-exact. `name`: which of FFmpeg's decoders.
absl::StatusOr<CodecPtr> OpenDecoder(MediaInput& input, const char* name, const Limits& limits,
                                     InverseTransform transform = InverseTransform::kSimple);

// The same for the coded images of a file that FFmpeg does not open. `configuration`: the decoder's parameters, as
// MP4 stores them; may be empty. Errors of the bit stream are errors of the decode, and a picture of more than
// `max_pixels` is one before memory is taken.
absl::StatusOr<CodecPtr> OpenStillDecoder(const char* name, std::span<const std::byte> configuration,
                                          uint64_t max_pixels);

}  // namespace evenkeel::preprocess
