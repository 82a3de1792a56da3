// Janus, DeepSeek-VL: every picture is fitted into a square, around which is the mean colour, and has a fixed number of
// tokens.
//
// The rules are those of transformers' models/{janus,deepseek_vl}/{image_processing,processing}_*.py.
#include "preprocess/families/janus.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kSide = 384;

MadeFamily MakeFitted(std::string_view family, std::string_view processor, const MediumStyle& style,
                      ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = family;
  settings.style = style;
  const std::string of = config.Text("processor_class", processor);
  // The classes leave the conversion to the caller, unless the file asks for it.
  if (!config.Has("do_convert_rgb")) config.Passed("do_convert_rgb", false);
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  const auto shortest = static_cast<uint32_t>(config.Uint("min_size", 14, 1, 1 << 14));
  config.Pin("do_resize", true);
  config.Pin("do_pad", true);
  config.Pin("do_center_crop", false);
  config.NotNull({"size", "min_size", "do_pad"});
  config.Inert({"crop_size", "background_color"});  // the class takes the colour from image_mean
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(of, {processor}));
  EVENKEEL_RETURN_IF_ERROR(SetSquareTile(config, size, source.checkpoint, 16, settings));
  const uint32_t side = settings.tile.width;
  if (shortest > side)
    return config.Error("min_size", absl::StrCat("is ", shortest, ", above the side of ", side, " pixels"));
  EVENKEEL_ASSIGN_OR_RETURN(settings.tokens_per_tile, ReadJanusTokens(source));
  PictureTarget target;
  target.filter = settings.pixels.filter;
  target.around = MeanColour(settings.pixels);
  target.window = settings.tile;
  settings.cuts = [=](ImageSize picture) mutable {
    target.resized = FittedSize(picture, side, shortest);
    target.left = -static_cast<int32_t>((side - target.resized.width) / 2);
    target.top = -static_cast<int32_t>((side - target.resized.height) / 2);
    return std::vector<TileCut>{{target, 1, 1, {}}};
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace

// In the original's doubles. Python's round: halves to even.
ImageSize FittedSize(ImageSize picture, uint32_t side, uint32_t shortest) {
  const double scale = static_cast<double>(side) / std::max(picture.width, picture.height);
  const auto scaled = [=](uint32_t of) {
    return std::max(static_cast<uint32_t>(std::nearbyint(of * scale)), shortest);
  };
  return {scaled(picture.width), scaled(picture.height)};
}

// Janus's prompt may begin with a text of the
// processor, which is not implemented.
absl::StatusOr<uint32_t> ReadJanusTokens(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  const auto tokens = static_cast<uint32_t>(outer.Uint("num_image_tokens", 576, 1, 1 << 16));
  outer.NotNull({"num_image_tokens"});
  outer.Pin("use_default_system_prompt", false);
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer, {{"image_token", kJanusPlaceholder}}));
  return tokens;
}

MadeFamily MakeJanus(ConfigFile config, const FamilySource& source) {
  const MediumStyle style{
      .begin = "<begin_of_image>", .placeholder = kJanusPlaceholder, .end = "<end_of_image>"};
  return MakeFitted("janus", "JanusProcessor", style, std::move(config), source);
}

MadeFamily MakeDeepseekVl(ConfigFile config, const FamilySource& source) {
  return MakeFitted("deepseek_vl", "DeepseekVLProcessor", {.placeholder = kJanusPlaceholder},
                    std::move(config), source);
}

}  // namespace evenkeel::preprocess
