// Reads the settings of pixels from a configuration, and computes the table of final values per byte.
#include "preprocess/families/pixel_settings.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/part.h"
#include "core/status.h"
#include "preprocess/families/patches.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxSide = 16384;

// torchvision's names of filters. transformers' path for Pillow accepts numbers only: release 4 fails on
// names, and release 5 treats every name as bilinear.
absl::StatusOr<ResizeFilter> ReadNamedFilter(ConfigFile& config, std::string_view key, Resampler resampler) {
  constexpr std::pair<std::string_view, ResizeFilter> kNames[] = {{"lanczos", ResizeFilter::kLanczos},
                                                                  {"bilinear", ResizeFilter::kBilinear},
                                                                  {"bicubic", ResizeFilter::kBicubic}};
  const std::string name = config.Text(key, "");
  for (const auto& [known, filter] : kNames) {
    if (name != known) continue;
    if (resampler == Resampler::kAtenU8 || filter == ResizeFilter::kBilinear) return filter;
    return config.Error(key, absl::StrCat("'", name,
                                          "' is torchvision's name of a filter, which only the resampler "
                                          "aten_u8 supports; Pillow's path requires PIL's number"));
  }
  return config.Error(key,
                      absl::StrCat("'", name, "' is not implemented; lanczos, bilinear and bicubic are"));
}

// PIL's filter numbers.
absl::StatusOr<ResizeFilter> ReadGivenFilter(ConfigFile& config, std::string_view key, Resampler resampler,
                                             ResizeFilter usual) {
  constexpr uint64_t kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5;
  if (!config.Has(key)) return usual;  // NotNull() reports a null
  if (config.IsText(key)) return ReadNamedFilter(config, key, resampler);
  const uint64_t number = config.Uint(key, kBicubic, kNearest, kHamming);
  const bool of_pillow = number == kBox || number == kHamming;
  if (of_pillow && resampler == Resampler::kAtenU8) {
    return config.Error(
        key,
        "4 (box) and 5 (Hamming) are Pillow's filters, which torchvision does not have; they need "
        "processor.resampler pil or pil13");
  }
  switch (number) {
    case kLanczos:
      return ResizeFilter::kLanczos;
    case kBilinear:
      return ResizeFilter::kBilinear;
    case kNearest:
      return ResizeFilter::kNearest;
    case kBox:
      return ResizeFilter::kBox;
    case kHamming:
      return ResizeFilter::kHamming;
    default:
      return ResizeFilter::kBicubic;
  }
}

absl::StatusOr<ResizeFilter> ReadFilter(ConfigFile& config, std::string_view key, Resampler resampler,
                                        ResizeFilter usual) {
  EVENKEEL_ASSIGN_OR_RETURN(const ResizeFilter filter, ReadGivenFilter(config, key, resampler, usual));
  config.Inert({key});
  config.Resolved(key, {static_cast<uint64_t>(filter)});
  return filter;
}

std::array<double, 3> ReadThree(ConfigFile& config, std::string_view key,
                                const std::array<double, 3>& fallback) {
  std::array<double, 3> out{};
  if (config.IsNumber(key)) {  // one value for all channels
    out.fill(config.Real(key, 0));
  } else {
    const std::vector<double> read = config.Reals(key, {fallback.begin(), fallback.end()});
    std::copy(read.begin(), read.end(), out.begin());
  }
  config.Resolved(key, {out.begin(), out.end()});
  return out;
}

// The job decides these, except that a file can leave the conversion of transparency to the caller.
void AddPicture(ConfigFile& config, const PictureOptions& options) {
  const ColourOptions& colour = options.colour;
  config.Resolved("resampler", {std::string(ResamplerName(options.resampler))});
  std::vector<ConsumedKeys::Value> background;
  if (colour.background) background = {colour.background->begin(), colour.background->end()};
  config.Resolved("alpha", std::move(background));
  config.Resolved("exif_orientation", {static_cast<uint64_t>(options.exif_orientation)});
  config.Resolved("sixteen_bit", {static_cast<uint64_t>(colour.sixteen_bit)});
  config.Resolved("cmyk", {static_cast<uint64_t>(colour.cmyk)});
  config.Resolved("palette", {static_cast<uint64_t>(colour.palette)});
  config.Resolved("approximate", {uint64_t{options.approximate}});
}

}  // namespace

// Each step is computed in f32 and rounded to bfloat16, as torch does for a bfloat16 tensor.
float PixelSettings::InBf16(size_t c, int byte) const {
  const auto rounded = [](float value) { return std::bit_cast<float>(uint32_t{ToBf16(value)} << 16); };
  const float scaled = rounded(static_cast<float>(byte) * static_cast<float>(rescale));
  const float centred = rounded(scaled - rounded(static_cast<float>(mean[c])));
  return rounded(centred / rounded(static_cast<float>(std[c])));
}

std::vector<float> PixelSettings::Table() const {
  if (in_bf16) {
    std::vector<float> table(3 * 256);
    for (size_t i = 0; i < table.size(); ++i) table[i] = InBf16(i / 256, static_cast<int>(i % 256));
    return table;
  }
  if (by_division) {
    std::vector<float> table(3 * 256);
    for (size_t i = 0; i < table.size(); ++i) {
      const float scaled = static_cast<float>(i % 256) / 255.0f;
      table[i] = (scaled - static_cast<float>(mean[i / 256])) / static_cast<float>(std[i / 256]);
    }
    return table;
  }
  if (picture.resampler != Resampler::kAtenU8) {
    return normalized ? NormalizationTable(rescale, mean, std)
                      : NormalizationTable(rescale, {0, 0, 0}, {1, 1, 1});
  }
  std::vector<float> table(3 * 256);
  if (!normalized) {
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<float>(i % 256) * static_cast<float>(rescale);
    }
    return table;
  }
  // torchvision's path: (byte - mean * 255) / (std * 255), in f32; mean and std are scaled first, as in
  // `_fuse_mean_std_and_rescale_factor`.
  const float scale = static_cast<float>(1.0 / rescale);
  for (int c = 0; c < 3; ++c) {
    const float scaled_mean = static_cast<float>(mean[c]) * scale;
    const float scaled_std = static_cast<float>(std[c]) * scale;
    for (int byte = 0; byte < 256; ++byte) {
      table[256 * c + byte] = (static_cast<float>(byte) - scaled_mean) / scaled_std;
    }
  }
  return table;
}

absl::StatusOr<PixelSettings> ReadPixelSettings(ConfigFile& config, const ProcessorSpec& spec,
                                                const std::array<double, 3>& mean,
                                                const std::array<double, 3>& std, ResizeFilter filter) {
  PixelSettings out;
  out.wire = spec.wire;
  EVENKEEL_ASSIGN_OR_RETURN(out.picture, PictureOptionsOf(spec));
  EVENKEEL_ASSIGN_OR_RETURN(out.filter, ReadFilter(config, "resample", out.picture.resampler, filter));
  out.mean = ReadThree(config, "image_mean", mean);
  out.std = ReadThree(config, "image_std", std);
  out.rescale = config.Real("rescale_factor", 1.0 / 255);
  if (!(out.rescale > 0)) return config.Error("rescale_factor", "is not positive");
  if (!config.Flag("do_rescale", true)) out.rescale = 1;
  out.normalized = config.Flag("do_normalize", true);
  out.resized = config.Flag("do_resize", true);
  for (double deviation : out.std) {
    if (static_cast<float>(deviation) == 0) return config.Error("image_std", "has a zero");
  }
  // If the processor does not convert to RGB, the caller does, and drops transparency unless the job has
  // `alpha`.
  const bool converts = config.Flag("do_convert_rgb", !config.IsNull("do_convert_rgb"));
  if (!converts && spec.alpha.empty()) out.picture.colour.background.reset();
  AddPicture(config, out.picture);
  config.NotNull(
      {"resample", "image_mean", "image_std", "rescale_factor", "do_resize", "do_rescale", "do_normalize"});
  config.Pin("data_format", std::string_view("channels_first"));
  config.Inert({"image_processor_type", "video_processor_type", "processor_class", "auto_map",
                "_valid_processor_keys", "_valid_kwargs_names", "model_valid_processing_keys", "device",
                "return_tensors", "input_data_format", "disable_grouping", "_name_or_path",
                "transformers_version", "pad_size", "size_divisor", "image_seq_length", "backend"});
  // Keys of videos: a video processor that reads this file consumes them itself.
  config.Inert({"fps", "num_frames", "min_frames", "max_frames", "do_sample_frames", "video_metadata",
                "return_metadata"});
  // The file may contain both processors, also if transformers saved the image processor's object alone.
  if (config.Has("feature_extractor_type") || config.Has("feature_size")) IgnoreFeatureExtractor(config);
  return out;
}

absl::StatusOr<PixelSettings> ReadFurtherPixels(ConfigFile& config, std::string_view prefix,
                                                PixelSettings out, const std::array<double, 3>& mean,
                                                const std::array<double, 3>& std, ResizeFilter filter) {
  const auto key = [prefix](const char* name) { return absl::StrCat(std::string(prefix), name); };
  const std::string resample = key("resample"), of_mean = key("image_mean"), of_std = key("image_std");
  EVENKEEL_ASSIGN_OR_RETURN(out.filter, ReadFilter(config, resample, out.picture.resampler, filter));
  out.mean = ReadThree(config, of_mean, mean);
  out.std = ReadThree(config, of_std, std);
  for (double deviation : out.std) {
    if (static_cast<float>(deviation) == 0) return config.Error(of_std, "has a zero");
  }
  config.NotNull({resample, of_mean, of_std});
  return out;
}

void IgnoreFeatureExtractor(ConfigFile& config) {
  config.Inert({"feature_extractor_type", "feature_size", "chunk_length", "dither", "hop_length",
                "mel_filters", "n_fft", "n_samples", "nb_max_frames", "padding_side", "padding_value",
                "return_attention_mask", "sampling_rate"});
}

void IgnoreImageProcessor(ConfigFile& config) {
  config.Inert({"image_processor_type",
                "image_mean",
                "image_std",
                "min_pixels",
                "max_pixels",
                "size",
                "patch_size",
                "temporal_patch_size",
                "merge_size",
                "do_resize",
                "do_rescale",
                "do_normalize",
                "do_convert_rgb",
                "do_center_crop",
                "do_pad",
                "rescale_factor",
                "resample",
                "crop_size",
                "data_format",
                "device",
                "default_to_square",
                "disable_grouping",
                "input_data_format",
                "pad_size",
                "_valid_processor_keys"});
}

namespace {

SideSizes ReadGivenSides(ConfigFile& config, std::string_view key, bool square) {
  SideSizes out;
  if (config.IsNumber(key)) {
    auto side = static_cast<uint32_t>(config.Uint(key, 0, 1, kMaxSide));
    if (square) {
      out.height = out.width = side;
    } else {
      out.shortest_edge = side;
    }
    return out;
  }
  if (config.IsList(key)) {
    const std::vector<uint64_t> sides = config.Uints(key, 2, 1, kMaxSide);
    out.height = static_cast<uint32_t>(sides[0]);
    out.width = static_cast<uint32_t>(sides[1]);
    return out;
  }
  const auto member = [&](std::string_view inner) {
    return static_cast<uint32_t>(config.UintIn(key, inner, 0, 1, kMaxSide));
  };
  return {.height = member("height"),
          .width = member("width"),
          .shortest_edge = member("shortest_edge"),
          .longest_edge = member("longest_edge"),
          .max_height = member("max_height"),
          .max_width = member("max_width")};
}

}  // namespace

SideSizes ReadSideSizes(ConfigFile& config, std::string_view key, NumberIs number_is,
                        const SideSizes& usual) {
  bool square = number_is == NumberIs::kSquare;
  if (key == "size") square = config.Flag("default_to_square", square && !config.IsNull("default_to_square"));
  SideSizes out = ReadGivenSides(config, key, square);
  if (!out.given()) out = usual;
  config.Resolved(
      key, {out.height, out.width, out.shortest_edge, out.longest_edge, out.max_height, out.max_width});
  return out;
}

absl::StatusOr<uint32_t> SquareSide(const ConfigFile& config, std::string_view key, const SideSizes& sizes) {
  const uint32_t side = sizes.width;
  if (side != 0 && sizes == SideSizes{.height = side, .width = side}) return side;
  return config.Error(key, "is not a square of {height, width}");
}

absl::Status CheckSideSizes(const ConfigFile& config, std::string_view key, const SideSizes& sizes) {
  const SideSizes edges{.shortest_edge = sizes.shortest_edge, .longest_edge = sizes.longest_edge};
  const SideSizes most{.max_height = sizes.max_height, .max_width = sizes.max_width};
  if (!sizes.given() || (sizes.fixed() && sizes.width != 0)) return absl::OkStatus();
  if (sizes == edges && sizes.shortest_edge != 0) return absl::OkStatus();
  if (sizes == most && sizes.max_height != 0 && sizes.max_width != 0) return absl::OkStatus();
  return config.Error(key,
                      "must be {height, width}, {shortest_edge}, {shortest_edge, longest_edge} or "
                      "{max_height, max_width}");
}

namespace {

FieldSpec FieldOf(std::string_view name, const PixelSettings& settings, PixelExpansion expansion) {
  FieldSpec field;
  field.name = std::string(name);
  field.per_row = true;
  field.trailing = {3 * expansion.area() * expansion.frames_on_wire};
  field.dtype = settings.wire == Wire::kU8     ? DType::kU8
                : settings.wire == Wire::kBf16 ? DType::kBf16
                                               : DType::kF32;
  if (settings.wire != Wire::kU8) return field;
  expansion.channels = 3;
  expansion.table = settings.Table();
  field.expansion = std::make_shared<const PixelExpansion>(std::move(expansion));
  return field;
}

}  // namespace

FieldSpec PixelField(std::string_view name, const PixelSettings& settings, uint32_t frames, uint32_t patch,
                     uint32_t frames_on_wire) {
  return FieldOf(name, settings, {.frames = frames, .frames_on_wire = frames_on_wire, .patch = patch});
}

FieldSpec TileField(std::string_view name, const PixelSettings& settings, ImageSize tile) {
  PixelExpansion expansion{.frames = 1, .frames_on_wire = 1, .patch = tile.height};
  if (tile.width != tile.height) expansion.patch_width = tile.width;
  FieldSpec field = FieldOf(name, settings, std::move(expansion));
  if (settings.wire != Wire::kU8) field.trailing = {3, tile.height, tile.width};
  return field;
}

absl::Status CheckTile(const PixelSettings& settings, ImageSize tile) {
  if (settings.wire != Wire::kU8) return absl::OkStatus();
  // Expands zero pixels, to check the form alone.
  if (ExpandPixels(*TileField("", settings, tile).expansion, {}, {}).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "pictures of ", tile.width, "x", tile.height,
      " pixels are too large for the u8 wire form; set processor.wire to f32 or bf16, which have "
      "no such bound"));
}

}  // namespace evenkeel::preprocess
