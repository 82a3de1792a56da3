// The number of samples in an audio packet: from its own bits if the container rounds durations (Matroska: to
// milliseconds), otherwise from the container.
//
// Thread safety: an object belongs to one thread; the count of a Vorbis packet depends on the previous one.
#pragma once

extern "C" {
#include <libavcodec/vorbis_parser.h>
}

#include <cstdint>
#include <memory>

#include "preprocess/ffmpeg.h"

namespace evenkeel::preprocess {

class PacketSamples {
 public:
  explicit PacketSamples(const AVStream& stream);

  // Per channel, at the stream's rate, before anything is skipped.
  uint64_t Of(const AVPacket& packet);

  // The count if the container gives `samples`: at most a whole packet of AAC.
  uint64_t AtMost(uint64_t samples) const {
    return ends_by_duration() && aac_samples_ != 0 ? aac_samples_ : samples;
  }

  // Samples that the decoder itself drops at the beginning (Opus' pre-skip).
  uint64_t dropped_first() const { return dropped_first_; }
  // Samples per unit of SkippedOf: edit lists count ticks of the stream, each of which is two samples with
  // spectral band replication if the container counts at the coded rate.
  uint64_t samples_per_skipped() const { return ends_by_duration() ? samples_per_tick_ : 1; }
  // The packets' times count samples and give the end of the last packet (Ogg Vorbis, whose demuxer
  // overestimates the end of a short file).
  bool ends_by_time() const { return codec_ == AV_CODEC_ID_VORBIS && exact_durations_; }
  // The container's durations give the end of the last packet; the decoder delivers all of it.
  bool ends_by_duration() const { return codec_ == AV_CODEC_ID_AAC && exact_durations_; }

 private:
  struct VorbisFree {
    void operator()(AVVorbisParseContext* parser) const { av_vorbis_parse_free(&parser); }
  };

  uint64_t ByDuration(const AVPacket& packet) const;

  const AVStream& stream_;
  AVCodecID codec_;
  bool exact_durations_ = false;  // counted in samples
  uint64_t samples_per_tick_ = 1;
  uint64_t aac_samples_ = 0;   // of a packet; 0: unknown
  uint64_t alac_samples_ = 0;  // likewise
  uint64_t dropped_first_ = 0;
  std::unique_ptr<AVVorbisParseContext, VorbisFree> vorbis_;
  bool vorbis_begun_ = false;
};

// Whether a packet is a frame. In a stream without a container, bytes between frames (tags of joined files,
// zeros after the end) also arrive as packets, and so does an ADTS frame truncated by the file's end. They
// are not sound, and decoding them would fail; other decoders skip them, too.
bool IsSound(const AVCodecParameters& stream, const AVPacket& packet);

// Whether a packet is the first header of another Vorbis stream after the present one, with its own times and
// rate.
bool BeginsNextLink(const AVCodecParameters& stream, const AVPacket& packet);

// The samples that the decoder drops at the packet's ends, from the container.
struct SkippedSamples {
  uint64_t begin = 0;
  uint64_t end = 0;
};
SkippedSamples SkippedOf(const AVPacket& packet);
// Makes the decoder drop nothing of the packet. FFmpeg 5 applies an edit list twice with spectral band
// replication; later releases apply half of it if the container counts at the coded rate.
void ShowAll(AVPacket& packet);

}  // namespace evenkeel::preprocess
