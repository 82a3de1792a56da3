// LLaVA-OneVision: a sample's only picture as in LLaVA-NeXT, with a bound on its placeholders; each of
// several pictures as one tile, padded to a square with the mean colour; videos as frames, one tile each.
//
// The rules are those of transformers'
// models/llava_onevision/{image_processing,video_processing,processing}_llava_onevision.py for the pictures
// of a sample as its chat template passes them: one list per sample.
#include "preprocess/families/llava_onevision.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/llava_next.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::string_view kKey = "image_grid_pinpoints";

// a // b of two positive Python floats.
double FloorOfQuotient(double a, double b) {
  const double whole = (a - std::fmod(a, b)) / b;
  const double below = std::floor(whole);
  return whole - below > 0.5 ? below + 1 : below;
}

absl::StatusOr<OneVisionTokens> ReadTokens(const FamilySource& source) {
  OneVisionTokens out;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  out.whole = static_cast<uint32_t>(outer.Uint("num_image_tokens", 0, 1, 1 << 16));
  std::string strategy = model.Text("vision_feature_select_strategy", "full");
  strategy = outer.Text("vision_feature_select_strategy", strategy);
  out.image = outer.Text("image_token", out.image);
  out.video = outer.Text("video_token", out.video);
  const std::string bound = outer.Text("vision_aspect_ratio", "anyres_max_9");
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  if (out.whole == 0) {
    return outer.Error("num_image_tokens",
                       "is missing; the processor takes a tile's number of tokens from it");
  }
  if (strategy != "full" && strategy != "default") {
    return outer.Error("vision_feature_select_strategy",
                       absl::StrCat("'", strategy, "' is not implemented; full and default are"));
  }
  out.fewer = strategy == "default" ? 1 : 0;
  constexpr std::string_view kPrefix = "anyres_max_";
  const std::string_view number =
      bound.starts_with(kPrefix) ? std::string_view(bound).substr(kPrefix.size()) : "";
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.most_tiles);
  if (number.empty() || error != std::errc() || end != number.data() + number.size() || out.most_tiles == 0) {
    return outer.Error("vision_aspect_ratio", absl::StrCat("'", bound, "' is not anyres_max_ and a number"));
  }
  return out;
}

// A frame's patches are pooled in twos along each side; one token follows the last frame.
absl::StatusOr<FrameTiles> ReadVideo(const FamilySource& source, const OneVisionTokens& tokens,
                                     uint32_t patches, uint32_t patch) {
  constexpr FixedSizeClass kFrames = {kClipMean, kClipStd, {.height = 384, .width = 384}};
  EVENKEEL_ASSIGN_OR_RETURN(FrameTiles out, ReadFrameTiles(source, "LlavaOnevisionVideoProcessor", kFrames,
                                                           {"do_pad", "image_grid_pinpoints"}));
  const uint32_t pooled = (patches + 1) / 2;
  out.tokens_per_frame = pooled * pooled;
  out.extra_tokens = 1;
  out.patches_per_frame = (out.tile.width / patch) * (out.tile.height / patch);
  out.style = {.medium = Medium::kVideo, .placeholder = tokens.video};
  return out;
}

}  // namespace

uint64_t OneVisionTiledTokens(ImageSize shown, uint32_t patches, uint32_t most_tiles) {
  const double ratio = std::sqrt(static_cast<double>(shown.height) * shown.width /
                                 (static_cast<double>(most_tiles) * patches * patches));
  if (ratio <= 1.1) return uint64_t{shown.height} * shown.width + shown.height;
  const auto rows = static_cast<uint64_t>(FloorOfQuotient(shown.height, ratio));
  const auto columns = static_cast<uint64_t>(FloorOfQuotient(shown.width, ratio));
  return rows * columns + rows;
}

MadeFamily MakeLlavaOneVision(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "llava_onevision";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kShortestEdge, {.shortest_edge = 384});
  std::vector<ImageSize> usual;  // the class's default resolutions
  for (uint32_t height = 1; height <= 6; ++height) {
    for (uint32_t width = 1; width <= 6; ++width) usual.push_back({384 * width, 384 * height});
  }
  const std::vector<ImageSize> listed = ReadResolutions(config, kKey, usual);
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  // Padding concerns batches only, and nothing is cropped.
  config.Inert({"do_pad", "crop_size"});
  config.NotNull({"size", kKey});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  const uint32_t side = size.shortest_edge != 0 ? size.shortest_edge : size.height;
  if (size != SideSizes{.shortest_edge = side} && size != SideSizes{side, side}) {
    return config.Error("size", "is neither {shortest_edge} nor a square");
  }
  const ImageSize tile{side, side};
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<ImageSize> resolutions,
                            TileResolutions(config, kKey, listed, tile));
  EVENKEEL_ASSIGN_OR_RETURN(const OneVisionTokens tokens, ReadTokens(source));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  const auto patches = static_cast<uint32_t>(std::sqrt(static_cast<double>(tokens.whole)));
  settings.tile = tile;
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches_per_tile, WholePatches(config, "size", tile, patch));
  settings.style = {.placeholder = tokens.image};
  settings.numbers = {ImageSizes()};

  settings.tokens = [=](const TiledPicture& picture) {
    if (picture.of_sample > 1) return uint64_t{tokens.whole} + 1 - tokens.fewer;  // one after its rows
    const ImageSize best = BestResolution(picture, resolutions);
    const ImageSize tiles{best.width / side, best.height / side};
    return tokens.whole - tokens.fewer +
           OneVisionTiledTokens(ShownPatches(picture, tiles, {patches, patches}), patches, tokens.most_tiles);
  };
  settings.cuts = [=, filter = settings.pixels.filter,
                   mean = MeanColour(settings.pixels)](const TiledPicture& picture) {
    TileCut whole{{.resized = tile, .filter = filter}, 1, 1, {}};
    if (picture.of_sample > 1) {
      whole.target.square = mean;
      return std::vector<TileCut>{whole};
    }
    return std::vector<TileCut>{whole,
                                FittingTiles(picture, BestResolution(picture, resolutions), tile, filter)};
  };
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<MediaFamily> pictures,
                            MakeTiles(std::move(settings), source.limits));
  return MakePicturesAndFrames(std::move(pictures), ReadVideo(source, tokens, patches, patch), source.limits);
}

}  // namespace evenkeel::preprocess
