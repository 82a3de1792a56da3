// Families whose pictures all get the same size: reads size and crop, and computes where the resized picture
// is cut.
#include "preprocess/families/fixed_size.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/clip.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

absl::StatusOr<std::vector<TileCut>> Cut(const FixedSize& fixed, ImageSize picture) {
  PictureTarget target;
  target.filter = fixed.pixels.filter;
  if (fixed.pad_to_square) {
    target.square = MeanColour(fixed.pixels);
    const uint32_t longer = std::max(picture.width, picture.height);
    picture = {longer, longer};
  }
  const Resampler resampler = fixed.pixels.picture.resampler;
  target.resized = fixed.pixels.resized ? ResizedBy(fixed.size, picture) : picture;
  if (!fixed.cropped && target.resized != fixed.result) {
    return NotOfItsSize("a picture", picture, fixed.result);
  }
  target.window = fixed.result;
  target.left = CropBegin(target.resized.width, fixed.result.width, resampler);
  target.top = CropBegin(target.resized.height, fixed.result.height, resampler);
  return std::vector<TileCut>{{target, 1, 1}};
}

}  // namespace

Colour MeanColour(const PixelSettings& pixels) {
  Colour out{};
  for (size_t c = 0; c < out.size(); ++c) {
    const double value = pixels.mean[c] * 255;
    out[c] = value >= 255 ? 255 : value > 0 ? static_cast<uint8_t>(value) : 0;
  }
  return out;
}

absl::StatusOr<FixedSize> ReadFixedSize(ConfigFile& config, const ProcessorSpec& spec,
                                        const FixedSizeClass& usual, bool pad_to_square) {
  FixedSize out;
  out.pad_to_square = pad_to_square;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, spec, usual.mean, usual.std, usual.filter));
  out.size = ReadSideSizes(config, "size", usual.number_is, usual.size);
  const SideSizes crop =
      ReadSideSizes(config, "crop_size", NumberIs::kSquare, {.height = usual.crop, .width = usual.crop});
  out.cropped = config.Flag("do_center_crop", usual.crop != 0 && !config.IsNull("do_center_crop"));
  config.Pin("use_square_size", false);
  out.file_tokens = static_cast<uint32_t>(config.Uint("image_seq_length", 0, 1, 1 << 16));
  config.NotNull({"size"});
  if (out.cropped) config.NotNull({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(CheckSideSizes(config, "size", out.size));
  if (out.cropped && !crop.given())
    return config.Error("do_center_crop", "is true, but crop_size is missing");
  if (out.cropped && !crop.fixed()) return config.Error("crop_size", "is not {height, width}");
  // A padded picture is a square, so resizing its shortest edge gives a square of fixed size.
  SideSizes whole = out.size;
  if (pad_to_square && whole.shortest_edge != 0) {
    const ImageSize square = ResizedBy(whole, {whole.shortest_edge, whole.shortest_edge});
    whole = {.height = square.height, .width = square.width};
  }
  if (!out.cropped && !whole.fixed()) {
    return config.Error("do_center_crop",
                        "is false, and size is not {height, width}, so pictures would have different "
                        "sizes");
  }
  const SideSizes& result = out.cropped ? crop : whole;
  out.result = {result.width, result.height};
  return out;
}

absl::Status CheckEncoderClass(ConfigFile& config, std::initializer_list<std::string_view> classes) {
  const std::string of = config.Choice("processor_class", "");
  std::string known;
  for (std::string_view name : classes) {
    if (of.empty() || of == name) return absl::OkStatus();
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(name));
  }
  return config.Error("processor_class",
                      absl::StrCat("'", of,
                                   "' writes tokens of its own around pictures, which is not implemented; "
                                   "pictures of an encoder alone have no class, or one of ",
                                   known));
}

MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         int32_t extra_tokens, const FamilySource& source) {
  const ImageSize result = fixed.result;
  const int64_t patches = int64_t{result.width / patch} * (result.height / patch);
  const int64_t tokens = patches + extra_tokens;
  if (tokens <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.checkpoint.folder, ": pictures of ", result.width, "x", result.height,
                     " pixels are smaller than one patch; the side of a patch is ", patch));
  }
  if (fixed.file_tokens != 0 && fixed.file_tokens != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.checkpoint.folder, ": image_seq_length is ", fixed.file_tokens, ", but pictures of ",
        result.width, "x", result.height, " pixels have ", tokens, " tokens of patches of ", patch,
        "; the file is of a processor that counts differently, which is not implemented, or the model's "
        "config.json is missing"));
  }
  return MakeFixedSize(family, fixed, patch,
                       {static_cast<uint32_t>(tokens), {.placeholder = fixed.placeholder}}, source);
}

MadeFamily MakeFixedSize(std::string_view family, const FixedSize& fixed, uint32_t patch,
                         const PictureTokens& tokens, const FamilySource& source) {
  const ImageSize result = fixed.result;
  TileSettings settings;
  settings.family = std::string(family);
  settings.pixels = fixed.pixels;
  settings.tile = result;
  settings.tokens_per_tile = tokens.count;
  settings.patches_per_tile = (result.width / patch) * (result.height / patch);
  if (settings.patches_per_tile == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.checkpoint.folder, ": pictures of ", result.width, "x", result.height,
                     " pixels are smaller than one patch of ", patch, " pixels"));
  }
  settings.style = tokens.style;
  settings.cuts = [fixed](ImageSize picture) { return Cut(fixed, picture); };
  return MakeTiles(std::move(settings), source.limits);
}

MadeFamily MakeEncoder(std::string_view family, const FixedSizeClass& usual, ConfigFile config,
                       const FamilySource& source) {
  config.Pin("do_pad", false);
  EVENKEEL_ASSIGN_OR_RETURN(FixedSize fixed, ReadFixedSize(config, source.spec, usual));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.checkpoint, 16));
  return MakeFixedSize(family, fixed, patch, /*extra_tokens=*/0, source);
}

}  // namespace evenkeel::preprocess
