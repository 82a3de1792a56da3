// Reads the number of samples from packet headers, codec by codec, each from its specification.
#include "preprocess/audio/audio_packet.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "preprocess/mpeg_audio_header.h"

namespace evenkeel::preprocess {
namespace {

// RFC 6716, 3.1 and 3.2: the number of frames times the frame length named by the first byte, at 48 kHz.
uint64_t OpusSamples(std::span<const uint8_t> packet) {
  if (packet.empty()) return 0;
  const int config = packet[0] >> 3;
  uint64_t frame = 0;
  if (config < 12) {
    frame = std::array{480, 960, 1920, 2880}[config % 4];
  } else if (config < 16) {
    frame = config % 2 == 0 ? 480 : 960;
  } else {
    frame = 120u << config % 4;
  }
  const int code = packet[0] & 3;
  if (code == 3) return packet.size() < 2 ? 0 : frame * (packet[1] & 63);
  return code == 0 ? frame : 2 * frame;
}

// RFC 9639, 9.1: the block size of a frame; 0: the header cannot be read.
uint64_t FlacSamples(std::span<const uint8_t> packet) {
  if (packet.size() < 8 || packet[0] != 0xff || (packet[1] & 0xfc) != 0xf8) return 0;
  const int code = packet[2] >> 4;
  if (code == 1) return 192;
  if (code >= 2 && code <= 5) return 576u << (code - 2);
  if (code >= 8) return 256u << (code - 8);
  if (code == 0) return 0;
  const size_t number_bytes = std::max(1, std::countl_one(packet[4]));  // like UTF-8
  const size_t at = 4 + number_bytes;
  if (at + 2 > packet.size()) return 0;
  return code == 6 ? packet[at] + 1u : (packet[at] << 8 | packet[at + 1]) + 1u;
}

// ISO/IEC 14496-3, 1.6.2.1: samples of a packet at the decoder's output rate, which is twice the coded rate
// with spectral band replication. 0: no such header, or one with an escape.
uint64_t AacSamples(std::span<const uint8_t> config, int rate) {
  constexpr std::array kRates = {96000, 88200, 64000, 48000, 44100, 32000, 24000,
                                 22050, 16000, 12000, 11025, 8000,  7350};
  if (config.size() < 2) return 0;
  const unsigned bits = config[0] << 8 | config[1];
  const unsigned type = bits >> 11, index = bits >> 7 & 15;
  if (type == 31 || index >= kRates.size()) return 0;
  const bool short_frames = (type == 1 || type == 2 || type == 4) && (bits >> 2 & 1) != 0;
  const int coded = kRates[index];
  if (rate % coded != 0 || rate / coded > 2) return 0;
  return (short_frames ? 960u : 1024u) * (rate / coded);
}

// The number of samples in a packet's first element, which a short last packet has (a flag of 1 bit after 19
// bits, then after 3 more bits 32 bits); otherwise the default. 0: more than the default, which the decoder
// refuses.
uint64_t AlacSamples(std::span<const uint8_t> packet, uint64_t default_samples) {
  if (packet.size() < 7) return 0;
  if ((packet[2] & 0x10) == 0) return default_samples;
  const uint64_t samples = uint64_t{packet[2] & 1u} << 31 | uint64_t{packet[3]} << 23 | packet[4] << 15 |
                           packet[5] << 7 | packet[6] >> 1;
  return samples > default_samples ? 0 : samples;
}

// Whether a frame header follows, after any zero bytes.
bool IsMpegAudio(std::span<const uint8_t> packet) {
  const auto begin = std::find_if(packet.begin(), packet.end(), [](uint8_t byte) { return byte != 0; });
  return ParseMpegAudioHeader({begin, packet.end()}).has_value();
}

// ISO/IEC 14496-3, 1.A.2.2: a sync word, and as many bytes as the header names.
bool IsWholeAdts(std::span<const uint8_t> packet) {
  if (packet.size() < 7 || packet[0] != 0xff || (packet[1] & 0xf6) != 0xf0) return false;
  const size_t length = (packet[3] & 3u) << 11 | packet[4] << 3 | packet[5] >> 5;
  return length <= packet.size();
}

}  // namespace

bool IsSound(const AVCodecParameters& stream, const AVPacket& packet) {
  const std::span<const uint8_t> bytes(packet.data, static_cast<size_t>(packet.size));
  if (stream.codec_id == AV_CODEC_ID_MP3) return IsMpegAudio(bytes);
  if (stream.codec_id == AV_CODEC_ID_AAC && stream.extradata_size == 0) return IsWholeAdts(bytes);
  return true;
}

bool BeginsNextLink(const AVCodecParameters& stream, const AVPacket& packet) {
  return stream.codec_id == AV_CODEC_ID_VORBIS && packet.size > 0 && packet.data[0] == 1;
}

PacketSamples::PacketSamples(const AVStream& stream) : stream_(stream), codec_(stream.codecpar->codec_id) {
  const AVCodecParameters& parameters = *stream.codecpar;
  const std::span<const uint8_t> extra(parameters.extradata, static_cast<size_t>(parameters.extradata_size));
  // A tick is one sample, or two with spectral band replication. With longer ticks (Matroska's milliseconds)
  // the durations of packets are rounded.
  const AVRational unit = stream.time_base;
  const int64_t samples = int64_t{unit.num} * parameters.sample_rate;
  exact_durations_ = unit.den > 0 && samples % unit.den == 0 && samples / unit.den <= 2;
  if (exact_durations_) samples_per_tick_ = static_cast<uint64_t>(samples / unit.den);
  if (codec_ == AV_CODEC_ID_AAC) aac_samples_ = AacSamples(extra, parameters.sample_rate);
  if (codec_ == AV_CODEC_ID_ALAC && extra.size() >= 16) {
    alac_samples_ = uint64_t{extra[12]} << 24 | extra[13] << 16 | extra[14] << 8 | extra[15];
  }
  if (codec_ == AV_CODEC_ID_OPUS && extra.size() >= 12) dropped_first_ = extra[10] | extra[11] << 8;
  if (codec_ == AV_CODEC_ID_VORBIS && !extra.empty()) {
    vorbis_.reset(av_vorbis_parse_init(extra.data(), static_cast<int>(extra.size())));
  }
}

uint64_t PacketSamples::ByDuration(const AVPacket& packet) const {
  const AVRational per_sample{1, stream_.codecpar->sample_rate};
  return static_cast<uint64_t>(
      std::max<int64_t>(av_rescale_q(packet.duration, stream_.time_base, per_sample), 0));
}

uint64_t PacketSamples::Of(const AVPacket& packet) {
  const std::span<const uint8_t> bytes(packet.data, static_cast<size_t>(packet.size));
  switch (codec_) {
    case AV_CODEC_ID_OPUS:
      return OpusSamples(bytes);
    case AV_CODEC_ID_FLAC: {
      const uint64_t samples = FlacSamples(bytes);
      return samples != 0 ? samples : ByDuration(packet);
    }
    case AV_CODEC_ID_VORBIS: {
      if (vorbis_ == nullptr) return ByDuration(packet);
      const int samples = av_vorbis_parse_frame(vorbis_.get(), packet.data, packet.size);
      const bool first = !std::exchange(vorbis_begun_, true);  // the first one only fills the overlap
      return first || samples < 0 ? 0 : static_cast<uint64_t>(samples);
    }
    case AV_CODEC_ID_AAC: {  // with a doubled rate, frames would be counted at the coded rate
      // AVI and fragmented MP4 have no duration for the first packet.
      const uint64_t samples = exact_durations_ || aac_samples_ == 0 ? ByDuration(packet) : 0;
      return samples != 0 ? samples : aac_samples_;
    }
    case AV_CODEC_ID_ALAC: {
      const uint64_t samples = exact_durations_ ? ByDuration(packet) : 0;
      return samples != 0 ? samples : AlacSamples(bytes, alac_samples_);
    }
    default: {
      const int samples = av_get_audio_frame_duration2(stream_.codecpar, packet.size);
      return samples > 0 ? static_cast<uint64_t>(samples) : ByDuration(packet);
    }
  }
}

SkippedSamples SkippedOf(const AVPacket& packet) {
  size_t size = 0;
  const uint8_t* skip = av_packet_get_side_data(&packet, AV_PKT_DATA_SKIP_SAMPLES, &size);
  if (skip == nullptr || size < 8) return {};
  auto le32 = [](const uint8_t* p) { return p[0] | p[1] << 8 | p[2] << 16 | uint32_t{p[3]} << 24; };
  return {le32(skip), le32(skip + 4)};
}

void ShowAll(AVPacket& packet) {
  size_t size = 0;
  uint8_t* skip = av_packet_get_side_data(&packet, AV_PKT_DATA_SKIP_SAMPLES, &size);
  if (skip != nullptr) std::fill_n(skip, size, uint8_t{0});
  packet.flags &= ~AV_PKT_FLAG_DISCARD;
}

}  // namespace evenkeel::preprocess
