// InternVL: pictures as dynamic tiles in the grid whose shape is nearest to the picture's, and a thumbnail if
// there are several tiles; videos as frames, one tile each.
//
// The rules are those of transformers' models/got_ocr2/image_processing_got_ocr2.py (candidates sorted by
// area; in the original project the order of ties depends on a hash table), and of
// models/internvl/processing_internvl.py and video_processing_internvl.py.
#include "preprocess/families/internvl.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/tiles.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
constexpr uint32_t kSide = 384;  // of a tile, in pixels, unless the file has another

// The size of a tile, from the file.
absl::StatusOr<ImageSize> TileOf(const ConfigFile& config, const SideSizes& size) {
  EVENKEEL_RETURN_IF_ERROR(CheckSideSizes(config, "size", size));
  if (!size.fixed()) return config.Error("size", "is not {height, width}");
  return ImageSize{size.width, size.height};
}

// The first frame that its processor chooses: initial_shift.
absl::StatusOr<std::optional<double>> ReadFirst(ConfigFile& config) {
  if (!config.IsNumber("initial_shift")) {
    if (config.Flag("initial_shift", true)) return std::nullopt;
    return 0.0;
  }
  const double first = config.Real("initial_shift", 0);
  if (first >= 0) return first;
  return config.Error("initial_shift", "is negative, so that frames would be counted from the end");
}

// The folder's settings of videos. NotFound: it has none.
absl::StatusOr<FrameTiles> ReadVideo(const FamilySource& source, const TileSettings& pictures,
                                     uint32_t patch) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadVideoProcessor(source.checkpoint));
  FrameTiles out;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, source.ForFrames(), kClipMean, kClipStd));
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, ReadFrameChoice(config, source.spec, FrameRule::kInternVlProcessor));
  EVENKEEL_ASSIGN_OR_RETURN(const std::optional<double> first, ReadFirst(config));
  if (out.frames.rule == FrameRule::kInternVlProcessor) out.frames.first = first;
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, out.frames, out.upright);
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "initial_shift"});
  // A frame is one tile. The image processor's file, which may replace the video processor's, can have other
  // keys of tiles.
  config.Inert(
      {"crop_size", "crop_to_patches", "min_patches", "max_patches", "video_metadata", "return_metadata"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(out.tile, TileOf(config, size));
  out.tokens_per_frame = pictures.tokens_per_tile;
  out.patches_per_frame = (out.tile.width / patch) * (out.tile.height / patch);
  out.style = pictures.style;
  out.style.medium = Medium::kVideo;
  out.style.in_template = "<video>";
  out.runs = [tokens = out.tokens_per_frame](const MediaFacts&, uint32_t frames,
                                             std::vector<PlaceholderRun>& runs) {
    for (uint32_t frame = 1; frame <= frames; ++frame) {
      runs.push_back({.text = absl::StrCat(frame == 1 ? "" : "\n", "Frame", frame, ": "), .rows = tokens});
    }
  };
  return out;
}

}  // namespace

TileGrid NearestTileGrid(ImageSize picture, ImageSize tile, uint32_t min_tiles, uint32_t max_tiles) {
  const double aspect = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  const double tile_area = static_cast<double>(tile.width) * tile.height;
  TileGrid best{1, 1};
  double best_difference = INFINITY;
  for (const TileGrid& grid : GridsByArea(min_tiles, max_tiles)) {
    const double difference = std::abs(aspect - static_cast<double>(grid.columns) / grid.rows);
    // Of two equally near grids the larger, unless its tiles cover more than twice the picture's area.
    const bool larger = difference == best_difference && area > 0.5 * tile_area * grid.columns * grid.rows;
    if (difference < best_difference || larger) {
      best_difference = difference;
      best = grid;
    }
  }
  return best;
}

MadeFamily MakeInternVl(ConfigFile config, const FamilySource& source) {
  TileSettings settings;
  settings.family = "internvl";
  EVENKEEL_ASSIGN_OR_RETURN(settings.pixels, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  // InternVLProcessor requests tiles from its image processor, whatever the image processor's file has.
  const bool asked = config.Text("processor_class", "") == "InternVLProcessor";
  if (asked) config.Passed("crop_to_patches", true);
  const bool tiled = config.Flag("crop_to_patches", false);
  const auto min_tiles = static_cast<uint32_t>(config.Uint("min_patches", 1, 1, kMaxTiles));
  const auto max_tiles = static_cast<uint32_t>(config.Uint("max_patches", 12, 1, kMaxTiles));
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"size", "min_patches", "max_patches"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(const ImageSize tile, TileOf(config, size));
  if (min_tiles > max_tiles) return config.Error("min_patches", "is above max_patches");

  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  settings.tokens_per_tile = static_cast<uint32_t>(outer.Uint("image_seq_length", 256, 1, 1 << 16));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  EVENKEEL_ASSIGN_OR_RETURN(uint32_t patch, VisionPatchSize(source.checkpoint, 14));
  settings.tile = tile;
  settings.patches_per_tile = (tile.width / patch) * (tile.height / patch);
  settings.style = {Medium::kImage, "<img>", "<IMG_CONTEXT>", "</img>", /*mrope=*/false};
  absl::StatusOr<FrameTiles> video = ReadVideo(source, settings, patch);

  const ResizeFilter filter = settings.pixels.filter;
  // Tiles are resized even without do_resize; Pillow's path makes no tiles if only one is allowed.
  const bool of_torch = settings.pixels.picture.resampler == Resampler::kAtenU8;
  const bool resized = settings.pixels.resized || (tiled && (of_torch || max_tiles > 1));
  settings.cuts = [=](ImageSize picture) -> absl::StatusOr<std::vector<TileCut>> {
    if (!resized && picture != tile) return NotOfItsSize("a picture", picture, tile);
    const TileGrid grid = tiled ? NearestTileGrid(picture, tile, min_tiles, max_tiles) : TileGrid{1, 1};
    return GridThenWhole(grid, tile, filter);
  };
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<MediaFamily> pictures,
                            MakeTiles(std::move(settings), source.limits));
  return MakePicturesAndFrames(std::move(pictures), std::move(video), source.limits);
}

}  // namespace evenkeel::preprocess
