// Probes and decodes audio: chooses decoders, counts samples packet by packet, and delivers exactly as many
// samples as the count.
#include "preprocess/audio/audio.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/audio_mpeg.h"
#include "preprocess/audio/audio_packet.h"
#include "preprocess/ffmpeg.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr int kMaxChannels = 64;

// The tested list: decoders that give the same samples on every CPU (docs/safety.md describes the tests),
// with float output if a codec has it.
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
    case AV_CODEC_ID_PCM_F64BE:
      return "pcm_f64be";
    case AV_CODEC_ID_PCM_MULAW:
      return "pcm_mulaw";
    case AV_CODEC_ID_PCM_ALAW:
      return "pcm_alaw";
    case AV_CODEC_ID_FLAC:
      return "flac";
    case AV_CODEC_ID_ALAC:
      return "alac";
    case AV_CODEC_ID_MP3:
      return "mp3float";
    case AV_CODEC_ID_AAC:
      return "aac";
    case AV_CODEC_ID_AC3:
      return "ac3";
    case AV_CODEC_ID_OPUS:
      return "libopus";
    case AV_CODEC_ID_VORBIS:
      return "vorbis";
    default:
      return absl::UnimplementedError(absl::StrCat(
          "audio codec '", avcodec_get_name(id),
          "' is not supported: its decoder was not tested to give the same samples on every CPU"));
  }
}

absl::Status CheckSize(std::span<const std::byte> bytes, const Limits& limits) {
  if (bytes.size() <= limits.max_audio_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("audio of ", bytes.size(), " bytes; limits.max_audio_bytes is ", limits.max_audio_bytes));
}

// The last `count` characters, or all if there are fewer.
std::string_view EndOf(std::string_view file, size_t count) {
  return file.substr(file.size() - std::min(file.size(), count));
}

// The bytes after the ID3v2 tags at the beginning; some files have two. A tag has a magic, a version, flags
// and a size in four bytes of seven bits. If a tag does not end within the file, the bytes from it on.
std::span<const std::byte> BehindId3(std::span<const std::byte> bytes) {
  constexpr size_t kHeader = 10;
  constexpr uint8_t kHasFooter = 0x10;
  while (true) {
    const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (file.size() < kHeader || !file.starts_with("ID3")) return bytes;
    uint64_t size = 0;
    for (size_t i = 6; i < kHeader; ++i) size = size << 7 | (static_cast<uint8_t>(file[i]) & 0x7f);
    size += kHeader + ((static_cast<uint8_t>(file[5]) & kHasFooter) != 0 ? kHeader : 0);
    if (size > bytes.size()) return bytes;
    bytes = bytes.subspan(size);
  }
}

// Removes what taggers write after the last frame of an MP3: ID3v1, APEv2 and Lyrics3. FFmpeg takes APEv2 and
// Lyrics3 for a damaged frame. If they are large, it takes the whole for two joined files, and then does not
// trim the end.
//
// After a FLAC or an ADTS stream the tags would become part of the last frame. ID3v2 before a FLAC is
// removed, too: FFmpeg skips it, but byte positions are counted from its end.
std::span<const std::byte> WithoutTags(std::string_view suffix, std::span<const std::byte> bytes) {
  if (suffix == "flac") bytes = BehindId3(bytes);
  if (suffix != "mp3" && suffix != "flac" && suffix != "aac") return bytes;
  std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (EndOf(file, 128).starts_with("TAG")) file.remove_suffix(128);
  // The tags may come in any order and number, so they are removed from the end until none is left.
  while (true) {
    const std::string_view footer = EndOf(file, 32);  // magic, version, size, items, flags, reserved
    if (footer.size() == 32 && footer.starts_with("APETAGEX")) {
      const auto number = [&](size_t at) {
        uint64_t value = 0;
        for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(footer[at + i]);
        return value;
      };
      // the size does not include the header
      const uint64_t size = number(12) + (number(20) >> 31 != 0 ? 32 : 0);
      if (size < 32 || size > file.size()) break;
      file.remove_suffix(size);
      continue;
    }
    const std::string_view lyrics = EndOf(file, 15);  // six digits, magic
    uint32_t size = 0;
    if (lyrics.size() < 15 || !lyrics.ends_with("LYRICS200")) break;
    if (std::from_chars(lyrics.data(), lyrics.data() + 6, size).ptr != lyrics.data() + 6) break;
    if (size > file.size() - lyrics.size()) break;
    file.remove_suffix(lyrics.size() + size);
  }
  return bytes.first(file.size());
}

// Reads the next packet with sound. For PCM, a partial sample at the end of a truncated file is removed.
// A chained Vorbis stream ends at the header of its next link, whose rate may differ.
bool NextAudio(MediaInput& input, AVPacket& packet) {
  const AVCodecParameters& parameters = *input.stream().codecpar;
  const int block = av_get_exact_bits_per_sample(parameters.codec_id) > 0 ? parameters.block_align : 0;
  while (input.Next(packet, /*cut_off=*/block > 0)) {
    if (BeginsNextLink(parameters, packet)) {
      av_packet_unref(&packet);
      return false;
    }
    if (block > 0) av_shrink_packet(&packet, packet.size / block * block);
    if (packet.size > 0 && IsSound(parameters, packet)) return true;
    av_packet_unref(&packet);
  }
  return false;
}

constexpr uint64_t kMaxOfAPacket = 1ull << 32;
constexpr int64_t kSanePts = int64_t{1} << 60;

// Adds up the samples that packets carry and those of them that are not shown.
class SampleCount {
 public:
  explicit SampleCount(const AVStream& stream) : samples_of_(stream), to_skip_(samples_of_.dropped_first()) {}

  void Add(const AVPacket& packet) {
    const uint64_t samples = std::min(samples_of_.Of(packet), kMaxOfAPacket);
    const SkippedSamples skip = SkippedOf(packet);
    // The first packet has the skip for all packets: an edit list may drop whole packets and a part of the
    // next one.
    if (skip.begin > 0) {
      const uint64_t begin = uint64_t{skip.begin} * samples_of_.samples_per_skipped();
      to_skip_ = number_ == 0 ? std::max(to_skip_, begin) : begin;
    }
    hidden_ = std::min(to_skip_, samples);
    to_skip_ -= hidden_;
    dropped_of_last_ = 0;
    // The edit list drops this packet: a decoder still needs it, but none of its samples count.
    if ((packet.flags & AV_PKT_FLAG_DISCARD) != 0) {
      hidden_ = samples;
      last_ = 0;
      return;
    }
    if (samples_of_.ends_by_time()) {
      AddTime(packet, samples, skip);
    } else if (!samples_of_.ends_by_duration()) {  // a duration already excludes what is dropped at the end
      dropped_of_last_ = skip.end;
      dropped_last_ += skip.end;
    }
    last_ = samples - hidden_;
    ++number_;
    carried_ += samples;
    most_ += samples_of_.AtMost(samples);
    skipped_ += hidden_;
  }

  // Samples of the last packet before and after the shown ones.
  uint64_t hidden() const { return hidden_; }
  uint64_t last() const { return last_; }
  // The part of it that the container drops at the end, if that is stored in the packet itself.
  uint64_t dropped_of_last() const { return dropped_of_last_; }

  bool ends_by_duration() const { return samples_of_.ends_by_duration(); }
  bool ends_by_time() const { return samples_of_.ends_by_time(); }
  // Samples from the first shown one on: all that packets carry, and those that are shown. If an edit ends
  // after the last packet, its duration is longer than the sound.
  uint64_t carried() const {
    const uint64_t carried = std::min(carried_, most_);
    return carried - std::min(carried, skipped_);
  }
  uint64_t shown() const {
    uint64_t shown = carried() - std::min(carried(), dropped_last_);
    const int64_t by_time = sane_ ? end_ - begin_ : 0;
    return samples_of_.ends_by_time() && by_time > 0 ? std::min(shown, static_cast<uint64_t>(by_time))
                                                     : shown;
  }

 private:
  // The first packet of a Vorbis stream delivers no samples, whatever its duration, so the sound begins at
  // the time of the second one. If everything is on one page, FFmpeg counts from the first packet, at zero.
  void AddTime(const AVPacket& packet, uint64_t samples, const SkippedSamples& skip) {
    // A packet without shown samples has no time: it continues the previous one.
    const int64_t time = packet.pts == AV_NOPTS_VALUE ? end_ : packet.pts;
    sane_ &= time > -kSanePts && time < kSanePts;
    if (!sane_) return;
    if (number_ == 0 || (number_ == 1 && begin_ != 0)) begin_ = time;
    end_ = time + static_cast<int64_t>(samples) - static_cast<int64_t>(skip.end);
  }

  PacketSamples samples_of_;
  uint64_t carried_ = 0, most_ = 0, skipped_ = 0, dropped_last_ = 0;
  uint64_t to_skip_ = 0;  // of the following packets
  uint64_t hidden_ = 0, last_ = 0, dropped_of_last_ = 0;
  uint64_t number_ = 0;  // of the next packet
  bool sane_ = true;
  int64_t begin_ = 0, end_ = 0;  // times, if they are used
};

// Counts by packets alone: the decoder is not opened. Work is bounded, because counting stops beyond the
// limit.
absl::StatusOr<uint64_t> CountSamples(MediaInput& input, const Limits& limits) {
  const AVStream& stream = input.stream();
  const uint64_t most = limits.max_audio_seconds * static_cast<uint64_t>(stream.codecpar->sample_rate);
  SampleCount count(stream);
  PacketPtr packet(av_packet_alloc());
  // Some seconds of silence at the ends may be dropped, so a little more than the limit is counted.
  const uint64_t enough = most + uint64_t{8} * static_cast<uint64_t>(stream.codecpar->sample_rate);
  while (NextAudio(input, *packet) && count.carried() <= enough) {
    count.Add(*packet);
    av_packet_unref(packet.get());
  }
  if (count.shown() > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("audio longer than limits.max_audio_seconds ", limits.max_audio_seconds));
  }
  if (count.shown() == 0) return absl::InvalidArgumentError("audio has no samples");
  return count.shown();
}

// Integers become floats in [-1, 1), exactly except for 32 bits, which are rounded.
float ToFloat(uint8_t value) { return (value - 128) * (1.0f / 128); }
float ToFloat(int16_t value) { return value * (1.0f / 32768); }
float ToFloat(int32_t value) { return static_cast<float>(value * (1.0 / 2147483648.0)); }
float ToFloat(float value) { return value; }
float ToFloat(double value) { return static_cast<float>(value); }

// A clip's mono samples at its own rate, in decoding order. They are kept until it is known that they are
// shown, and then resampled, so that only about a packet's samples are in memory for a clip of any length.
class MonoStream {
 public:
  // The first `wanted` samples are resampled, later ones are dropped.
  MonoStream(uint64_t wanted, SpeechResampler& resampler) : wanted_(wanted), resampler_(resampler) {}

  // Samples so far, including those after `wanted`.
  uint64_t size() const { return passed_ + kept_.size(); }
  // Returns room for `count` more samples.
  float* Append(size_t count) {
    kept_.resize(kept_.size() + count);
    return kept_.data() + kept_.size() - count;
  }
  // Drops the first `count` of the kept samples.
  void DropFirst(uint64_t count) {
    kept_.erase(kept_.begin(),
                kept_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(count, kept_.size())));
  }
  void DropLast(uint64_t count) { kept_.resize(kept_.size() - std::min<uint64_t>(count, kept_.size())); }
  // Resamples the kept samples, up to `wanted` in all, and empties the buffer.
  absl::Status Pass() {
    const uint64_t left = wanted_ - std::min(wanted_, passed_);
    EVENKEEL_RETURN_IF_ERROR(
        resampler_.Feed(std::span<const float>(kept_).first(std::min<uint64_t>(left, kept_.size()))));
    passed_ += kept_.size();
    kept_.clear();
    return absl::OkStatus();
  }
  // Adds zeros for missing samples; returns their number.
  absl::StatusOr<uint64_t> Fill() {
    static constexpr std::array<float, 4096> kZeroes{};
    const uint64_t missing = wanted_ - std::min(wanted_, passed_);
    for (uint64_t left = missing; left > 0;) {
      const uint64_t count = std::min<uint64_t>(left, kZeroes.size());
      EVENKEEL_RETURN_IF_ERROR(resampler_.Feed(std::span(kZeroes).first(count)));
      left -= count;
    }
    return missing;
  }

 private:
  static std::vector<float>& Kept() {
    static thread_local std::vector<float> kept;
    return Emptied(kept);
  }

  const uint64_t wanted_;
  SpeechResampler& resampler_;
  uint64_t passed_ = 0;
  std::vector<float>& kept_ = Kept();
};

// The samples of a frame: one plane for each channel, or one plane with interleaved channels.
struct Decoded {
  std::span<const uint8_t* const> planes;
  size_t channels = 0;
  size_t count = 0;  // of each channel
};

// Appends the mean of the channels, summed in channel order.
template <typename T>
// The order of the sum is fixed by the channels and not by the layout in memory, so planar and interleaved
// frames of the same sound give the same bits.
void AppendMean(const Decoded& decoded, MonoStream& out) {
  const bool planar = decoded.planes.size() == decoded.channels;
  float* sums = out.Append(decoded.count);
  for (size_t c = 0; c < decoded.channels; ++c) {
    const T* values = reinterpret_cast<const T*>(decoded.planes[planar ? c : 0]) + (planar ? 0 : c);
    const size_t step = planar ? 1 : decoded.channels;
    if (c == 0) {
      for (size_t i = 0; i < decoded.count; ++i) sums[i] = ToFloat(values[i * step]);
    } else {
      for (size_t i = 0; i < decoded.count; ++i) sums[i] += ToFloat(values[i * step]);
    }
  }
  if (decoded.channels == 1) return;
  for (size_t i = 0; i < decoded.count; ++i) sums[i] /= static_cast<float>(decoded.channels);
}

// The rate or the number of channels may change within a stream; the plan is made for those of the index.
absl::Status CheckKind(int rate, int channels, const MediaFacts& facts, const MonoStream& out) {
  if (rate == static_cast<int>(facts.sample_rate) && channels == static_cast<int>(facts.channels))
    return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("audio of ", rate, " Hz and ", channels, " channels at sample ",
                                          out.size(), "; the index has ", facts.sample_rate, " and ",
                                          facts.channels));
}

absl::Status AppendFrame(const AVFrame& frame, const MediaFacts& facts, MonoStream& out) {
  EVENKEEL_RETURN_IF_ERROR(CheckKind(frame.sample_rate, frame.ch_layout.nb_channels, facts, out));
  auto format = static_cast<AVSampleFormat>(frame.format);
  const size_t channels = facts.channels;
  const Decoded decoded{.planes = {frame.extended_data, av_sample_fmt_is_planar(format) != 0 ? channels : 1},
                        .channels = channels,
                        .count = static_cast<size_t>(frame.nb_samples)};
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8:
      AppendMean<uint8_t>(decoded, out);
      break;
    case AV_SAMPLE_FMT_S16:
      AppendMean<int16_t>(decoded, out);
      break;
    case AV_SAMPLE_FMT_S32:
      AppendMean<int32_t>(decoded, out);
      break;
    case AV_SAMPLE_FMT_FLT:
      AppendMean<float>(decoded, out);
      break;
    case AV_SAMPLE_FMT_DBL:
      AppendMean<double>(decoded, out);
      break;
    default:
      return absl::UnimplementedError(absl::StrCat("sample format ", frame.format));
  }
  return absl::OkStatus();
}

// Whether libmpg123 decodes the stream, whatever its container.
bool IsMp3Of24Khz(const AVCodecParameters& parameters) {
  return parameters.codec_id == AV_CODEC_ID_MP3 && parameters.sample_rate == Mpeg24KhzDecoder::kRate;
}

// Decodes packets by FFmpeg or libmpg123.
class SoundDecoder {
 public:
  static absl::StatusOr<SoundDecoder> Open(MediaInput& input, const Limits& limits) {
    const AVCodecParameters& parameters = *input.stream().codecpar;
    SoundDecoder decoder;
    EVENKEEL_ASSIGN_OR_RETURN(const char* name, DecoderOf(parameters.codec_id));
    if (IsMp3Of24Khz(parameters)) {
      EVENKEEL_ASSIGN_OR_RETURN(decoder.mpeg_, Mpeg24KhzDecoder::Open(parameters.ch_layout.nb_channels));
      return decoder;
    }
    EVENKEEL_ASSIGN_OR_RETURN(decoder.ffmpeg_, OpenDecoder(input, name, limits));
    decoder.frame_.reset(av_frame_alloc());
    return decoder;
  }

  // Whether samples that the container hides are delivered, too, if packets mark them.
  bool shows_all() const { return mpeg_.has_value(); }

  // Appends the samples of the packet.
  absl::Status Decode(const AVPacket& packet, const MediaFacts& facts, MonoStream& out) {
    if (mpeg_.has_value()) return DecodeMpeg(packet, facts, out);
    const int code = avcodec_send_packet(ffmpeg_.get(), &packet);
    if (code < 0 && code != AVERROR(EAGAIN)) return Failed(code, out);
    return Drain(facts, out);
  }
  // Appends the samples that are still in the decoder.
  absl::Status Finish(const MediaFacts& facts, MonoStream& out) {
    if (mpeg_.has_value()) return absl::OkStatus();
    // An empty packet makes the decoder deliver what it delayed.
    avcodec_send_packet(ffmpeg_.get(), nullptr);
    return Drain(facts, out);
  }

 private:
  static absl::Status Failed(int code, const MonoStream& out) {
    return absl::DataLossError(absl::StrCat("audio at sample ", out.size(), ": ", FfmpegMessage(code)));
  }

  // Appends all frames that the decoder has ready.
  absl::Status Drain(const MediaFacts& facts, MonoStream& out) {
    while (true) {
      const int code = avcodec_receive_frame(ffmpeg_.get(), frame_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return absl::OkStatus();
      if (code < 0) return Failed(code, out);
      absl::Status status = AppendFrame(*frame_, facts, out);
      av_frame_unref(frame_.get());
      EVENKEEL_RETURN_IF_ERROR(status);
    }
  }

  absl::Status DecodeMpeg(const AVPacket& packet, const MediaFacts& facts, MonoStream& out) {
    EVENKEEL_RETURN_IF_ERROR(CheckKind(Mpeg24KhzDecoder::kRate, mpeg_->channels(), facts, out));
    absl::StatusOr<std::span<const float>> samples =
        mpeg_->Decode({packet.data, static_cast<size_t>(packet.size)});
    if (!samples.ok()) {
      return absl::Status(samples.status().code(),
                          absl::StrCat("audio at sample ", out.size(), ": ", samples.status().message()));
    }
    const auto* plane = reinterpret_cast<const uint8_t*>(samples->data());
    AppendMean<float>(
        {.planes = {&plane, 1}, .channels = facts.channels, .count = samples->size() / facts.channels}, out);
    return absl::OkStatus();
  }

  CodecPtr ffmpeg_;  // null: libmpg123 decodes
  FramePtr frame_;
  std::optional<Mpeg24KhzDecoder> mpeg_;
};

// Decodes the clip's first `wanted` samples at its own rate, or a few more; fewer if it ends earlier. Returns
// the number of samples at its end that packets carry but the container cuts off.
absl::StatusOr<uint64_t> DecodeMono(std::string_view suffix, std::span<const std::byte> bytes,
                                    const Limits& limits, const MediaFacts& facts, uint64_t wanted,
                                    MonoStream& samples) {
  MediaInput input;
  EVENKEEL_RETURN_IF_ERROR(input.Open(suffix, WithoutTags(suffix, bytes), AVMEDIA_TYPE_AUDIO, limits));
  EVENKEEL_ASSIGN_OR_RETURN(SoundDecoder decoder, SoundDecoder::Open(input, limits));
  PacketPtr packet(av_packet_alloc());
  SampleCount count(input.stream());
  uint64_t beyond = 0;  // samples of the last packet after its duration
  while (samples.size() <= wanted && NextAudio(input, *packet)) {
    count.Add(*packet);
    // FFmpeg's own trimming is switched off where the count is more precise; the count trims below.
    if (count.ends_by_time()) av_packet_free_side_data(packet.get());
    if (count.ends_by_duration()) ShowAll(*packet);
    const uint64_t before = samples.size();
    const absl::Status status = decoder.Decode(*packet, facts, samples);
    av_packet_unref(packet.get());
    EVENKEEL_RETURN_IF_ERROR(status);
    if (count.ends_by_duration()) {
      samples.DropFirst(count.hidden());
      const uint64_t delivered = samples.size() - before;
      // Durations may be rounded down and up in turn, so only that of the last packet says where the sound
      // ends.
      if (delivered > 0) beyond = delivered - std::min(delivered, count.last());
    } else if (decoder.shows_all()) {
      samples.DropFirst(count.hidden());
      samples.DropLast(count.dropped_of_last());
    }
    EVENKEEL_RETURN_IF_ERROR(samples.Pass());
  }
  if (samples.size() <= wanted) {
    EVENKEEL_RETURN_IF_ERROR(decoder.Finish(facts, samples));
    EVENKEEL_RETURN_IF_ERROR(samples.Pass());
  }
  if (samples.size() == 0) return absl::DataLossError("no sample of the audio can be decoded");
  return count.ends_by_time() ? count.carried() - count.shown() : beyond;
}

// The facts of an open clip.
absl::StatusOr<MediaFacts> FactsOf(MediaInput& input, const Limits& limits) {
  const AVCodecParameters& parameters = *input.stream().codecpar;
  EVENKEEL_RETURN_IF_ERROR(DecoderOf(parameters.codec_id).status());
  const int channels = parameters.ch_layout.nb_channels;
  if (parameters.sample_rate <= 0 || channels <= 0)
    return absl::InvalidArgumentError("audio has no sample rate or no channels");
  if (channels > kMaxChannels)
    return absl::ResourceExhaustedError(absl::StrCat("audio of ", channels, " channels"));
  if (!CanResample(parameters.sample_rate)) {
    return absl::UnimplementedError(absl::StrCat("audio of ", parameters.sample_rate,
                                                 " Hz; supported are 4000 to 384000 Hz, for which resampling "
                                                 "was tested to give the same samples on every CPU"));
  }
  // Whether the decoder supports this kind of AAC (it does not support xHE-AAC) is known only after opening
  // it.
  if (parameters.codec_id == AV_CODEC_ID_AAC) {
    EVENKEEL_RETURN_IF_ERROR(OpenDecoder(input, "aac", limits).status());
  }
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = static_cast<uint32_t>(parameters.sample_rate);
  facts.channels = static_cast<uint32_t>(channels);
  EVENKEEL_ASSIGN_OR_RETURN(facts.num_samples, CountSamples(input, limits));
  // In microseconds, rounded as FFmpeg does.
  facts.duration_us = static_cast<uint64_t>(av_rescale(facts.num_samples, 1000000, facts.sample_rate));
  return facts;
}

}  // namespace

absl::StatusOr<MediaFacts> ProbeAudio(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  MediaInput input;
  EVENKEEL_RETURN_IF_ERROR(input.Open(suffix, WithoutTags(suffix, bytes), AVMEDIA_TYPE_AUDIO, limits));
  return FactsOf(input, limits);
}

absl::StatusOr<std::optional<MediaFacts>> ProbeAudioOfVideo(std::string_view suffix,
                                                            std::span<const std::byte> bytes,
                                                            const Limits& limits) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  MediaInput input;
  const absl::Status opened = input.Open(suffix, bytes, AVMEDIA_TYPE_AUDIO, limits);
  if (input.lacks_stream()) return std::nullopt;
  EVENKEEL_RETURN_IF_ERROR(AddContext(opened, "the audio of the video"));
  absl::StatusOr<MediaFacts> facts = FactsOf(input, limits);
  if (!facts.ok()) return AddContext(facts.status(), "the audio of the video");
  return *facts;
}

uint64_t SpeechSamples(const MediaFacts& facts, uint32_t rate) {
  if (facts.sample_rate == 0) return 0;
  return (facts.num_samples * rate + facts.sample_rate - 1) / facts.sample_rate;
}

absl::StatusOr<DecodedAudio> DecodeSpeech(std::string_view suffix, std::span<const std::byte> bytes,
                                          const Limits& limits, const MediaFacts& facts, uint64_t max_samples,
                                          uint32_t rate) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(bytes, limits));
  if (facts.num_samples == 0 || !CanResample(facts.sample_rate)) {
    return absl::InvalidArgumentError("audio has no samples or an unsupported sample rate");
  }
  // One second more than requested, because the resampling filter looks ahead.
  const uint64_t given = std::min(SpeechSamples(facts, rate), max_samples);
  const uint64_t needed = (given + rate) * facts.sample_rate / rate;
  const uint64_t wanted = std::min(facts.num_samples, needed);
  static thread_local ScratchBytes memory;
  const std::span<float> out = memory.GetAs<float>(given);
  EVENKEEL_ASSIGN_OR_RETURN(SpeechResampler resampler, SpeechResampler::Start(facts.sample_rate, out, rate));
  MonoStream mono(wanted, resampler);
  EVENKEEL_ASSIGN_OR_RETURN(const uint64_t padding, DecodeMono(suffix, bytes, limits, facts, wanted, mono));
  DecodedAudio decoded{.samples = out};
  // Extra samples are only an error of the file if the whole clip was requested.
  if (mono.size() > wanted + padding && wanted == facts.num_samples) {
    decoded.trimmed = mono.size() - wanted - padding;
  }
  EVENKEEL_ASSIGN_OR_RETURN(decoded.filled, mono.Fill());
  EVENKEEL_RETURN_IF_ERROR(resampler.Finish());
  return decoded;
}

}  // namespace evenkeel::preprocess
