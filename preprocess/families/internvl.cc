// InternVL: pictures as dynamic tiles in the grid whose shape is nearest to the picture's, and a thumbnail if
// there are several tiles; videos as frames, one tile each.
//
// The rules are those of transformers' models/got_ocr2/image_processing_got_ocr2.py (candidates sorted by
// area; in the original project the order of ties depends on a hash table), and of
// models/internvl/processing_internvl.py and video_processing_internvl.py.
#include "preprocess/families/internvl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/tiles.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/frame_rules.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxTiles = 64;
constexpr uint32_t kSide = 384;  // of a tile, in pixels, unless the file has another

struct FrameTiles {
  PixelSettings pixels;
  ImageSize tile;                 // the size of a resized frame
  uint32_t tokens_per_frame = 0;  // placeholders per frame
  uint32_t patches_per_frame = 0;
  FrameChoice frames;
  bool upright = false;  // rotation metadata is applied to frames
};

// Pictures by the family `pictures`, and videos: pixel_values_videos [frames, 3, height, width]; as u8
// [frames, 3 * height * width]. A video's input_rows are its frames.
class InternVl final : public MediaFamily {
 public:
  // Videos are refused if `video` is empty.
  InternVl(std::unique_ptr<MediaFamily> pictures, std::optional<FrameTiles> video, const Limits& limits)
      : pictures_(std::move(pictures)), video_(video), limits_(limits) {
    if (!video_) return;
    table_ = video_->pixels.Table();
    video_fields_ = {TileField("pixel_values_videos", video_->pixels, video_->tile)};
  }

  std::vector<MediumStyle> styles() const override {
    std::vector<MediumStyle> styles = pictures_->styles();
    if (!video_) return styles;
    styles.push_back(styles.front());
    styles.back().medium = Medium::kVideo;
    styles.back().in_template = "<video>";
    return styles;
  }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kVideo ? video_fields_ : pictures_->fields(medium);
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override;
  MediaFacts DummyFacts() const override { return pictures_->DummyFacts(); }

 private:
  // The size of frames before the resize.
  ImageSize NativeSize(const MediaFacts& facts) const {
    const MediaFacts seen = video_->upright ? Upright(facts) : facts;
    return {seen.width, seen.height};
  }
  // The number of frames, after checking the planned lengths and the caller's buffers.
  absl::StatusOr<uint32_t> Prepare(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const;

  const std::unique_ptr<MediaFamily> pictures_;
  const std::optional<FrameTiles> video_;
  const Limits limits_;
  std::vector<float> table_;
  std::vector<FieldSpec> video_fields_;
};

absl::StatusOr<ItemLengths> InternVl::Measure(const MediaFacts& facts) const {
  if (facts.medium != Medium::kVideo || !video_) return pictures_->Measure(facts);
  if (facts.width == 0 || facts.height == 0) return absl::InvalidArgumentError("no pixels");
  if (!video_->pixels.resized && NativeSize(facts) != video_->tile) {
    return NotOfItsSize("frames", NativeSize(facts), video_->tile);
  }
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, NumChosenFrames(video_->frames, facts));
  const uint64_t most = std::max(video_->tokens_per_frame, video_->patches_per_frame);
  if (frames * most > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("video of ", frames, " frames of ", most, " rows each"));
  }
  return ItemLengths{frames * video_->patches_per_frame, frames, frames * video_->tokens_per_frame};
}

absl::Status InternVl::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  if (facts.medium != Medium::kVideo) return pictures_->Placeholders(facts, runs);
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(facts));
  runs.clear();
  for (uint32_t frame = 1; frame <= lengths.input_rows; ++frame) {
    runs.push_back({.text = absl::StrCat(frame == 1 ? "" : "\n", "Frame", frame, ": "),
                    .rows = video_->tokens_per_frame});
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> InternVl::Prepare(const ItemRequest& request,
                                           std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(request.facts));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got a video of ", lengths.input_rows, " frames, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(video_fields_, lengths, field_bytes));
  return lengths.input_rows;
}

absl::Status InternVl::Produce(const ItemRequest& request,
                               std::span<const std::span<std::byte>> field_bytes) const {
  if (request.medium != Medium::kVideo) return pictures_->Produce(request, field_bytes);
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, Prepare(request, field_bytes));
  const ImageSize native = NativeSize(request.facts), tile = video_->tile;
  const size_t bytes = field_bytes[0].size() / frames;
  auto sink = [&](size_t position, FrameRows rows) {
    PatchWriter writer(TileShape(tile), tile.width, video_->pixels.wire, 1, table_,
                       field_bytes[0].subspan(bytes * position, bytes));
    return ResizeFrame(rows, native, video_->pixels, tile, writer);
  };
  return DecodeChosenFrames(request, limits_, video_->frames, frames, video_->upright, std::ref(sink));
}

absl::Status InternVl::FillInvalid(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const {
  if (request.medium != Medium::kVideo) return pictures_->FillInvalid(request, field_bytes);
  EVENKEEL_RETURN_IF_ERROR(Prepare(request, field_bytes).status());
  std::memset(field_bytes[0].data(), 0, field_bytes[0].size());
  return absl::OkStatus();
}

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

// Which frames are chosen: the values of the processor's file, unless the job has others, as a caller of the
// processor could.
absl::StatusOr<FrameChoice> ReadFrames(ConfigFile& config, const ProcessorSpec& spec) {
  constexpr uint32_t kMaxFrames = 1 << 20;
  const bool samples = config.Flag("do_sample_frames", false);
  const auto num_frames = static_cast<uint32_t>(config.Uint("num_frames", 0, 1, kMaxFrames));
  const double fps = config.Real("fps", 0);
  EVENKEEL_ASSIGN_OR_RETURN(const std::optional<double> first, ReadFirst(config));
  if (config.Has("fps") && !(fps > 0)) return config.Error("fps", "is not positive");

  FrameChoice out;
  EVENKEEL_ASSIGN_OR_RETURN(
      out.rule, FrameRuleOf(spec.frame_rule, FrameRule::kInternVlProcessor, FrameRule::kInternVlProcessor));
  const bool asks_fps = spec.fps.has_value();
  const bool asks_bounds = spec.min_frames || spec.max_frames;
  if (spec.video_min_pixels || spec.video_max_pixels) {
    return absl::InvalidArgumentError(
        "processor.video_min_pixels and video_max_pixels mean nothing here: InternVL's frames have the size "
        "of its processor's file");
  }
  out.fps = spec.fps.value_or(fps == 0 ? kVideoDefaults.fps : fps);
  out.min_frames = spec.min_frames.value_or(kVideoDefaults.min_frames);
  out.max_frames = spec.max_frames.value_or(kVideoDefaults.max_frames);
  if (out.rule == FrameRule::kQwenVlUtils) {
    return absl::InvalidArgumentError(
        "processor.frame_rule: 'qwen_vl_utils' is of the Qwen families; InternVL's are transformers and "
        "uniform");
  }
  out.multiple = 1;
  if (out.rule == FrameRule::kUniform) return out;
  if (asks_bounds && out.min_frames != out.max_frames) {
    return absl::InvalidArgumentError(
        "processor.min_frames and max_frames: InternVL's processor has no bounds; give the same number for "
        "both, which is its num_frames, or the frame_rule uniform");
  }
  if (asks_fps && !asks_bounds && num_frames != 0) {
    return config.Error("num_frames",
                        "decides, so that processor.fps would mean nothing; give min_frames and max_frames, "
                        "the same number, to replace it");
  }
  out.num_frames = asks_bounds ? out.min_frames : num_frames;
  out.first = first;
  if (spec.frame_rule.empty() && !samples && !asks_fps && !asks_bounds) out.rule = FrameRule::kAll;
  return out;
}

// The folder's settings of videos; nullopt if it has none.
absl::StatusOr<std::optional<FrameTiles>> ReadVideo(const FamilySource& source, uint32_t patch,
                                                    uint32_t tokens_per_frame) {
  absl::StatusOr<ConfigFile> config = ConfigFile::ReadVideoProcessor(source.checkpoint);
  if (absl::IsNotFound(config.status())) return std::nullopt;
  if (!config.ok()) return config.status();
  FrameTiles out;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(*config, source.ForFrames(), kClipMean, kClipStd));
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, ReadFrames(*config, source.spec));
  AddFrames(*config, out.frames);
  const SideSizes size = ReadSideSizes(*config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  config->Pin("do_center_crop", false);
  config->Pin("do_pad", false);
  config->NotNull({"size", "initial_shift"});
  // A frame is one tile. The image processor's file, which may replace the video processor's, can have other
  // keys of tiles.
  config->Inert(
      {"crop_size", "crop_to_patches", "min_patches", "max_patches", "video_metadata", "return_metadata"});
  EVENKEEL_RETURN_IF_ERROR(config->Finish());
  EVENKEEL_ASSIGN_OR_RETURN(out.tile, TileOf(*config, size));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(out.pixels, out.tile));
  out.tokens_per_frame = tokens_per_frame;
  out.patches_per_frame = (out.tile.width / patch) * (out.tile.height / patch);
  out.upright = source.spec.apply_video_rotation;
  config->Resolved("upright", {uint64_t{out.upright}});
  return out;
}

}  // namespace

TileGrid NearestTileGrid(ImageSize picture, ImageSize tile, uint32_t min_tiles, uint32_t max_tiles) {
  std::vector<TileGrid> candidates;
  for (uint32_t columns = 1; columns <= max_tiles; ++columns) {
    for (uint32_t rows = 1; columns * rows <= max_tiles; ++rows) {
      if (columns * rows >= min_tiles) candidates.push_back({columns, rows});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const TileGrid& a, const TileGrid& b) {
    return a.columns * a.rows < b.columns * b.rows;
  });
  const double aspect = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  const double tile_area = static_cast<double>(tile.width) * tile.height;
  TileGrid best{1, 1};
  double best_difference = INFINITY;
  for (const TileGrid& grid : candidates) {
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
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<FrameTiles> video,
                            ReadVideo(source, patch, settings.tokens_per_tile));

  const ResizeFilter filter = settings.pixels.filter;
  // Tiles are resized even without do_resize; Pillow's path makes no tiles if only one is allowed.
  const bool of_torch = settings.pixels.picture.resampler == Resampler::kAtenU8;
  const bool resized = settings.pixels.resized || (tiled && (of_torch || max_tiles > 1));
  settings.cuts = [=](ImageSize picture) -> absl::StatusOr<std::vector<TileCut>> {
    if (!resized && picture != tile) return NotOfItsSize("a picture", picture, tile);
    const TileGrid grid = tiled ? NearestTileGrid(picture, tile, min_tiles, max_tiles) : TileGrid{1, 1};
    return GridThenWhole(grid.columns, grid.rows, tile, filter);
  };
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<MediaFamily> pictures,
                            MakeTiles(std::move(settings), source.limits));
  return std::make_unique<InternVl>(std::move(pictures), video, source.limits);
}

}  // namespace evenkeel::preprocess
