// CLAP without fusion: a clip of up to max_length_s seconds, repeated or filled with zeros to that length, as a picture of
// its mel powers in decibels. Of a longer clip the extractor takes a part at random, so longer clips are refused.
//
// The rules are those of transformers' models/clap/feature_extraction_clap.py; the output rows are the last positions of
// the audio encoder, a Swin transformer.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/audio/mel_spectrum.h"
#include "preprocess/families/families.h"
#include "preprocess/families/speech_encoder.h"
#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kRate = 48000;
constexpr uint32_t kWindow = 1024;
constexpr uint32_t kHop = 480;
constexpr double kFloor = 1e-10;  // the smallest power

enum class ClapPadding : uint8_t { kRepeatPad, kRepeat, kPad };

struct ClapSettings {
  uint32_t num_mels = 64;
  uint32_t samples = 0;  // that the clip is filled to
  double most_hertz = 14000;
  ClapPadding padding = ClapPadding::kRepeatPad;
  uint32_t rows = 64;

  uint32_t frames() const { return samples / kHop + 1; }
};

class Clap final : public SpeechEncoder {
 public:
  Clap(const ClapSettings& settings, const Limits& limits)
      : SpeechEncoder(
            {{"input_features", DType::kF32, false, {1, settings.frames(), settings.num_mels}, nullptr}},
            limits, {.rate = kRate, .least_samples = 1}),
        settings_(settings),
        spectrum_(kWindow, SlaneyTriangles(settings.num_mels, kWindow, kRate, settings.most_hertz)) {
    for (uint32_t i = 0; i < kWindow; ++i) window_[i] = 0.5 - 0.5 * RotationOf(i, kWindow).cos;
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    if (const uint64_t samples = SpeechSamples(facts, kRate); samples > settings_.samples) {
      return absl::InvalidArgumentError(
          absl::StrCat("clip of ", samples, " samples at 48 kHz, expected at most ", settings_.samples,
                       ": of a longer one CLAP takes a part at random; cut the clips beforehand"));
    }
    return SpeechEncoder::Measure(facts);
  }

 protected:
  ItemLengths LengthsOf(uint64_t) const override {
    return {settings_.frames(), settings_.frames(), settings_.rows};
  }

  bool Features(std::span<const float> samples, std::span<float> out) const override {
    static thread_local ScratchBytes memory;
    const std::span<float> filled = memory.GetAs<float>(settings_.samples);
    Fill(samples, filled);
    std::array<FramePair, kWindow> frame;
    std::vector<FramePair> powers(settings_.num_mels);
    bool finite = true;
    for (uint32_t begin = 0; begin < settings_.frames(); begin += 2) {
      // Frames are centred on multiples of the hop.
      const int64_t first = int64_t{begin} * kHop - kWindow / 2, second = first + kHop;
      for (uint32_t i = 0; i < kWindow; ++i) {
        frame[i] = FramePair{Sample(filled, first + i), Sample(filled, second + i)} * window_[i];
      }
      spectrum_.Powers(frame, powers);
      for (uint32_t l = 0; l < 2 && begin + l < settings_.frames(); ++l) {
        for (uint32_t mel = 0; mel < settings_.num_mels; ++mel) {
          const double power = powers[mel][l];
          finite &= std::isfinite(power);
          out[size_t{begin + l} * settings_.num_mels + mel] =
              std::isfinite(power) ? static_cast<float>(10 * ExactLog10(std::max(power, kFloor))) : 0.0f;
        }
      }
    }
    return finite;
  }

 private:
  // Whole repetitions, then zeros (repeatpad); repetitions up to the end (repeat); zeros after the clip (pad).
  void Fill(std::span<const float> samples, std::span<float> filled) const {
    const size_t repetitions = settings_.padding == ClapPadding::kPad ? 1
                               : settings_.padding == ClapPadding::kRepeat
                                   ? filled.size() / samples.size() + 1
                                   : filled.size() / samples.size();
    for (size_t i = 0; i < repetitions; ++i) {
      const size_t count = std::min(samples.size(), filled.size());
      std::copy_n(samples.begin(), count, filled.begin());
      filled = filled.subspan(count);
    }
    std::fill(filled.begin(), filled.end(), 0.0f);
  }

  // The clip is reflected at both ends without repeating the edge.
  static double Sample(std::span<const float> filled, int64_t position) {
    const auto size = static_cast<int64_t>(filled.size());
    if (position < 0) position = -position;
    return filled[position >= size ? 2 * (size - 1) - position : position];
  }

  const ClapSettings settings_;
  const MelSpectrum spectrum_;
  std::array<double, kWindow> window_;
};

// The positions of the Swin transformer's last stage, from the audio_config of config.json.
absl::Status ReadEncoder(const CheckpointFolder& checkpoint, ClapSettings& out) {
  constexpr uint64_t kMost = 1 << 12, kStages = 4;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  std::optional<ConfigFile> audio = model.Member("audio_config");
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  if (!audio) return absl::OkStatus();
  const uint64_t side = audio->Uint("spec_size", 256, 1, kMost);
  const uint64_t stride = audio->Side("patch_stride", 4, 1, kMost);
  audio->Uints("depths", kStages, 1, kMost);  // a stage halves the sides of the one before it
  EVENKEEL_RETURN_IF_ERROR(audio->Finish());
  const uint64_t last = side / stride >> (kStages - 1);
  out.rows = static_cast<uint32_t>(last * last);
  if (last == 0) return audio->Error("spec_size", "is less than one position of the last stage");
  return absl::OkStatus();
}

}  // namespace

MadeFamily MakeClap(ConfigFile config, const FamilySource& source) {
  ClapSettings settings;
  if (config.Text("truncation", "fusion") != "rand_trunc") {
    return config.Error(
        "truncation",
        "only \"rand_trunc\" is implemented, for clips that need no truncation: \"fusion\" draws crops, "
        "and a clip that counts as longer, at random");
  }
  constexpr std::array<std::pair<std::string_view, ClapPadding>, 3> kPaddings = {
      {{"repeatpad", ClapPadding::kRepeatPad}, {"repeat", ClapPadding::kRepeat}, {"pad", ClapPadding::kPad}}};
  const std::string padding = config.OneOf("padding", {"repeatpad", "repeat", "pad"});
  for (const auto& [name, value] : kPaddings) {
    if (padding == name) settings.padding = value;
  }
  settings.num_mels = static_cast<uint32_t>(config.Uint("feature_size", 64, 1, 512));
  settings.samples = static_cast<uint32_t>(config.Uint("max_length_s", 10, 1, 600)) * kRate;
  settings.most_hertz = static_cast<double>(config.Uint("frequency_max", 14000, 1, kRate / 2));
  config.Pin("frequency_min", 0.0);
  config.Pin("hop_length", double{kHop});
  config.Pin("fft_window_size", double{kWindow});
  // Derived from the others, or of no effect on one clip.
  config.Inert({"chunk_length_s", "n_fft", "nb_frequency_bins", "nb_max_frames", "nb_max_samples",
                "padding_value", "top_db", "mel_filters_slaney"});
  config.Whole({"frequency_max"});
  config.NotNull({"padding", "truncation", "feature_size", "max_length_s", "frequency_max"});
  ReadCommonSpeechKeys(config, kRate);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(ReadEncoder(source.checkpoint, settings));
  return std::make_unique<Clap>(settings, source.limits);
}

}  // namespace evenkeel::preprocess
