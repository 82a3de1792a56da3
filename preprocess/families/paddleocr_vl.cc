// PaddleOCR-VL: pictures keep about their shape, within bounds of pixels, as patches in rows from the left; a square of
// patches is one token, with positions on the grid as in Qwen2-VL.
//
// The rules are those of transformers' models/paddleocr_vl/{image_processing,processing}_paddleocr_vl.py.
#include "preprocess/families/paddleocr_vl.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_vl.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMinPixels = 384 * 384, kMaxPixels = 1536 * 1536, kLargestBound = 1ull << 32;

}  // namespace

absl::StatusOr<ImageSize> PaddleOcrSize(ImageSize picture, uint32_t factor, uint64_t min_pixels,
                                        uint64_t max_pixels) {
  if (picture.width == 0 || picture.height == 0) return absl::InvalidArgumentError("no pixels");
  double height = picture.height, width = picture.width;
  const double f = factor;
  // Python's round: halves to even.
  if (height < f) width = std::nearbyint(width * f / height), height = f;
  if (width < f) height = std::nearbyint(height * f / width), width = f;
  constexpr double kLargestSide = 1 << 30;
  if (height > kLargestSide || width > kLargestSide)
    return absl::InvalidArgumentError(absl::StrCat("aspect ratio of ", picture.width, "x", picture.height,
                                                   " is above 200, which the processor refuses"));
  return SmartResize(static_cast<uint32_t>(height), static_cast<uint32_t>(width), factor,
                     static_cast<double>(min_pixels), static_cast<double>(max_pixels),
                     /*at_least_factor=*/false);
}

MadeFamily MakePaddleOcrVl(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "paddleocr_vl";
  config.Whole({"min_pixels", "max_pixels", "size"});
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const auto patch = static_cast<uint32_t>(config.Uint("patch_size", 14, 1, 256));
  const auto merge = static_cast<uint32_t>(config.Uint("merge_size", 2, 1, 16));
  config.Pin("temporal_patch_size", 1.0);
  uint64_t min_pixels = config.UintIn("size", "shortest_edge", kMinPixels, 1, kLargestBound);
  uint64_t max_pixels = config.UintIn("size", "longest_edge", kMaxPixels, 1, kLargestBound);
  min_pixels = config.Uint("min_pixels", min_pixels, 1, kLargestBound);
  max_pixels = config.Uint("max_pixels", max_pixels, 1, kLargestBound);
  min_pixels = source.spec.min_pixels.value_or(min_pixels);
  max_pixels = source.spec.max_pixels.value_or(max_pixels);
  config.Resolved("bounds", {min_pixels, max_pixels});
  const std::string processor = config.Text("processor_class", "PaddleOCRVLProcessor");
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"patch_size", "temporal_patch_size", "merge_size"});
  config.Inert({"default_to_square", "crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(processor, {"PaddleOCRVLProcessor"}));
  const bool of_job = source.spec.min_pixels || source.spec.max_pixels;
  if (of_job && min_pixels > max_pixels) {
    return config.Error("min_pixels", absl::StrCat("min_pixels, ", min_pixels, ", is above max_pixels, ",
                                                   max_pixels, ", after applying the job's values"));
  }

  settings.tile = {patch, patch};
  settings.patches_per_tile = 1;
  settings.merge_size = merge;
  settings.style = {.begin = "<|IMAGE_START|>",
                    .placeholder = "<|IMAGE_PLACEHOLDER|>",
                    .end = "<|IMAGE_END|>",
                    .mrope = true,
                    .template_has_ends = true};
  const auto sized = [=, factor = patch * merge, resized = settings.pixels.resized](ImageSize picture) {
    return resized ? PaddleOcrSize(picture, factor, min_pixels, max_pixels) : UnchangedSize(picture, factor);
  };
  // The resized picture in patches. Cuts() refuses pictures without a size first.
  const auto grid = [=](ImageSize picture) {
    const absl::StatusOr<ImageSize> size = sized(picture);
    return size.ok() ? ImageSize{size->width / patch, size->height / patch} : ImageSize{};
  };
  settings.numbers = {
      {"image_grid_thw", {3}, [=](const TiledPicture& picture, const auto&, std::span<int64_t> out) {
         const ImageSize patches = grid(picture);
         out[0] = 1, out[1] = patches.height, out[2] = patches.width;
       }}};
  settings.tokens = [=](const TiledPicture& picture) {
    const ImageSize patches = grid(picture);
    return uint64_t{patches.width} * patches.height / (merge * merge);
  };
  settings.runs = [=, tokens = settings.tokens](const TiledPicture& picture,
                                                std::vector<PlaceholderRun>& runs) {
    const ImageSize patches = grid(picture);
    runs.push_back(
        {.rows = static_cast<uint32_t>(tokens(picture)), .grid = {1, patches.height, patches.width, 0}});
  };
  settings.cuts = [=, filter = settings.pixels.filter](
                      const TiledPicture& picture) -> absl::StatusOr<std::vector<TileCut>> {
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize size, sized(picture));
    return std::vector<TileCut>{
        {{.resized = size, .filter = filter}, size.width / patch, size.height / patch, {}}};
  };
  return MakeTiles(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
