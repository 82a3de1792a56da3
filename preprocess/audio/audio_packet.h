// How many samples a packet of audio becomes, from its own bits where the container's durations are rounded
// (to milliseconds in Matroska) and from the container's where they are exact.
//
// Thread safety: an object belongs to one thread; Vorbis counts with the packet before.
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

  // The same where the container says `samples` of it, but at most a whole packet of AAC.
  uint64_t MostOf(uint64_t samples) const {
    return ends_by_duration() && aac_samples_ != 0 ? aac_samples_ : samples;
  }

  // What the decoder itself drops at the beginning (Opus' pre-skip).
  uint64_t dropped_first() const { return dropped_first_; }
  // Of what SkippedOf says: edit lists count in ticks of the stream, each of which is two samples where bands
  // are replicated and the container counts at the coded rate.
  uint64_t samples_per_skipped() const { return ends_by_duration() ? samples_per_tick_ : 1; }
  // The packets' times count samples, and say where the last one ends (Ogg Vorbis,
  // whose demuxer takes the end of a short file for longer than it is).
  bool ends_by_time() const { return codec_ == AV_CODEC_ID_VORBIS && exact_durations_; }
  // The container's durations say where the last packet's samples end; the decoder gives the whole packet.
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
  uint64_t aac_samples_ = 0;   // of a packet; 0: not known
  uint64_t alac_samples_ = 0;  // likewise
  uint64_t dropped_first_ = 0;
  std::unique_ptr<AVVorbisParseContext, VorbisFree> vorbis_;
  bool vorbis_begun_ = false;
};

// Whether a packet is a frame at all. What lies between the frames of a stream without a container (tags of
// files that were joined, zeroes behind the end) comes as packets, too, and of ADTS the frame that the file's
// end cuts off: these are no sound, as for other decoders, and what is decoded of them would be an error.
bool IsSound(const AVCodecParameters& stream, const AVPacket& packet);

// Whether a packet is the first header of another Vorbis stream, whose times and rate are its own, behind the
// one that is read.
bool BeginsNextLink(const AVCodecParameters& stream, const AVPacket& packet);

// Samples that the decoder drops at the packet's ends, as the container says.
struct SkippedSamples {
  uint64_t begin = 0;
  uint64_t end = 0;
};
SkippedSamples SkippedOf(const AVPacket& packet);
// Lets the decoder drop nothing of it. FFmpeg 5 takes an edit list's samples twice where bands are
// replicated, later releases half of them where the container counts at the coded rate.
void ShowAll(AVPacket& packet);

}  // namespace evenkeel::preprocess
