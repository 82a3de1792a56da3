#include "preprocess/audio.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/ffmpeg.h"

namespace evenkeel {
namespace {

constexpr int kMaxChannels = 64;

// Integer decoders, and libopus: those that were seen to give the same bytes with every set of CPU features
// (tests/preprocess/audio_test.cc). FFmpeg's own float decoders are not among them.
absl::StatusOr<const char*> DecoderOf(AVCodecID id) {
  switch (id) {
    case AV_CODEC_ID_PCM_S16LE:
      return "pcm_s16le";
    case AV_CODEC_ID_PCM_S16BE:
      return "pcm_s16be";
    case AV_CODEC_ID_PCM_U8:
      return "pcm_u8";
    case AV_CODEC_ID_PCM_S8:
      return "pcm_s8";
    case AV_CODEC_ID_PCM_S24LE:
      return "pcm_s24le";
    case AV_CODEC_ID_PCM_S24BE:
      return "pcm_s24be";
    case AV_CODEC_ID_PCM_S32LE:
      return "pcm_s32le";
    case AV_CODEC_ID_PCM_S32BE:
      return "pcm_s32be";
    case AV_CODEC_ID_PCM_F32LE:
      return "pcm_f32le";
    case AV_CODEC_ID_PCM_F32BE:
      return "pcm_f32be";
    case AV_CODEC_ID_PCM_F64LE:
      return "pcm_f64le";
    case AV_CODEC_ID_PCM_MULAW:
      return "pcm_mulaw";
    case AV_CODEC_ID_PCM_ALAW:
      return "pcm_alaw";
    case AV_CODEC_ID_FLAC:
      return "flac";
    case AV_CODEC_ID_ALAC:
      return "alac";
    case AV_CODEC_ID_MP3:
      return "mp3";
    case AV_CODEC_ID_AAC:
      return "aac_fixed";
    case AV_CODEC_ID_AC3:
      return "ac3_fixed";
    case AV_CODEC_ID_OPUS:
      return "libopus";
    default:
      return absl::UnimplementedError(
          absl::StrCat("audio codec '", avcodec_get_name(id),
                       "': its decoder is not known to give the same samples everywhere"));
  }
}

absl::Status CheckSize(std::span<const std::byte> bytes, const Limits& limits) {
  if (bytes.size() <= limits.max_audio_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("audio of ", bytes.size(), " bytes; limits.max_audio_bytes is ", limits.max_audio_bytes));
}

// Samples that the decoder drops at the packet's ends, as the container says.
struct Skipped {
  uint64_t begin = 0;
  uint64_t end = 0;
};
Skipped SkippedOf(const AVPacket& packet) {
  size_t size = 0;
  const uint8_t* skip = av_packet_get_side_data(&packet, AV_PKT_DATA_SKIP_SAMPLES, &size);
  if (skip == nullptr || size < 8) return {};
  auto le32 = [](const uint8_t* p) { return p[0] | p[1] << 8 | p[2] << 16 | uint32_t{p[3]} << 24; };
  return {le32(skip), le32(skip + 4)};
}

absl::StatusOr<uint64_t> CountSamples(MediaInput& input, const Limits& limits) {
  AVStream& stream = input.stream();
  const AVRational per_sample{1, stream.codecpar->sample_rate};
  const uint64_t most = limits.max_audio_seconds * static_cast<uint64_t>(stream.codecpar->sample_rate);
  PacketPtr packet(av_packet_alloc());
  uint64_t samples = 0, skipped = 0;
  while (input.Next(*packet) && samples <= most + skipped) {
    if ((packet->flags & AV_PKT_FLAG_DISCARD) == 0) {
      // Frames of a doubled rate (SBR) count at the coded rate; the container's own duration does not.
      bool coded_rate = stream.codecpar->codec_id != AV_CODEC_ID_AAC;
      int64_t duration = coded_rate ? av_get_audio_frame_duration2(stream.codecpar, packet->size) : 0;
      Skipped skip = SkippedOf(*packet);
      if (duration <= 0) {  // the container's, which is without the end that is dropped
        duration = av_rescale_q(packet->duration, stream.time_base, per_sample);
        skip.end = 0;
      }
      if (duration > 0) samples += std::min(static_cast<uint64_t>(duration), most + 1);
      skipped += skip.begin + skip.end;
    }
    av_packet_unref(packet.get());
  }
  samples = samples > skipped ? samples - skipped : 0;
  if (samples > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("audio longer than limits.max_audio_seconds ", limits.max_audio_seconds));
  }
  if (samples == 0) return absl::InvalidArgumentError("audio without samples");
  return samples;
}

float ToFloat(uint8_t value) { return (value - 128) * (1.0f / 128); }
float ToFloat(int16_t value) { return value * (1.0f / 32768); }
float ToFloat(int32_t value) { return static_cast<float>(value * (1.0 / 2147483648.0)); }
float ToFloat(float value) { return value; }
float ToFloat(double value) { return static_cast<float>(value); }

// Appends the mean of the channels, summed in their order.
template <typename T>
void AppendMean(const AVFrame& frame, bool planar, std::vector<float>& out) {
  const int channels = frame.ch_layout.nb_channels;
  const size_t begin = out.size();
  out.resize(begin + frame.nb_samples);
  for (int i = 0; i < frame.nb_samples; ++i) {
    float sum = 0;
    for (int c = 0; c < channels; ++c) {
      const T* plane = reinterpret_cast<const T*>(frame.extended_data[planar ? c : 0]);
      float value = ToFloat(planar ? plane[i] : plane[size_t{static_cast<unsigned>(i)} * channels + c]);
      sum = c == 0 ? value : sum + value;
    }
    out[begin + i] = channels == 1 ? sum : sum / static_cast<float>(channels);
  }
}

absl::Status AppendFrame(const AVFrame& frame, const MediaFacts& facts, std::vector<float>& out) {
  if (frame.sample_rate != static_cast<int>(facts.sample_rate) ||
      frame.ch_layout.nb_channels != static_cast<int>(facts.channels)) {
    return absl::DataLossError(absl::StrCat(
        "audio of ", frame.sample_rate, " Hz and ", frame.ch_layout.nb_channels, " channels at sample ",
        out.size(), " where the index says ", facts.sample_rate, " and ", facts.channels));
  }
  auto format = static_cast<AVSampleFormat>(frame.format);
  const bool planar = av_sample_fmt_is_planar(format) != 0;
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
      AppendMean<uint8_t>(frame, planar, out);
      break;
    case AV_SAMPLE_FMT_S16:
      AppendMean<int16_t>(frame, planar, out);
      break;
    case AV_SAMPLE_FMT_S32:
      AppendMean<int32_t>(frame, planar, out);
      break;
    case AV_SAMPLE_FMT_FLT:
      AppendMean<float>(frame, planar, out);
      break;
    case AV_SAMPLE_FMT_DBL:
      AppendMean<double>(frame, planar, out);
      break;
    default:
      return absl::UnimplementedError(absl::StrCat("sample format ", frame.format));
  }
  return absl::OkStatus();
}

absl::Status Drain(AVCodecContext& decoder, AVFrame& frame, const MediaFacts& facts,
                   std::vector<float>& out) {
  while (true) {
    int code = avcodec_receive_frame(&decoder, &frame);
    if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return absl::OkStatus();
    if (code < 0)
      return absl::DataLossError(absl::StrCat("audio at sample ", out.size(), ": ", FfmpegMessage(code)));
    absl::Status status = AppendFrame(frame, facts, out);
    av_frame_unref(&frame);
    EVENKEEL_RETURN_IF_ERROR(status);
  }
}

// The clip's first `wanted` samples at its own rate, or a few more; fewer where it ends.
absl::StatusOr<std::vector<float>> DecodeMono(std::string_view suffix, std::span<const std::byte> bytes,
                                              const Limits& limits, const MediaFacts& facts,
                                              uint64_t wanted) {
  EVENKEEL_ASSIGN_OR_RETURN(MediaInput input, MediaInput::Open(suffix, bytes, AVMEDIA_TYPE_AUDIO, limits));
  EVENKEEL_ASSIGN_OR_RETURN(const char* name, DecoderOf(input.stream().codecpar->codec_id));
  EVENKEEL_ASSIGN_OR_RETURN(CodecPtr decoder, OpenDecoder(input, name, limits));
  PacketPtr packet(av_packet_alloc());
  FramePtr frame(av_frame_alloc());
  std::vector<float> samples;
  while (samples.size() <= wanted && input.Next(*packet)) {
    int code = avcodec_send_packet(decoder.get(), packet.get());
    av_packet_unref(packet.get());
    if (code < 0 && code != AVERROR(EAGAIN)) {
      return absl::DataLossError(absl::StrCat("audio at sample ", samples.size(), ": ", FfmpegMessage(code)));
    }
    EVENKEEL_RETURN_IF_ERROR(Drain(*decoder, *frame, facts, samples));
  }
  if (samples.size() <= wanted) {
    avcodec_send_packet(decoder.get(), nullptr);
    EVENKEEL_RETURN_IF_ERROR(Drain(*decoder, *frame, facts, samples));
  }
  if (samples.empty()) return absl::DataLossError("audio of which no sample can be decoded");
  return samples;
}

}  // namespace

absl::StatusOr<MediaFacts> ProbeAudio(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  EVENKEEL_ASSIGN_OR_RETURN(MediaInput input, MediaInput::Open(suffix, bytes, AVMEDIA_TYPE_AUDIO, limits));
  const AVCodecParameters& parameters = *input.stream().codecpar;
  EVENKEEL_RETURN_IF_ERROR(DecoderOf(parameters.codec_id).status());
  const int channels = parameters.ch_layout.nb_channels;
  if (parameters.sample_rate <= 0 || channels <= 0)
    return absl::InvalidArgumentError("audio without rate or channels");
  if (channels > kMaxChannels)
    return absl::ResourceExhaustedError(absl::StrCat("audio of ", channels, " channels"));
  if (!IsTestedRate(parameters.sample_rate)) {
    return absl::UnimplementedError(
        absl::StrCat("audio of ", parameters.sample_rate,
                     " Hz: resampling from it is not known to give the same samples everywhere"));
  }
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = static_cast<uint32_t>(parameters.sample_rate);
  facts.channels = static_cast<uint32_t>(channels);
  EVENKEEL_ASSIGN_OR_RETURN(facts.num_samples, CountSamples(input, limits));
  facts.duration_us = static_cast<uint64_t>(av_rescale(facts.num_samples, 1000000, facts.sample_rate));
  return facts;
}

uint64_t SpeechSamples(const MediaFacts& facts) {
  if (facts.sample_rate == 0) return 0;
  return (facts.num_samples * kSpeechRate + facts.sample_rate - 1) / facts.sample_rate;
}

absl::StatusOr<DecodedAudio> DecodeSpeech(std::string_view suffix, std::span<const std::byte> bytes,
                                          const Limits& limits, const MediaFacts& facts,
                                          uint64_t max_samples) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  if (facts.num_samples == 0 || !IsTestedRate(facts.sample_rate)) {
    return absl::InvalidArgumentError("audio without samples or with an untested rate");
  }
  // A second more than is asked for: the resampling filter looks ahead.
  const uint64_t needed = (max_samples + kSpeechRate) * facts.sample_rate / kSpeechRate;
  const uint64_t wanted = std::min(facts.num_samples, needed);
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<float> mono, DecodeMono(suffix, bytes, limits, facts, wanted));
  DecodedAudio decoded;
  if (mono.size() < wanted) decoded.filled = wanted - mono.size();
  if (mono.size() > wanted && wanted == facts.num_samples) decoded.trimmed = mono.size() - wanted;
  mono.resize(wanted);
  EVENKEEL_ASSIGN_OR_RETURN(decoded.samples, ResampleToSpeech(mono, facts.sample_rate,
                                                              std::min(SpeechSamples(facts), max_samples)));
  return decoded;
}

}  // namespace evenkeel
