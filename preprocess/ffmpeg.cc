// Opens media with FFmpeg from memory, with the same code on every machine. It limits what a file can make
// FFmpeg do: the demuxer follows from the declared type and the magic bytes, no other file is opened, and
// streams, pixels and allocations are bounded before anything is decoded.
#include "preprocess/ffmpeg.h"

#include <dlfcn.h>

extern "C" {
#include <libavutil/cpu.h>
#include <libavutil/dict.h>
#include <libavutil/mem.h>
}

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/mpeg_audio_header.h"

namespace evenkeel::preprocess {
namespace {

constexpr int kIoBufferBytes = 64 << 10;
constexpr int64_t kHeaderProbeBytes = 8 << 20;
constexpr size_t kMaxAllocation = 1 << 30;  // bytes of one block inside FFmpeg
constexpr int kMaxCountedStreams = 1000;

bool StartsWith(std::span<const std::byte> bytes, size_t offset, std::string_view magic) {
  return bytes.size() >= offset + magic.size() &&
         std::memcmp(bytes.data() + offset, magic.data(), magic.size()) == 0;
}

// The first box of a QuickTime or MP4 file: its type follows a length of four bytes.
bool IsMov(std::span<const std::byte> bytes) {
  for (std::string_view box : {"ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"}) {
    if (StartsWith(bytes, 4, box)) return true;
  }
  return false;
}
bool IsMatroska(std::span<const std::byte> bytes) { return StartsWith(bytes, 0, "\x1a\x45\xdf\xa3"); }
bool IsWav(std::span<const std::byte> bytes) {
  const bool is_riff =
      StartsWith(bytes, 0, "RIFF") || StartsWith(bytes, 0, "RF64") || StartsWith(bytes, 0, "BW64");
  return is_riff && StartsWith(bytes, 8, "WAVE");
}
bool IsAvi(std::span<const std::byte> bytes) {
  return StartsWith(bytes, 0, "RIFF") && StartsWith(bytes, 8, "AVI ");
}
bool IsAiff(std::span<const std::byte> bytes) {
  return StartsWith(bytes, 0, "FORM") && (StartsWith(bytes, 8, "AIFF") || StartsWith(bytes, 8, "AIFC"));
}
bool IsFlac(std::span<const std::byte> bytes) { return StartsWith(bytes, 0, "fLaC"); }
bool IsOgg(std::span<const std::byte> bytes) { return StartsWith(bytes, 0, "OggS"); }
bool IsAc3(std::span<const std::byte> bytes) { return StartsWith(bytes, 0, "\x0b\x77"); }
// The frame header of MPEG audio and ADTS: 11 or 12 bits set, then the layer.
bool HasMpegSync(std::span<const std::byte> bytes, bool adts) {
  if (bytes.size() < 2 || bytes[0] != std::byte{0xff}) return false;
  int second = std::to_integer<int>(bytes[1]);
  return adts ? (second & 0xf6) == 0xf0 : (second & 0xe0) == 0xe0 && (second & 0x06) != 0;
}
bool IsMp3(std::span<const std::byte> bytes) {
  return StartsWith(bytes, 0, "ID3") || HasMpegSync(bytes, false) ||
         FindMp3({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).has_value();
}
bool IsAdts(std::span<const std::byte> bytes) {
  return StartsWith(bytes, 0, "ID3") || HasMpegSync(bytes, true);
}

struct Container {
  std::string_view suffix;
  const char* demuxer;
  bool (*has_magic)(std::span<const std::byte>);
};
constexpr Container kContainers[] = {
    {"wav", "wav", IsWav},           {"aiff", "aiff", IsAiff},
    {"aif", "aiff", IsAiff},         {"aifc", "aiff", IsAiff},
    {"flac", "flac", IsFlac},        {"mp3", "mp3", IsMp3},
    {"aac", "aac", IsAdts},          {"ac3", "ac3", IsAc3},
    {"ogg", "ogg", IsOgg},           {"opus", "ogg", IsOgg},
    {"oga", "ogg", IsOgg},           {"m4a", "mov", IsMov},
    {"mp4", "mov", IsMov},           {"m4v", "mov", IsMov},
    {"mov", "mov", IsMov},           {"webm", "matroska", IsMatroska},
    {"mkv", "matroska", IsMatroska}, {"mka", "matroska", IsMatroska},
    {"avi", "avi", IsAvi},
};

// FFmpeg and dav1d are limited to the same vector code on every processor. Several codecs decode damaged
// media to different bytes with different code: FLAC, H.264 and VP8 in C, VP9 with SSE2 alone, AV1 with each
// set. The level is x86-64-v2: HEVC takes twice the time without it, and no codec gains much from a higher
// one. On other architectures all code that these libraries choose from is in the baseline.
#ifdef __x86_64__
constexpr int kVectorCode = AV_CPU_FLAG_MMX | AV_CPU_FLAG_MMXEXT | AV_CPU_FLAG_CMOV | AV_CPU_FLAG_SSE |
                            AV_CPU_FLAG_SSE2 | AV_CPU_FLAG_SSE3 | AV_CPU_FLAG_SSSE3 | AV_CPU_FLAG_SSE4 |
                            AV_CPU_FLAG_SSE42;
constexpr unsigned kDav1dVectorCode = 7;  // SSE2, SSSE3, SSE4.1
#else
constexpr int kVectorCode = 0;
constexpr unsigned kDav1dVectorCode = 1;  // NEON
#endif

// Limits the vector code of dav1d. Returns false if FFmpeg is linked with a dav1d whose functions are hidden.
bool SetDav1dVectorCode(unsigned flags) {
  const auto set = reinterpret_cast<void (*)(unsigned)>(dlsym(RTLD_DEFAULT, "dav1d_set_cpu_flags_mask"));
  if (set != nullptr) set(flags);
  return set != nullptr;
}

// Runs once, before any other use of FFmpeg. Its errors are Internal, which is no verdict on the data: this
// process cannot decode as others do.
absl::Status Prepare() {
  static const absl::Status prepared = [] {
    av_log_set_level(AV_LOG_QUIET);
    av_max_alloc(kMaxAllocation);
    if ((kVectorCode & ~av_get_cpu_flags()) != 0) {
      return absl::InternalError(
          "this processor lacks SSE4.2 or SSSE3: audio and video are decoded with the instructions of "
          "x86-64-v2, "
          "so that every worker delivers the same bytes; run the worker on another machine");
    }
    if (kVectorCode != 0) av_force_cpu_flags(kVectorCode);
    if (avcodec_find_decoder_by_name("libdav1d") != nullptr && !SetDav1dVectorCode(kDav1dVectorCode)) {
      return absl::InternalError(
          "FFmpeg is linked with dav1d in a way that hides dav1d_set_cpu_flags_mask; link it with the shared "
          "library");
    }
    return absl::OkStatus();
  }();
  return prepared;
}

// Decoders that FFmpeg may use to learn parameters from the first packets. They deliver nothing: frames and
// samples come from OpenDecoder.
constexpr char kProbeCodecs[] =
    "h264,hevc,mpeg4,mjpeg,vp8,vp9,libdav1d,cinepak,aac,ac3,mp3float,flac,alac,opus,libopus,vorbis,"
    "pcm_s16le,pcm_s16be,pcm_u8,pcm_s8,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,"
    "pcm_f64be,pcm_mulaw,pcm_alaw";

int RefuseToOpen(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EPERM); }

// Decodes the first packets of containers whose headers lack parameters. `max_pixels` bounds the pictures of
// the stream `picked`, and the sum over all other video streams, since each can have a decoder that holds
// many frames. Of the others, a stream with larger pictures is not decoded.
int ReadParameters(AVFormatContext& format, int picked, uint64_t max_pixels) {
  const unsigned count = format.nb_streams;
  auto** options = static_cast<AVDictionary**>(av_calloc(count + 1, sizeof(AVDictionary*)));
  if (options == nullptr) return AVERROR(ENOMEM);
  uint64_t num_others = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (static_cast<int>(i) != picked && format.streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO)
      ++num_others;
  }
  const uint64_t other_pixels = std::max<uint64_t>(max_pixels / std::max<uint64_t>(num_others, 1), 1);
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t most = static_cast<int>(i) == picked ? max_pixels : other_pixels;
    av_dict_set_int(&options[i], "max_pixels", static_cast<int64_t>(most), 0);
  }
  const int code = avformat_find_stream_info(&format, options);
  for (unsigned i = 0; i < count; ++i) av_dict_free(&options[i]);
  av_free(static_cast<void*>(options));
  return code;
}

absl::StatusOr<const Container*> ContainerOf(std::string_view suffix, std::span<const std::byte> bytes) {
  std::string_view type = suffix.substr(suffix.rfind('.') + 1);  // npos + 1 is 0
  for (const Container& container : kContainers) {
    if (container.suffix != type) continue;
    if (container.has_magic(bytes)) return &container;
    return absl::InvalidArgumentError(
        absl::StrCat("declared as '", std::string(type), "', but its first bytes are not that"));
  }
  return absl::UnimplementedError(absl::StrCat("container '", std::string(type), "'"));
}

bool ChoosesBest(StreamChoice choice) {
  return choice == StreamChoice::kBest || choice == StreamChoice::kBestOfAny;
}

// FFmpeg's choice of a stream; -1 if there is none. `of_any`: the mark "default" is hidden from it and
// restored afterwards.
int BestStream(AVFormatContext& format, AVMediaType type, bool of_any) {
  std::vector<int> dispositions;
  for (unsigned i = 0; of_any && i < format.nb_streams; ++i) {
    int& disposition = format.streams[i]->disposition;
    dispositions.push_back(disposition);
    disposition &= ~AV_DISPOSITION_DEFAULT;
  }
  const AVCodec* decoder = nullptr;  // asked for, so that a stream without one is not picked
  const int best = av_find_best_stream(&format, type, -1, -1, &decoder, 0);
  for (size_t i = 0; i < dispositions.size(); ++i) format.streams[i]->disposition = dispositions[i];
  return std::max(best, -1);
}

int PickStream(AVFormatContext& format, AVMediaType type, StreamChoice choice) {
  if (ChoosesBest(choice)) return BestStream(format, type, choice == StreamChoice::kBestOfAny);
  int first = -1;
  for (unsigned i = 0; i < format.nb_streams; ++i) {
    const AVStream& stream = *format.streams[i];
    if (stream.codecpar->codec_type != type || (stream.disposition & AV_DISPOSITION_ATTACHED_PIC) != 0)
      continue;
    const bool is_default = (stream.disposition & AV_DISPOSITION_DEFAULT) != 0;
    if (is_default || choice == StreamChoice::kFirst) return static_cast<int>(i);
    if (first < 0) first = static_cast<int>(i);
  }
  return first;
}

// Whether the header has all that a decoder needs (see MediaInput::knows_header_only): H.264 in MP4 with
// parameter sets, a size, and no reordered frames.
bool HeaderSuffices(AVFormatContext& format, AVMediaType type, StreamChoice choice) {
  const int picked = PickStream(format, type, choice);
  if (picked < 0 || !std::string_view(format.iformat->name).starts_with("mov")) return false;
  const AVCodecParameters& said = *format.streams[picked]->codecpar;
  const bool has_sets = said.extradata_size > 6 && said.extradata[0] == 1;  // avcC
  return said.codec_id == AV_CODEC_ID_H264 && has_sets && said.width > 0 && said.height > 0 &&
         said.video_delay == 0;
}

}  // namespace

void IoFree::operator()(AVIOContext* io) const {
  av_freep(&io->buffer);
  avio_context_free(&io);
}

std::string FfmpegMessage(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof(text));
  return text;
}

// Callback of FFmpeg: reads at the position and advances it.
int MediaInput::ReadMemory(void* opaque, uint8_t* out, int size) {
  auto& memory = *static_cast<Memory*>(opaque);
  size_t left = memory.bytes.size() - memory.position;
  if (left == 0) return AVERROR_EOF;
  size_t count = std::min(left, static_cast<size_t>(size));
  std::memcpy(out, memory.bytes.data() + memory.position, count);
  memory.position += count;
  return static_cast<int>(count);
}

// Callback of FFmpeg: sets the position, or returns the size for AVSEEK_SIZE.
int64_t MediaInput::SeekMemory(void* opaque, int64_t offset, int whence) {
  auto& memory = *static_cast<Memory*>(opaque);
  auto size = static_cast<int64_t>(memory.bytes.size());
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return size;
  int64_t base = whence == SEEK_CUR ? static_cast<int64_t>(memory.position) : whence == SEEK_END ? size : 0;
  if (offset < -base || offset > size - base) return AVERROR(EINVAL);
  memory.position = static_cast<size_t>(base + offset);
  return base + offset;
}

absl::Status MediaInput::Open(std::string_view suffix, std::span<const std::byte> bytes, AVMediaType type,
                              const Limits& limits, Parameters parameters, StreamChoice choice) {
  EVENKEEL_RETURN_IF_ERROR(Prepare());
  EVENKEEL_ASSIGN_OR_RETURN(const Container* container, ContainerOf(suffix, bytes));
  memory_.bytes = bytes;
  demuxer_ = container->demuxer;
  type_ = type;
  choice_ = choice;
  max_streams_ = limits.max_streams;
  max_pixels_ = limits.max_video_pixels;
  EVENKEEL_RETURN_IF_ERROR(OpenContainer());
  knows_header_only_ =
      parameters == Parameters::kOfHeader && !ChoosesByPackets() && HeaderSuffices(*format_, type, choice);
  if (!knows_header_only_) EVENKEEL_RETURN_IF_ERROR(LearnParameters());
  stream_ = PickStream(*format_, type, choice);
  if (stream_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(container->demuxer, ": no ", av_get_media_type_string(type), " stream"));
  }
  const AVCodecParameters& said = *stream().codecpar;
  if (type == AVMEDIA_TYPE_VIDEO)
    EVENKEEL_RETURN_IF_ERROR(CheckVideoPixels(said.width, said.height, max_pixels_));
  IgnoreOtherStreams();
  return absl::OkStatus();
}

absl::Status MediaInput::OpenContainer() {
  format_.reset();
  memory_.position = 0;
  auto* buffer = static_cast<uint8_t*>(av_malloc(kIoBufferBytes));
  io_.reset(avio_alloc_context(buffer, kIoBufferBytes, 0, &memory_, ReadMemory, nullptr, SeekMemory));
  AVFormatContext* format = avformat_alloc_context();
  if (io_ == nullptr || format == nullptr) return absl::InternalError("FFmpeg: no memory");
  format->pb = io_.get();
  format->io_open = RefuseToOpen;
  format->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
  // A higher limit than the job's, so that a file with too many streams gets an error that names the limit.
  format->max_streams = std::max(kMaxCountedStreams, static_cast<int>(max_streams_) + 1);
  format->probesize = kHeaderProbeBytes;
  format->fps_probe_size = 0;
  format->codec_whitelist = av_strdup(kProbeCodecs);
  const int code = avformat_open_input(&format, nullptr, av_find_input_format(demuxer_), nullptr);
  if (code < 0) {  // it has freed `format`
    return absl::InvalidArgumentError(absl::StrCat(demuxer_, " header: ", FfmpegMessage(code)));
  }
  format_.reset(format);
  if (format->nb_streams > max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("container of ", format->nb_streams, " streams; limits.max_streams is ", max_streams_));
  }
  const int picked = PickStream(*format, type_, choice_);
  if (picked >= 0) {  // before anything is decoded
    const AVCodecParameters& said = *format->streams[picked]->codecpar;
    if (type_ == AVMEDIA_TYPE_VIDEO)
      EVENKEEL_RETURN_IF_ERROR(CheckVideoPixels(said.width, said.height, max_pixels_));
  }
  return absl::OkStatus();
}

bool MediaInput::ChoosesByPackets() const {
  int candidates = 0;
  for (unsigned i = 0; i < format_->nb_streams; ++i)
    candidates += format_->streams[i]->codecpar->codec_type == type_;
  return ChoosesBest(choice_) && candidates > 1;
}

absl::Status MediaInput::LearnParameters() {
  if (ChoosesByPackets()) format_->fps_probe_size = -1;  // as many packets as every user of FFmpeg sees
  const int code = ReadParameters(*format_, PickStream(*format_, type_, choice_), max_pixels_);
  if (code < 0) return absl::InvalidArgumentError(absl::StrCat(demuxer_, ": ", FfmpegMessage(code)));
  return absl::OkStatus();
}

absl::Status MediaInput::Rewind() {
  // The headers of MP4 and Matroska have all parameters; other demuxers learn them from the first packets.
  const std::string_view demuxer = demuxer_;
  EVENKEEL_RETURN_IF_ERROR(OpenContainer());
  if (demuxer != "mov" && demuxer != "matroska") EVENKEEL_RETURN_IF_ERROR(LearnParameters());
  if (stream_ >= static_cast<int>(format_->nb_streams)) return absl::DataLossError("container changed");
  IgnoreOtherStreams();
  return absl::OkStatus();
}

void MediaInput::IgnoreOtherStreams() {
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != stream_) format_->streams[i]->discard = AVDISCARD_ALL;
  }
}

bool MediaInput::Next(AVPacket& packet, bool cut_off) {
  while (av_read_frame(format_.get(), &packet) >= 0) {
    const bool whole = (packet.flags & AV_PKT_FLAG_CORRUPT) == 0;
    if (packet.stream_index == stream_ && packet.size > 0 && (whole || cut_off)) return true;
    av_packet_unref(&packet);
  }
  return false;
}

absl::Status CheckVideoPixels(int64_t width, int64_t height, uint64_t max_pixels) {
  if (width <= 0 || height <= 0 || static_cast<uint64_t>(width) <= max_pixels / static_cast<uint64_t>(height))
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("video of ", width, "x", height, " pixels; limits.max_video_pixels is ", max_pixels));
}

absl::StatusOr<CodecPtr> OpenDecoder(MediaInput& input, const char* name, const Limits& limits,
                                     InverseTransform transform) {
  const AVCodec* codec = avcodec_find_decoder_by_name(name);
  if (codec == nullptr) return absl::InternalError(absl::StrCat("this FFmpeg has no decoder '", name, "'"));
  CodecPtr context(avcodec_alloc_context3(codec));
  if (context == nullptr) return absl::InternalError("FFmpeg: no memory");
  int code = avcodec_parameters_to_context(context.get(), input.stream().codecpar);
  if (code < 0) return absl::DataLossError(absl::StrCat(name, ": ", FfmpegMessage(code)));
  context->pkt_timebase = input.stream().time_base;
  context->thread_count = 1;
  context->flags |= AV_CODEC_FLAG_BITEXACT;
  context->idct_algo = transform == InverseTransform::kSimple ? FF_IDCT_SIMPLE : FF_IDCT_AUTO;
  context->max_pixels = static_cast<int64_t>(limits.max_video_pixels);
  // By default libopus decodes to 16 bits.
  if (codec->id == AV_CODEC_ID_OPUS) context->request_sample_fmt = AV_SAMPLE_FMT_FLT;
  // A frame with a wrong checksum is an error, even if its samples decode.
  if (codec->id == AV_CODEC_ID_FLAC) context->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
  code = avcodec_open2(context.get(), codec, nullptr);
  if (code == AVERROR_PATCHWELCOME || code == AVERROR(ENOSYS)) {
    return absl::UnimplementedError(absl::StrCat(name, ": a variant that this decoder does not have"));
  }
  if (code < 0) return absl::DataLossError(absl::StrCat(name, ": ", FfmpegMessage(code)));
  return context;
}

absl::StatusOr<CodecPtr> OpenStillDecoder(const char* name, std::span<const std::byte> configuration,
                                          uint64_t max_pixels) {
  EVENKEEL_RETURN_IF_ERROR(Prepare());
  const AVCodec* codec = avcodec_find_decoder_by_name(name);
  if (codec == nullptr) return absl::InternalError(absl::StrCat("this FFmpeg has no decoder '", name, "'"));
  CodecPtr context(avcodec_alloc_context3(codec));
  if (context == nullptr) return absl::InternalError("FFmpeg: no memory");
  if (!configuration.empty()) {
    context->extradata =
        static_cast<uint8_t*>(av_mallocz(configuration.size() + AV_INPUT_BUFFER_PADDING_SIZE));
    if (context->extradata == nullptr) return absl::InternalError("FFmpeg: no memory");
    std::memcpy(context->extradata, configuration.data(), configuration.size());
    context->extradata_size = static_cast<int>(configuration.size());
  }
  context->thread_count = 1;
  context->flags |= AV_CODEC_FLAG_BITEXACT;
  context->max_pixels = static_cast<int64_t>(max_pixels);
  context->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  const int code = avcodec_open2(context.get(), codec, nullptr);
  if (code == AVERROR_PATCHWELCOME || code == AVERROR(ENOSYS))
    return absl::UnimplementedError(absl::StrCat(name, ": a variant that this decoder does not have"));
  if (code < 0) return absl::DataLossError(absl::StrCat(name, ": ", FfmpegMessage(code)));
  return context;
}

}  // namespace evenkeel::preprocess
