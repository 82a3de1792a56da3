// Measures audio and video decoding in preprocess/ on one thread; bench/preprocess/media.py adds the rivals.
//
//   bench_media log_mel MELS FILE...          features of clips
//   bench_media audio FILE...                 decode, mono, 16 kHz
//   bench_media video PROCESSOR_FOLDER FILE...  decode, choose, resize, patches; then FFmpeg's own loop
//
// Prints for each file: what, file, milliseconds of processor time, and for video the frames. A run is cut
// into pieces at each packet that goes to a decoder; of every piece the least of TURNS (5) counts. Other
// users of the machine slow some pieces of every run, but not the same ones. FRAMES sets
// processor.frames (torchcodec).
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/audio/log_mel.h"
#include "preprocess/ffmpeg.h"
#include "preprocess/processor.h"
#include "preprocess/video/frame_rules.h"
#include "preprocess/video/video.h"

namespace evenkeel {
namespace {

int Turns() {
  const char* turns = std::getenv("TURNS");
  return turns != nullptr ? std::max(1, std::atoi(turns)) : 5;
}

double ProcessorMilliseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// When packets went to a decoder during the present run.
std::vector<double>& SendTimes() {
  static std::vector<double> times;
  return times;
}

struct File {
  std::string path, suffix;
  std::vector<std::byte> bytes;
};

File Read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> text((std::istreambuf_iterator<char>(stream)), {});
  File file{path, path.substr(path.rfind('.') + 1), std::vector<std::byte>(text.size())};
  std::memcpy(file.bytes.data(), text.data(), text.size());
  return file;
}

struct Work {
  const char* what;
  std::function<absl::Status()> run;
  uint32_t frames = 0;
};

// How long the pieces of a run took, the least so far of each.
class Pieces {
 public:
  absl::Status Time(const std::function<absl::Status()>& run) {
    std::vector<double>& times = SendTimes();
    times.assign(1, ProcessorMilliseconds());
    EVENKEEL_RETURN_IF_ERROR(run());
    times.push_back(ProcessorMilliseconds());
    std::adjacent_difference(times.begin(), times.end(), times.begin());
    times.erase(times.begin());
    least_run_ = std::min(least_run_, std::accumulate(times.begin(), times.end(), 0.0));
    if (least_.empty()) least_ = times;
    if (times.size() != least_.size()) return absl::InternalError("turns did not send the same packets");
    std::transform(times.begin(), times.end(), least_.begin(), least_.begin(),
                   [](double now, double before) { return std::min(now, before); });
    return absl::OkStatus();
  }
  double Sum() const { return std::accumulate(least_.begin(), least_.end(), 0.0); }
  double least_run() const { return least_run_; }

 private:
  double least_run_ = std::numeric_limits<double>::max();
  std::vector<double> least_;
};

// Works take turns among themselves: what else the machine does meets all.
absl::Status Report(const File& file, const std::vector<Work>& works) {
  std::vector<Pieces> pieces(works.size());
  for (int turn = 0; turn < Turns(); ++turn) {
    for (size_t i = 0; i < works.size(); ++i) EVENKEEL_RETURN_IF_ERROR(pieces[i].Time(works[i].run));
  }
  for (size_t i = 0; i < works.size(); ++i) {
    std::printf("%s %s %.3f %.3f %u\n", works[i].what, file.path.c_str(), pieces[i].Sum(),
                pieces[i].least_run(), works[i].frames);
  }
  return absl::OkStatus();
}

absl::Status BenchAudio(const File& file, uint32_t num_mels) {
  const Limits limits;
  EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, preprocess::ProbeAudio(file.suffix, file.bytes, limits));
  std::vector<float> samples;
  auto decode = [&] {
    EVENKEEL_ASSIGN_OR_RETURN(
        preprocess::DecodedAudio audio,
        preprocess::DecodeSpeech(file.suffix, file.bytes, limits, facts, preprocess::LogMel::kSamples));
    samples.assign(audio.samples.begin(), audio.samples.end());
    return absl::OkStatus();
  };
  if (num_mels == 0) return Report(file, {{"audio", decode}});
  EVENKEEL_RETURN_IF_ERROR(decode());
  for (const preprocess::MelKernel& kernel : preprocess::MelKernels()) {
    const preprocess::LogMel log_mel(num_mels, kernel);
    std::vector<float> features(size_t{num_mels} * preprocess::LogMel::kFrames);
    const std::string what = std::string("log_mel_") + kernel.name;
    auto compute = [&] {
      return log_mel.Compute(samples, features) ? absl::OkStatus() : absl::DataLossError("not finite");
    };
    EVENKEEL_RETURN_IF_ERROR(Report(file, {{what.c_str(), compute}}));
  }
  return absl::OkStatus();
}

// Opens the file and decodes frames 0 to `last`, as any loop around avcodec does.
absl::Status PlainDecode(const File& file, uint32_t last) {
  preprocess::MediaInput input;
  EVENKEEL_RETURN_IF_ERROR(input.Open(file.suffix, file.bytes, AVMEDIA_TYPE_VIDEO, Limits{}));
  const AVCodecID id = input.stream().codecpar->codec_id;
  const char* name = id == AV_CODEC_ID_AV1 ? "libdav1d" : avcodec_get_name(id);
  EVENKEEL_ASSIGN_OR_RETURN(preprocess::CodecPtr decoder, preprocess::OpenDecoder(input, name, Limits{}));
  preprocess::PacketPtr packet(av_packet_alloc());
  preprocess::FramePtr frame(av_frame_alloc());
  uint32_t frames = 0;
  for (bool more = true; more && frames <= last;) {
    more = input.Next(*packet);
    avcodec_send_packet(decoder.get(), more ? packet.get() : nullptr);
    av_packet_unref(packet.get());
    while (avcodec_receive_frame(decoder.get(), frame.get()) >= 0) ++frames;
  }
  return frames > last ? absl::OkStatus() : absl::DataLossError("fewer frames than were counted");
}

class Nowhere final : public preprocess::BandSink {
 public:
  void TakeBand(const preprocess::PixelBand&) override {}
};

absl::Status BenchVideo(const std::string& folder, const File& file) {
  ProcessorSpec spec;
  spec.vision = folder;
  if (const char* frames = std::getenv("FRAMES")) spec.frames = frames;
  EVENKEEL_ASSIGN_OR_RETURN(const preprocess::FrameLoader loader, preprocess::FrameLoaderOf(spec.frames));
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<preprocess::Processor> processor,
                            preprocess::Processor::LoadMedia(spec, Limits{}));
  EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, processor->Probe(Medium::kVideo, file.suffix, file.bytes));
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, processor->Measure(facts));
  const preprocess::FrameChoice choice;
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t count, preprocess::NumChosenFrames(choice, facts));
  std::vector<uint32_t> chosen;
  preprocess::ChooseFrames(choice, facts, count, {}, chosen);
  std::vector<std::vector<std::byte>> fields;
  for (const preprocess::FieldSpec& field : processor->fields(Medium::kVideo))
    fields.emplace_back(field.num_bytes(lengths));
  const std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  auto decode = [&] { return PlainDecode(file, chosen.back()); };
  auto frames = [&] {
    uint64_t repeated = 0;
    Nowhere nowhere;
    auto sink = [&](size_t, preprocess::FrameRows rows) { return rows(nowhere); };
    return preprocess::DecodeVideo(file.suffix, file.bytes, Limits{}, facts, chosen, loader, sink, &repeated);
  };
  auto patches = [&] {
    return processor->Produce({Medium::kVideo, file.suffix, file.bytes, facts, lengths}, spans);
  };
  return Report(file, {{"video_ffmpeg", decode, chosen.back() + 1},
                       {"video_frames", frames, count},
                       {"video_patches", patches, count}});
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool audio = mode == "audio";
  if (argc < (audio ? 3 : 4) || !(audio || mode == "log_mel" || mode == "video")) {
    std::fprintf(stderr, "usage: bench_media log_mel MELS FILE... | audio FILE... | video FOLDER FILE...\n");
    return 2;
  }
  for (int i = audio ? 2 : 3; i < argc; ++i) {
    const File file = Read(argv[i]);
    absl::Status status =
        mode == "video" ? BenchVideo(argv[2], file) : BenchAudio(file, audio ? 0 : std::stoul(argv[2]));
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", argv[i], status.ToString().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace evenkeel

// Stands before FFmpeg's function of this name, which it calls.
extern "C" int avcodec_send_packet(AVCodecContext* decoder, const AVPacket* packet) {
  static const auto send =
      reinterpret_cast<decltype(&avcodec_send_packet)>(dlsym(RTLD_NEXT, "avcodec_send_packet"));
  evenkeel::SendTimes().push_back(evenkeel::ProcessorMilliseconds());
  return send(decoder, packet);
}

int main(int argc, char** argv) { return evenkeel::Main(argc, argv); }
