// Translates the job's words for image policies into options.
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "preprocess/image/picture.h"
#include "preprocess/unknown_word.h"

namespace evenkeel::preprocess {
namespace {

template <typename T>
using Words = std::initializer_list<std::pair<std::string_view, T>>;

// Chooses the option named by `word`; an empty word keeps the present one.
template <typename T>
absl::Status Choose(std::string_view key, const std::string& word, Words<T> words, T* out) {
  if (word.empty()) return absl::OkStatus();
  std::vector<std::string> known;
  for (const auto& [name, value] : words) {
    if (word == name) {
      *out = value;
      return absl::OkStatus();
    }
    known.emplace_back(name);
  }
  return UnknownWord(key, word, known);
}

// `word`: drop, white, or "r,g,b".
absl::Status ChooseBackground(const std::string& word, std::optional<Colour>* out) {
  if (word.empty()) return absl::OkStatus();
  if (word == "drop" || word == "white") {
    *out = word == "drop" ? std::nullopt : std::optional<Colour>(Colour{255, 255, 255});
    return absl::OkStatus();
  }
  Colour colour{};
  std::vector<std::string> parts = absl::StrSplit(word, ',');
  bool good = parts.size() == colour.size();
  for (size_t c = 0; good && c < colour.size(); ++c) {
    int value = -1;
    good = absl::SimpleAtoi(parts[c], &value) && value >= 0 && value <= 255;
    colour[c] = static_cast<uint8_t>(value);
  }
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "processor.alpha: '", word, "' is not drop, white or a colour of three bytes such as 127,127,127"));
  }
  *out = colour;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PictureOptions> PictureOptionsOf(const ProcessorSpec& spec, const PictureOptions& family) {
  PictureOptions options = family;
  const Words<Resampler> resamplers = {
      {"pil", Resampler::kPil}, {"pil13", Resampler::kPil13}, {"aten_u8", Resampler::kAtenU8}};
  const Words<ExifOrientation> orientations = {{"ignore", ExifOrientation::kIgnore},
                                               {"apply", ExifOrientation::kApply}};
  const Words<SixteenBit> depths = {{"refuse_grey", SixteenBit::kRefuseGrey},
                                    {"clip_grey", SixteenBit::kClipGrey},
                                    {"high_byte", SixteenBit::kHighByte},
                                    {"refuse", SixteenBit::kRefuse}};
  const Words<Conversion> conversions = {{"convert", Conversion::kConvert}, {"refuse", Conversion::kRefuse}};
  ColourOptions& colour = options.colour;
  EVENKEEL_RETURN_IF_ERROR(Choose("resampler", spec.resampler, resamplers, &options.resampler));
  // docs/decisions/0008: transformers 5 blends onto white before its resamplers; 4, which `pil` repeats,
  // drops.
  if (options.resampler != Resampler::kPil && !colour.background) colour.background = Colour{255, 255, 255};
  EVENKEEL_RETURN_IF_ERROR(ChooseBackground(spec.alpha, &colour.background));
  EVENKEEL_RETURN_IF_ERROR(
      Choose("exif_orientation", spec.exif_orientation, orientations, &options.exif_orientation));
  EVENKEEL_RETURN_IF_ERROR(Choose("sixteen_bit", spec.sixteen_bit, depths, &colour.sixteen_bit));
  EVENKEEL_RETURN_IF_ERROR(Choose("cmyk", spec.cmyk, conversions, &colour.cmyk));
  EVENKEEL_RETURN_IF_ERROR(Choose("palette", spec.palette, conversions, &colour.palette));
  options.approximate |= spec.approximate;
  return options;
}

std::string_view ResamplerName(Resampler resampler) {
  switch (resampler) {
    case Resampler::kPil:
      return "pil";
    case Resampler::kPil13:
      return "pil13";
    case Resampler::kAtenU8:
      return "aten_u8";
  }
  return "";
}

}  // namespace evenkeel::preprocess
