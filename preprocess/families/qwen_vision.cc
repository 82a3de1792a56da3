// The Qwen-VL families' media: measures pictures and videos on a grid, decodes them into patches, and reads
// the configuration that the families share.
#include "preprocess/families/qwen_vision.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_vl.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {
namespace {

// The shape of an item after the processor.
struct ItemShape {
  ImageSize size;           // after the resize
  uint32_t num_frames = 1;  // chosen frames
  VisionGrid grid;
};

class ImagesAndVideo final : public MediaFamily {
 public:
  ImagesAndVideo(QwenVision settings, const Limits& limits);

  std::vector<MediumStyle> styles() const override;
  uint32_t merge_size() const override { return settings_.shape.merge; }
  uint32_t tokens_per_second() const override {
    return settings_.video ? settings_.video->tokens_per_second : 0;
  }
  bool after_time() const override { return settings_.video && settings_.video->after_time; }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  const AudioInVideo* audio_in_video() const override {
    return settings_.video && settings_.video->audio ? &*settings_.video->audio : nullptr;
  }
  absl::Status PlaceholdersWithAudio(const MediaFacts& video, uint32_t audio_rows,
                                     std::vector<PlaceholderRun>& runs) const override;
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? image_fields_ : video_fields_;
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(facts));
    return LengthsOf(facts.medium, shape.grid);
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    return Prepare(request, field_bytes).status();
  }
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = settings_.factor();
    return facts;
  }

 private:
  const PatchShape& ShapeIn(Medium medium) const {
    return medium == Medium::kVideo && settings_.video->shape ? *settings_.video->shape : settings_.shape;
  }
  uint32_t frames_on_wire(Medium medium) const {
    return settings_.pixels.wire == Wire::kU8 && medium == Medium::kImage ? 1 : ShapeIn(medium).frames;
  }
  // The size of frames before the resize.
  ImageSize FrameSize(const MediaFacts& facts) const {
    const MediaFacts seen = settings_.video->upright ? Upright(facts) : facts;
    return {seen.width, seen.height};
  }
  absl::StatusOr<ImageSize> ResizedPicture(ImageSize picture) const {
    if (!settings_.pixels.resized) return UnchangedSize(picture, settings_.factor());
    if (settings_.image_size) return settings_.image_size(picture);
    return SmartResize(picture.height, picture.width, settings_.factor(), settings_.min_pixels,
                       settings_.max_pixels, /*at_least_factor=*/false);
  }
  absl::StatusOr<ItemShape> ShapeOf(const MediaFacts& facts) const;
  absl::StatusOr<ItemLengths> LengthsOf(Medium medium, const VisionGrid& grid) const;
  // How many grids in time are one token's.
  uint32_t GridsOfToken(Medium medium) const {
    return medium == Medium::kVideo ? settings_.video->frames_per_token : 1;
  }
  // Checks the planned lengths and the buffers, and writes all fields except the pixels.
  absl::StatusOr<ItemShape> Prepare(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) const;
  absl::Status ProduceImage(const ItemRequest& request, const ItemShape& shape,
                            std::span<std::byte> pixels) const;
  absl::Status ProduceVideo(const ItemRequest& request, const ItemShape& shape,
                            std::span<std::byte> pixels) const;

  const QwenVision settings_;
  const Limits limits_;
  const std::vector<float> table_;
  std::vector<float> video_table_;
  std::vector<FieldSpec> image_fields_;
  std::vector<FieldSpec> video_fields_;
};

ImagesAndVideo::ImagesAndVideo(QwenVision settings, const Limits& limits)
    : settings_(std::move(settings)), limits_(limits), table_(settings_.pixels.Table()) {
  auto pixels = [&](std::string_view name, Medium medium, const PixelSettings& values) {
    return PixelField(name, values, ShapeIn(medium).frames, ShapeIn(medium).patch, frames_on_wire(medium));
  };
  FieldSpec grid{"image_grid_thw", DType::kI64, false, {3}, nullptr};
  image_fields_ = {pixels("pixel_values", Medium::kImage, settings_.pixels), grid};
  if (!settings_.merge_field.empty())
    image_fields_.push_back({settings_.merge_field, DType::kI64, false, {}, nullptr});
  if (!settings_.video) return;
  video_table_ = settings_.video->pixels.Table();
  grid.name = "video_grid_thw";
  video_fields_ = {pixels("pixel_values_videos", Medium::kVideo, settings_.video->pixels), grid};
  if (!settings_.video->timed && !settings_.video->seconds_field.empty())
    video_fields_.push_back(FieldSpec{settings_.video->seconds_field, DType::kF32, false, {}, nullptr});
  if (!settings_.video->merge_field.empty())
    video_fields_.push_back({settings_.video->merge_field, DType::kI64, false, {}, nullptr});
}

std::vector<MediumStyle> ImagesAndVideo::styles() const {
  auto style = [&](Medium medium, const std::string& token) {
    MediumStyle style{medium, settings_.vision_begin, token, settings_.vision_end, settings_.mrope};
    style.template_has_ends = !style.begin.empty();
    return style;
  };
  std::vector<MediumStyle> styles = {style(Medium::kImage, settings_.image_token)};
  if (settings_.video && settings_.video->style) {
    styles.push_back(*settings_.video->style);
  } else if (settings_.video) {
    styles.push_back(style(Medium::kVideo, settings_.video_token));
    styles.back().wraps_runs = settings_.video->timed;
    if (settings_.video->audio)
      styles.back().tokens = {settings_.video->audio->begin, settings_.video->audio->end};
  }
  return styles;
}

absl::StatusOr<ItemShape> ImagesAndVideo::ShapeOf(const MediaFacts& facts) const {
  ItemShape shape;
  if (facts.medium == Medium::kImage) {
    const uint32_t patch = settings_.shape.patch;
    const ImageSize picture = PictureSize(facts, settings_.pixels.picture);
    EVENKEEL_ASSIGN_OR_RETURN(shape.size, ResizedPicture(picture));
    shape.grid = {1, shape.size.height / patch, shape.size.width / patch, 0};
    return shape;
  }
  if (facts.medium != Medium::kVideo || !settings_.video) {
    return absl::UnimplementedError(
        absl::StrCat("video of the processor ", settings_.processor_class, ": ", settings_.no_video));
  }
  EVENKEEL_ASSIGN_OR_RETURN(shape.num_frames, NumChosenFrames(settings_.video->frames, facts));
  EVENKEEL_ASSIGN_OR_RETURN(shape.size, settings_.video->size(FrameSize(facts), shape.num_frames));
  const auto [patch, frames, merge, width] = ShapeIn(Medium::kVideo);
  const uint32_t merged = GridsOfToken(Medium::kVideo);
  const uint32_t grids = (shape.num_frames + frames - 1) / frames;
  const double video_fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  const double said = settings_.video->grid_seconds;
  const double sampled_fps = shape.num_frames / static_cast<double>(facts.num_frames) * video_fps;
  shape.grid = {(grids + merged - 1) / merged * merged, shape.size.height / patch, shape.size.width / patch,
                static_cast<float>(said != 0 ? said : frames / sampled_fps)};
  return shape;
}

absl::StatusOr<ItemLengths> ImagesAndVideo::LengthsOf(Medium medium, const VisionGrid& grid) const {
  uint64_t rows = uint64_t{grid.t} * grid.h * grid.w;
  if (rows > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("item of ", rows, " patches, more than 2^32 - 1"));
  }
  auto patches = static_cast<uint32_t>(rows);
  const uint32_t merge = ShapeIn(medium).merge;
  return ItemLengths{patches, patches, patches / (merge * merge * GridsOfToken(medium))};
}

absl::Status ImagesAndVideo::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(facts));
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, LengthsOf(facts.medium, shape.grid));
  runs.clear();
  if (facts.medium == Medium::kImage || !settings_.video->timed) {
    shape.grid.t /= GridsOfToken(facts.medium);
    runs.push_back({.rows = lengths.output_rows, .grid = shape.grid});
    return absl::OkStatus();
  }
  thread_local std::vector<uint32_t> chosen;
  ChooseFrames(settings_.video->frames, facts, shape.num_frames, /*times=*/{}, chosen);
  const double fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  for (std::span<const uint32_t> left = chosen; !left.empty();) {
    const auto group = left.first(std::min<size_t>(ShapeIn(Medium::kVideo).frames, left.size()));
    std::string time = settings_.video->time(group, fps);
    if (!runs.empty() && !settings_.video->between.empty()) time.insert(0, settings_.video->between);
    runs.push_back({"", lengths.output_rows / shape.grid.t, {1, shape.grid.h, shape.grid.w, 0}});
    if (settings_.video->time_follows) {
      runs.push_back({.text = std::move(time)});
    } else {
      runs.back().text = std::move(time);
    }
    left = left.subspan(group.size());
  }
  return absl::OkStatus();
}

absl::Status ImagesAndVideo::PlaceholdersWithAudio(const MediaFacts& video, uint32_t audio_rows,
                                                   std::vector<PlaceholderRun>& runs) const {
  if (audio_in_video() == nullptr) return MediaFamily::PlaceholdersWithAudio(video, audio_rows, runs);
  EVENKEEL_ASSIGN_OR_RETURN(const ItemShape shape, ShapeOf(video));
  EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, LengthsOf(video.medium, shape.grid));
  runs.clear();
  runs.push_back({.token = 0});
  EVENKEEL_RETURN_IF_ERROR(InterleaveAudio(*settings_.video->audio, shape.grid,
                                           lengths.output_rows / shape.grid.t, settings_.video->grid_seconds,
                                           audio_rows, runs));
  runs.push_back({.token = 1});
  return absl::OkStatus();
}

absl::StatusOr<ItemShape> ImagesAndVideo::Prepare(const ItemRequest& request,
                                                  std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(request.facts));
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, LengthsOf(request.medium, shape.grid));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " patches, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields(request.medium), lengths, field_bytes));
  const int64_t grid[3] = {shape.grid.t, shape.grid.h, shape.grid.w};
  std::memcpy(field_bytes[1].data(), grid, sizeof(grid));
  const bool is_video = request.medium == Medium::kVideo;
  if (!(is_video ? settings_.video->merge_field : settings_.merge_field).empty()) {
    const int64_t merge = ShapeIn(request.medium).merge;
    std::memcpy(field_bytes.back().data(), &merge, sizeof(merge));
  }
  if (is_video && !settings_.video->timed && !settings_.video->seconds_field.empty()) {
    std::memcpy(field_bytes[2].data(), &shape.grid.second_per_grid, sizeof(float));
  }
  return shape;
}

absl::Status ImagesAndVideo::ProduceImage(const ItemRequest& request, const ItemShape& shape,
                                          std::span<std::byte> pixels) const {
  const PictureOptions& options = settings_.pixels.picture;
  EVENKEEL_ASSIGN_OR_RETURN(PictureHeader header, ReadKnownPictureHeader(request.suffix, request.bytes,
                                                                         limits_, options, request.facts));
  // A picture is repeated for every frame of its temporal patch; the u8 wire form carries it once.
  const uint32_t copies = settings_.pixels.wire == Wire::kU8 ? 1 : settings_.shape.frames;
  PatchWriter writer(settings_.shape, shape.size.width, settings_.pixels.wire, copies, table_, pixels);
  PictureTarget target{.resized = shape.size, .filter = settings_.pixels.filter, .sink = &writer};
  return DecodePicture(request.suffix, request.bytes, limits_, options, header, {&target, 1});
}

absl::Status ImagesAndVideo::ProduceVideo(const ItemRequest& request, const ItemShape& shape,
                                          std::span<std::byte> pixels) const {
  const PatchShape& of_frames = ShapeIn(Medium::kVideo);
  const uint32_t group_frames = of_frames.frames;
  const size_t group_bytes = pixels.size() / shape.grid.t;
  const ImageSize native = FrameSize(request.facts);
  const PixelSettings& values = settings_.video->pixels;
  auto sink = [&](size_t position, FrameRows rows) {
    const auto in_group = static_cast<uint32_t>(position % group_frames);
    const bool last = position + 1 == shape.num_frames;  // repeated to fill its group
    PatchWriter writer(of_frames, shape.size.width, values.wire, group_frames,
                       {in_group, last ? group_frames - in_group : 1}, video_table_,
                       pixels.subspan(group_bytes * (position / group_frames), group_bytes));
    if (settings_.video->in_floats && native != shape.size)
      return ResizeFrameInFloats(rows, native, values, shape.size, writer);
    return ResizeFrame(rows, native, values, {shape.size}, writer);
  };
  EVENKEEL_RETURN_IF_ERROR(DecodeChosenFrames(request, limits_, settings_.video->frames, shape.num_frames,
                                              settings_.video->upright, std::ref(sink)));
  // A last token's missing grids are those of the last frame.
  for (size_t grid = (shape.num_frames + group_frames - 1) / group_frames; grid < shape.grid.t; ++grid)
    std::memcpy(&pixels[group_bytes * grid], &pixels[group_bytes * (grid - 1)], group_bytes);
  return absl::OkStatus();
}

absl::Status ImagesAndVideo::Produce(const ItemRequest& request,
                                     std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, Prepare(request, field_bytes));
  if (request.medium == Medium::kVideo) return ProduceVideo(request, shape, field_bytes[0]);
  return ProduceImage(request, shape, field_bytes[0]);
}

// If there is a "size", transformers takes both bounds from it, unless the file also has min_pixels
// and max_pixels (with `pixel_keys`), which releases before 4.49 also wrote inside "size".
absl::Status CheckSize(ConfigFile& config, bool pixel_keys) {
  constexpr std::pair<std::string_view, std::string_view> kBounds[] = {{"shortest_edge", "min_pixels"},
                                                                       {"longest_edge", "max_pixels"}};
  absl::Status status;
  for (const auto& [edge, pixels] : kBounds) {
    const bool has_edge = config.HasIn("size", edge);
    const bool has_inner = pixel_keys && config.HasIn("size", pixels);
    if (!config.Has("size") || !status.ok() || (pixel_keys && config.Has(pixels))) continue;
    const std::string key = absl::StrCat("size.", std::string(edge));
    if (!has_edge) status = config.Error(key, "is missing");
    if (has_inner) status = config.Error(key, absl::StrCat("is given together with ", std::string(pixels)));
  }
  return status;
}

// 3136.0 is the same bound as 3136: transformers only compares areas with it.
void TakeWholeBounds(ConfigFile& config) { config.Whole({"min_pixels", "max_pixels", "size"}); }

}  // namespace

absl::StatusOr<QwenVision> ReadQwenVision(ConfigFile& config, const ProcessorSpec& spec,
                                          const QwenImageClass& usual) {
  QwenVision out;
  TakeWholeBounds(config);
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, spec, usual.mean, usual.std));
  out.shape.patch = static_cast<uint32_t>(config.Uint("patch_size", 14, 1, 256));
  out.shape.frames = static_cast<uint32_t>(config.Uint("temporal_patch_size", usual.frames, 1, 16));
  out.shape.merge = static_cast<uint32_t>(config.Uint("merge_size", usual.merge, 1, 16));
  constexpr uint64_t kMaxPixels = 1ull << 32;
  uint64_t min_pixels = config.UintIn("size", "shortest_edge", usual.min_pixels, 1, kMaxPixels);
  uint64_t max_pixels = config.UintIn("size", "longest_edge", usual.max_pixels, 1, kMaxPixels);
  if (usual.pixel_keys) {
    min_pixels = config.Uint("min_pixels", min_pixels, 1, kMaxPixels);
    max_pixels = config.Uint("max_pixels", max_pixels, 1, kMaxPixels);
  } else {
    config.Inert({"min_pixels", "max_pixels"});
  }
  out.min_pixels = spec.min_pixels.value_or(min_pixels);
  out.max_pixels = spec.max_pixels.value_or(max_pixels);
  config.Resolved("bounds", {out.min_pixels, out.max_pixels});
  out.processor_class = config.Text("processor_class", usual.processor_class);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.NotNull({"patch_size", "temporal_patch_size", "merge_size"});
  config.Inert({"default_to_square", "crop_size"});
  const absl::Status size = CheckSize(config, usual.pixel_keys);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(size);
  // A file with min_pixels above max_pixels is accepted, as in transformers, where the maximum wins.
  const bool of_job = spec.min_pixels || spec.max_pixels;
  if (of_job && out.min_pixels > out.max_pixels) {
    return config.Error("min_pixels", absl::StrCat("min_pixels, ", out.min_pixels, ", is above max_pixels, ",
                                                   out.max_pixels, ", after applying the job's values"));
  }
  return out;
}

absl::StatusOr<std::optional<ConfigFile>> FindQwenVideo(const CheckpointFolder& checkpoint,
                                                        const QwenVideoClass& usual, QwenVision& vision) {
  absl::StatusOr<ConfigFile> config = ConfigFile::ReadVideoProcessor(checkpoint);
  if (config.ok()) {
    std::string name = config->Choice("video_processor_type", "");
    // If the file names no video class, transformers derives it from the class of images, if it has a
    // matching name; else (for ...Fast) from the model.
    if (name.empty() && config->Choice("image_processor_type", "") == "Qwen2VLImageProcessor")
      name = kQwen2VlVideo.name;
    const bool is_known = name.empty() || name == usual.name;
    config->Resolved("family", {is_known ? std::string(usual.name) : std::string()});
    if (is_known) return std::optional<ConfigFile>(*std::move(config));
    vision.no_video = absl::StrCat(checkpoint.folder, ": transformers uses ", name,
                                   " for its videos, but only ", std::string(usual.name),
                                   " is implemented; add the model's video_preprocessor_config.json");
    return std::optional<ConfigFile>();
  }
  if (!absl::IsNotFound(config.status())) return config.status();
  vision.RefuseVideos(config.status());
  return std::optional<ConfigFile>();
}

absl::StatusOr<QwenVideoFile> ReadQwenVideoFile(ConfigFile& config, const QwenVision& vision,
                                                const ProcessorSpec& spec, const QwenVideoClass& usual) {
  QwenVideoFile file;
  TakeWholeBounds(config);
  EVENKEEL_ASSIGN_OR_RETURN(file.pixels, ReadPixelSettings(config, spec, usual.mean, usual.std));
  absl::Status patches;
  for (const auto& [key, of_images, of_class] : {std::tuple("patch_size", vision.shape.patch, usual.patch),
                                                 {"temporal_patch_size", vision.shape.frames, usual.frames},
                                                 {"merge_size", vision.shape.merge, usual.merge}}) {
    const bool said = config.Has(key);
    config.Pin(key, double(of_images));
    if (said || of_images == of_class || !patches.ok()) continue;
    patches = config.Error(
        key, absl::StrCat("is missing, so videos have ", of_class, ", but the image processor has ",
                          of_images, "; only equal values are implemented"));
  }
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  // do_sample_frames: the job's frame_rule decides, unless the family reads the key.
  config.Inert({"default_to_square", "crop_size"});
  constexpr uint64_t kMaxPixels = 1ull << 40;
  constexpr uint32_t kMaxFrames = 1 << 20;
  file.min_pixels = config.UintIn("size", "shortest_edge", usual.min_pixels, 1, kMaxPixels);
  file.max_pixels = config.UintIn("size", "longest_edge", usual.max_pixels, 1, kMaxPixels);
  if (usual.pixel_keys) {
    file.min_pixels = config.Uint("min_pixels", file.min_pixels, 1, kMaxPixels);
    file.max_pixels = config.Uint("max_pixels", file.max_pixels, 1, kMaxPixels);
  } else {
    config.Inert({"min_pixels", "max_pixels"});
  }
  if (usual.bounds_frames) {
    file.min_frames = static_cast<uint32_t>(config.Uint("min_frames", 0, 1, kMaxFrames));
    file.max_frames = static_cast<uint32_t>(config.Uint("max_frames", 0, 1, kMaxFrames));
    file.num_frames = static_cast<uint32_t>(config.Uint("num_frames", 0, 1, kMaxFrames));
  } else {
    config.Inert({"min_frames", "max_frames", "num_frames"});
  }
  if (usual.has_fps) {
    file.fps = config.Real("fps", 0);
  } else {
    config.Inert({"fps"});
  }
  file.cap_pixels_per_frame = config.Flag("cap_pixels_per_frame", false);
  file.max_video_tokens =
      static_cast<uint32_t>(config.Uint("max_video_tokens", usual.max_tokens, 1, 1 << 24));
  const absl::Status size = CheckSize(config, usual.pixel_keys);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(patches);
  EVENKEEL_RETURN_IF_ERROR(size);
  if (usual.has_fps && config.Has("fps") && !(file.fps > 0)) return config.Error("fps", "is not positive");
  return file;
}

absl::StatusOr<FrameChoice> FramesOf(FrameRule rule, const ProcessorSpec& spec, const QwenVideoFile& file,
                                     uint32_t multiple) {
  FrameChoice out{rule, spec.fps.value_or(file.fps), spec.min_frames.value_or(file.min_frames),
                  spec.max_frames.value_or(file.max_frames), multiple};
  if (out.fps == 0) out.fps = kVideoDefaults.fps;
  if (out.min_frames == 0) out.min_frames = kVideoDefaults.min_frames;
  if (out.max_frames == 0) out.max_frames = kVideoDefaults.max_frames;
  if ((spec.min_frames || spec.max_frames) && out.min_frames > out.max_frames) {
    return absl::InvalidArgumentError(
        absl::StrCat("processor.", spec.min_frames ? "min" : "max", "_frames: min_frames, ", out.min_frames,
                     ", is above max_frames, ", out.max_frames, "; the other bound is the ",
                     spec.min_frames ? (file.max_frames ? "checkpoint's" : "default")
                                     : (file.min_frames ? "checkpoint's" : "default")));
  }
  return out;
}

std::unique_ptr<MediaFamily> MakeQwenVision(QwenVision settings, const Limits& limits) {
  return std::make_unique<ImagesAndVideo>(std::move(settings), limits);
}

std::string TimeOf(std::span<const uint32_t> group, double fps) {
  return absl::StrFormat("<%.1f seconds>", (group.front() / fps + group.back() / fps) / 2);
}

}  // namespace evenkeel::preprocess
